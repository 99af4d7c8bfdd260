"""Reaction of the controller to a changed topic znode: only new partitions are taken over."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from barnabas.controller.controller import Controller
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import BrokerId, TopicPartition
from tests.unit.controller.cluster import replica_assignment, topic_id
from tests.unit.controller.test_controller import eventually, running_controller

PATH = znodes.topic_path("t")
ID = topic_id("t")
P0, P1, P2 = (TopicPartition("t", index) for index in range(3))
ABSENT = 7
"""A broker that does not run."""


def encode_assignment(*replicas: tuple[int, ...], written_id: UUID | None = ID) -> bytes:
    partitions = {index: replica_assignment(*each) for index, each in enumerate(replicas)}
    return znodes.encode_topic(znodes.TopicAssignment(topic_id=written_id, partitions=partitions))


async def start_with_topic(controller: Controller, registry: RegistryClient, data: bytes) -> None:
    await registry.create(PATH, data)
    controller.start()
    await eventually(lambda: controller.has_taken_over)
    assert P0 in controller.context.leadership


async def settle(controller: Controller, registry: RegistryClient) -> znodes.TopicAssignment:
    """Wait until the controller has processed all changes so far: a topic written later has a
    leader.
    """
    name = f"later-{len(controller.context.all_topics)}"
    later = znodes.TopicAssignment(topic_id=topic_id(name), partitions={0: replica_assignment(1)})
    await registry.create(znodes.topic_path(name), znodes.encode_topic(later))
    await eventually(lambda: TopicPartition(name, 0) in controller.context.leadership)
    data, _ = await registry.get(PATH)
    return znodes.decode_topic("t", data)


async def test_added_partitions_get_leaders() -> None:
    async with running_controller() as (controller, registry, _):
        await start_with_topic(controller, registry, encode_assignment((1,)))
        await registry.set(PATH, encode_assignment((1,), (1,), (1,)))
        await eventually(lambda: {P1, P2} <= controller.context.leadership.keys())
        assert controller.context.leadership[P2].leader == 1
        assert (await registry.exists(znodes.state_path(P2))) is not None


async def test_changed_replicas_of_known_partition_are_ignored() -> None:
    async with running_controller() as (controller, registry, _):
        await start_with_topic(controller, registry, encode_assignment((1,)))
        await registry.set(PATH, encode_assignment((1, ABSENT), (1,)))
        await eventually(lambda: P1 in controller.context.leadership)
        assert controller.context.assignments["t"][P0].replicas == (1,)


async def test_partition_removed_from_znode_is_kept() -> None:
    async with running_controller() as (controller, registry, _):
        await start_with_topic(controller, registry, encode_assignment((1,), (1,)))
        await registry.set(PATH, encode_assignment((1,)))
        await settle(controller, registry)
        assert P1 in controller.context.leadership


def reassigned(*replicas: tuple[int, ...]) -> znodes.TopicAssignment:
    """Partition 0 moves from broker 1 to an absent broker; further partitions may follow."""
    first = replica_assignment(ABSENT, 1, adding=(ABSENT,), removing=(1,))
    partitions = {
        0: first,
        **{index: replica_assignment(*each) for index, each in enumerate(replicas, 1)},
    }
    return znodes.TopicAssignment(topic_id=ID, partitions=partitions)


@pytest.mark.parametrize("at_failover", [True, False])
async def test_topic_grows_while_reassignment_waits_for_broker(at_failover: bool) -> None:
    async with running_controller() as (controller, registry, _):
        if not at_failover:
            controller.start()
            await eventually(lambda: controller.has_taken_over)
        await registry.create(PATH, znodes.encode_topic(reassigned()))
        if at_failover:
            controller.start()
        await eventually(lambda: P0 in controller.context.leadership)
        grown = reassigned((1,), (1,))
        await registry.set(PATH, znodes.encode_topic(grown))
        await eventually(lambda: {P1, P2} <= controller.context.leadership.keys())
        assert await settle(controller, registry) == grown
        assert controller.context.partitions_being_reassigned == {P0: None}


async def test_reassignment_is_restored_for_topic_to_be_deleted() -> None:
    async with running_controller() as (controller, registry, _):
        await start_with_topic(controller, registry, znodes.encode_topic(reassigned()))
        await registry.create(znodes.delete_topic_path("t"))
        await eventually(lambda: controller.context.is_topic_queued_for_deletion("t"))
        await registry.set(PATH, encode_assignment((1,), (1,)))
        assert await settle(controller, registry) == reassigned()


@pytest.mark.parametrize("version", [1, 2])
async def test_expansion_by_old_tool_keeps_topic_id(version: int) -> None:
    async with running_controller() as (controller, registry, _):
        await start_with_topic(controller, registry, encode_assignment((1,)))
        old = {"version": version, "partitions": {"0": [1], "1": [1]}}
        await registry.set(PATH, json.dumps(old).encode())
        await eventually(lambda: P1 in controller.context.leadership)
        found = await settle(controller, registry)
        assert found.topic_id == ID
        assert sorted(found.partitions) == [0, 1]


async def test_assignment_is_restored_for_topic_to_be_deleted() -> None:
    async with running_controller() as (controller, registry, _):
        await start_with_topic(controller, registry, encode_assignment((1, ABSENT)))
        await registry.create(znodes.delete_topic_path("t"))
        await eventually(lambda: controller.context.is_topic_queued_for_deletion("t"))
        await registry.set(PATH, encode_assignment((ABSENT, 1), (1, ABSENT), written_id=None))
        found = await settle(controller, registry)
        assert found.topic_id == ID
        assert found.partitions == {0: replica_assignment(1, ABSENT)}
        assert P1 not in controller.context.leadership
        assert controller.context.is_topic_queued_for_deletion("t")


async def test_topic_to_be_deleted_without_new_partitions_is_unchanged() -> None:
    async with running_controller() as (controller, registry, _):
        await start_with_topic(controller, registry, encode_assignment((1, ABSENT)))
        await registry.create(znodes.delete_topic_path("t"))
        await eventually(lambda: controller.context.is_topic_queued_for_deletion("t"))
        await registry.set(PATH, encode_assignment((ABSENT, 1)))
        found = await settle(controller, registry)
        assert found.partitions[0].replicas == (BrokerId(ABSENT), BrokerId(1))
