"""What the controller makes of a topic znode that was changed: what is new in it, and nothing else."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from barnabas.controller.controller import Controller
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import BrokerId, TopicPartition
from tests.unit.controller.cluster import held, topic_id
from tests.unit.controller.test_controller import eventually, running

PATH = znodes.topic_path("t")
ID = topic_id("t")
P0, P1, P2 = (TopicPartition("t", index) for index in range(3))
AWAY = 7
"""A broker that is not there."""


def written(*replicas: tuple[int, ...], written_id: UUID | None = ID) -> bytes:
    partitions = {index: held(*each) for index, each in enumerate(replicas)}
    return znodes.encode_topic(znodes.TopicAssignment(topic_id=written_id, partitions=partitions))


async def with_topic(controller: Controller, registry: RegistryClient, data: bytes) -> None:
    await registry.create(PATH, data)
    controller.start()
    await eventually(lambda: controller.has_taken_over)
    assert P0 in controller.context.leadership


async def settled(controller: Controller, registry: RegistryClient) -> znodes.TopicAssignment:
    """When it has reacted to everything so far: a topic that was written later has a leader."""
    name = f"later-{len(controller.context.all_topics)}"
    later = znodes.TopicAssignment(topic_id=topic_id(name), partitions={0: held(1)})
    await registry.create(znodes.topic_path(name), znodes.encode_topic(later))
    await eventually(lambda: TopicPartition(name, 0) in controller.context.leadership)
    data, _ = await registry.get(PATH)
    return znodes.decode_topic("t", data)


async def test_partitions_that_are_added_are_led() -> None:
    async with running() as (controller, registry, _):
        await with_topic(controller, registry, written((1,)))
        await registry.set(PATH, written((1,), (1,), (1,)))
        await eventually(lambda: {P1, P2} <= controller.context.leadership.keys())
        assert controller.context.leadership[P2].leader == 1
        assert (await registry.exists(znodes.state_path(P2))) is not None


async def test_other_replicas_of_a_partition_that_is_known_are_not_taken_up() -> None:
    async with running() as (controller, registry, _):
        await with_topic(controller, registry, written((1,)))
        await registry.set(PATH, written((1, AWAY), (1,)))
        await eventually(lambda: P1 in controller.context.leadership)
        assert controller.context.assignments["t"][P0].replicas == (1,)


async def test_a_partition_that_is_taken_out_of_the_znode_stays() -> None:
    async with running() as (controller, registry, _):
        await with_topic(controller, registry, written((1,), (1,)))
        await registry.set(PATH, written((1,)))
        await settled(controller, registry)
        assert P1 in controller.context.leadership


def moving(*replicas: tuple[int, ...]) -> znodes.TopicAssignment:
    """Partition 0 moves from broker 1 to a broker that is away; more partitions may follow."""
    first = held(AWAY, 1, adding=(AWAY,), removing=(1,))
    partitions = {0: first, **{index: held(*each) for index, each in enumerate(replicas, 1)}}
    return znodes.TopicAssignment(topic_id=ID, partitions=partitions)


@pytest.mark.parametrize("at_failover", [True, False])
async def test_unfinished_reassignment_is_logged_once_and_kept(
    at_failover: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as (controller, registry, _):
        if not at_failover:
            controller.start()
            await eventually(lambda: controller.has_taken_over)
        await registry.create(PATH, znodes.encode_topic(moving()))
        if at_failover:
            controller.start()
        await eventually(lambda: P0 in controller.context.leadership)
        grown = moving((1,), (1,))
        await registry.set(PATH, znodes.encode_topic(grown))
        await eventually(lambda: {P1, P2} <= controller.context.leadership.keys())
        assert await settled(controller, registry) == grown
        lines = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        assert [line for line in lines if "reassignment" in line] == [
            "unfinished reassignment is not continued topic=t partitions=0; all replicas stay assigned"
        ]


async def test_topic_to_be_deleted_goes_back_to_its_unfinished_reassignment() -> None:
    async with running() as (controller, registry, _):
        await with_topic(controller, registry, znodes.encode_topic(moving()))
        await registry.create(znodes.delete_topic_path("t"))
        await eventually(lambda: controller.context.is_topic_queued_for_deletion("t"))
        await registry.set(PATH, written((1,), (1,)))
        assert await settled(controller, registry) == moving()


@pytest.mark.parametrize("version", [1, 2])
async def test_an_old_tool_that_lets_a_topic_grow_does_not_cost_it_its_id(version: int) -> None:
    async with running() as (controller, registry, _):
        await with_topic(controller, registry, written((1,)))
        old = {"version": version, "partitions": {"0": [1], "1": [1]}}
        await registry.set(PATH, json.dumps(old).encode())
        await eventually(lambda: P1 in controller.context.leadership)
        found = await settled(controller, registry)
        assert found.topic_id == ID
        assert sorted(found.partitions) == [0, 1]


async def test_a_topic_that_is_to_be_deleted_goes_back_to_what_it_was() -> None:
    async with running() as (controller, registry, _):
        await with_topic(controller, registry, written((1, AWAY)))
        await registry.create(znodes.delete_topic_path("t"))
        await eventually(lambda: controller.context.is_topic_queued_for_deletion("t"))
        await registry.set(PATH, written((AWAY, 1), (1, AWAY), written_id=None))
        found = await settled(controller, registry)
        assert found.topic_id == ID
        assert found.partitions == {0: held(1, AWAY)}
        assert P1 not in controller.context.leadership
        assert controller.context.is_topic_queued_for_deletion("t")


async def test_a_topic_that_is_to_be_deleted_and_has_nothing_new_is_left_alone() -> None:
    async with running() as (controller, registry, _):
        await with_topic(controller, registry, written((1, AWAY)))
        await registry.create(znodes.delete_topic_path("t"))
        await eventually(lambda: controller.context.is_topic_queued_for_deletion("t"))
        await registry.set(PATH, written((AWAY, 1)))
        found = await settled(controller, registry)
        assert found.partitions[0].replicas == (BrokerId(AWAY), BrokerId(1))
