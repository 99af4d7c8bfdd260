"""Metadata cache of a broker after UpdateMetadata requests."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from barnabas.errors import ErrorCode
from barnabas.metadata import cache as cache_module
from barnabas.metadata.cache import MetadataCache
from barnabas.model import ZERO_ID, BrokerId, TopicPartition
from barnabas.wire.fast import encode_metadata_topic
from barnabas.wire.messages.control_plane import LEADER_DURING_DELETE
from barnabas.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

TOPIC_ID = uuid4()


def live_broker(broker: int, *listeners: str) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker,
        endpoints=tuple(
            UpdateMetadataEndpoint(9000 + broker, f"host-{broker}", name)
            for name in listeners or ("PLAINTEXT",)
        ),
    )


def state(index: int, leader: int = 1, **fields: Any) -> UpdateMetadataPartitionState:
    partition = UpdateMetadataPartitionState(
        partition_index=index, leader=leader, leader_epoch=3, isr=(1, 2), replicas=(1, 2)
    )
    return partition._replace(**fields)


def update(
    *states: UpdateMetadataPartitionState,
    brokers: tuple[UpdateMetadataBroker, ...] = (live_broker(1), live_broker(2)),
    controller: int = 1,
    topic: str = "orders",
    topic_id: UUID = TOPIC_ID,
) -> UpdateMetadataRequest:
    topics = (UpdateMetadataTopicState(topic, topic_id, states),) if states else ()
    return UpdateMetadataRequest(
        controller_id=controller, controller_epoch=1, topic_states=topics, live_brokers=brokers
    )


def cache_with(*states: UpdateMetadataPartitionState) -> MetadataCache:
    made = MetadataCache("cluster")
    made.update(update(*states or (state(0), state(1))))
    return made


async def test_update_replaces_brokers_and_merges_partitions() -> None:
    known = cache_with()
    assert known.update(update(brokers=(live_broker(3),), controller=3)) == ()
    assert list(known.brokers) == [3]
    assert known.controller_id == 3
    assert sorted(known.topics["orders"].partitions) == [0, 1]
    known.update(update(state(1, leader=2), state(2)))
    found = known.topics["orders"].partitions
    assert {index: each.leader for index, each in found.items()} == {0: 1, 1: 2, 2: 1}


async def test_version_grows_when_a_topic_changes() -> None:
    known = cache_with()
    first = known.topics_version
    known.update(update(brokers=(live_broker(3),), controller=3))
    assert known.topics_version == first
    known.update(update(state(2)))
    second = known.topics_version
    assert second > first
    known.remove_topic("orders")
    assert known.topics_version > second


def test_leader_minus_2_removes_partition_and_empty_topic() -> None:
    known = cache_with()
    gone = known.update(update(state(1, leader=LEADER_DURING_DELETE)))
    assert gone == (TopicPartition("orders", 1),)
    assert known.names == {TOPIC_ID: "orders"}
    assert known.has_partition("orders", 0)
    assert not known.has_partition("orders", 1)
    known.update(update(state(0, leader=LEADER_DURING_DELETE)))
    assert known.topics == {}
    assert known.names == {}


def test_unknown_deleted_partition_is_reported_as_removed() -> None:
    known = cache_with()
    assert known.update(update(state(0, leader=LEADER_DURING_DELETE), topic="lost")) == (
        TopicPartition("lost", 0),
    )
    assert "lost" not in known.topics


def test_recreated_topic_is_found_by_new_id_only() -> None:
    known = cache_with()
    other = uuid4()
    known.update(update(state(0), topic_id=other))
    assert known.names == {other: "orders"}
    known.update(update(state(0), topic_id=ZERO_ID))
    assert known.names == {}


def test_update_metadata_v0_is_understood() -> None:
    known = MetadataCache("cluster")
    known.update(
        UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            ungrouped_partition_states=(
                state(0, topic_name="a"),
                state(0, topic_name="b"),
                state(1, topic_name="a"),
            ),
            live_brokers=(UpdateMetadataBroker(id=1, v0_host="old", v0_port=9092),),
        )
    )
    assert {name: len(topic.partitions) for name, topic in known.topics.items()} == {"a": 2, "b": 1}
    found = known.endpoint_of(1, "PLAINTEXT")
    assert found is not None
    assert (found.host, found.port) == ("old", 9092)


def test_replica_lists_are_shared() -> None:
    known = cache_with()
    known.update(update(*(state(index, replicas=tuple(map(int, "12"))) for index in range(2, 5))))
    lists = {id(each.replicas) for each in known.topics["orders"].partitions.values()}
    assert len(lists) == 1


# ---- metadata for clients


def test_dead_leader_is_hidden_and_its_replicas_are_shown() -> None:
    known = cache_with(state(0, leader=3, replicas=(3, 1), offline_replicas=(3,)))
    (described,) = known.describe(known.topics["orders"], 12).partitions
    assert described.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (described.leader_id, described.leader_epoch) == (-1, 3)
    assert (described.replica_nodes, described.offline_replicas) == ((3, 1), (3,))


@pytest.mark.parametrize(
    ("version", "code"),
    [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)],
)
def test_leader_without_listener_is_not_available(version: int, code: ErrorCode) -> None:
    known = cache_with()
    known.update(update(brokers=(live_broker(1, "INSIDE"), live_broker(2, "INSIDE", "OUTSIDE"))))
    (described, _) = known.describe(known.topics["orders"], version, "OUTSIDE").partitions
    assert (described.error_code, described.leader_id) == (code, -1)
    (described, _) = known.describe(known.topics["orders"], version, "INSIDE").partitions
    assert (described.error_code, described.leader_id) == (0, 1)


def test_metadata_v0_hides_dead_replicas() -> None:
    known = cache_with(state(0, replicas=(1, 3), isr=(1,)))
    (described,) = known.describe(known.topics["orders"], 0).partitions
    assert described.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert described.replica_nodes == (1,)
    (described,) = known.describe(known.topics["orders"], 1).partitions
    assert described.error_code == 0
    assert described.replica_nodes == (1, 3)


async def test_encoded_topic_is_cached_until_topic_or_broker_changes() -> None:
    known = cache_with()
    known.update(update(state(0), topic="other", topic_id=uuid4()))

    def encoded(name: str) -> bytes:
        return known.encoded_topic(name, 12, encode_metadata_topic, "PLAINTEXT")

    orders, other = encoded("orders"), encoded("other")
    known.update(update(state(0, leader=2)))
    assert encoded("other") is other
    assert encoded("orders") != orders
    known.update(update(brokers=(live_broker(1),)))
    assert encoded("other") is not other


# ---- waiting


async def test_waiter_is_woken_by_matching_update() -> None:
    known = MetadataCache("cluster")
    waiting = asyncio.create_task(known.wait_until(lambda: known.has_partition("orders", 1), 30))
    await asyncio.sleep(0)
    known.update(update(state(0)))
    await asyncio.sleep(0)
    assert not waiting.done()
    known.update(update(state(1)))
    assert await asyncio.wait_for(waiting, 30)
    assert known.waiting == []


async def test_wait_until_times_out() -> None:
    known = MetadataCache("cluster")
    assert not await known.wait_until(lambda: False, 0.001)
    assert not await known.wait_until(lambda: False, 0)
    assert await known.wait_until(lambda: True, 0)
    assert known.waiting == []


async def test_failing_condition_fails_only_its_waiter() -> None:
    known = MetadataCache("cluster")
    is_broken = False

    def condition() -> bool:
        if is_broken:
            raise ValueError("broken")
        return False

    waiting = asyncio.create_task(known.wait_until(condition, 10))
    await asyncio.sleep(0)
    is_broken = True
    known.update(update(state(0)))
    with pytest.raises(ValueError, match="broken"):
        await waiting


# ---- brokers that leave


async def test_departed_broker_is_remembered_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "DEPARTED_SECONDS", 0.01)
    known = cache_with()
    known.update(update(brokers=(live_broker(1),)))
    assert list(known.brokers) == [1]
    assert [broker.id for broker in known.brokers_and_departed()] == [1, 2]
    async with asyncio.timeout(30):
        while len(known.brokers_and_departed()) > 1:
            await asyncio.sleep(0.001)


async def test_returned_broker_is_listed_once() -> None:
    known = cache_with()
    known.update(update(brokers=(live_broker(1),)))
    known.update(update(brokers=(live_broker(1), live_broker(2))))
    assert [broker.id for broker in known.brokers_and_departed()] == [1, 2]


async def test_metadata_of_doubtful_leader_waits_for_update() -> None:
    known = cache_with(state(0, leader=2))
    known.mark_suspect(BrokerId(2))
    waiting = asyncio.create_task(known.wait_for_suspect_leaders(["orders"]))
    await asyncio.sleep(0)
    assert not waiting.done()
    await known.wait_for_suspect_leaders(["payments"])  # its leader is not in doubt
    known.update(update(state(0, leader=1), brokers=(live_broker(1),)))
    async with asyncio.timeout(30):
        await waiting


async def test_doubt_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "SUSPECT_SECONDS", 0.01)
    known = cache_with(state(0, leader=2))
    known.mark_suspect(BrokerId(7))
    assert not known.suspects, "the broker is unknown"
    known.mark_suspect(BrokerId(2))
    known.mark_suspect(BrokerId(2))
    async with asyncio.timeout(30):
        await known.wait_for_suspect_leaders(["orders"])
        while known.suspects:
            await asyncio.sleep(0.001)
