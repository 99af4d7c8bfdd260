"""What a broker knows of the cluster after what it was told."""

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


def live(broker: int, *listeners: str) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker,
        endpoints=tuple(
            UpdateMetadataEndpoint(9000 + broker, f"host-{broker}", name)
            for name in listeners or ("PLAINTEXT",)
        ),
    )


def state(index: int, leader: int = 1, **fields: Any) -> UpdateMetadataPartitionState:
    told = UpdateMetadataPartitionState(
        partition_index=index, leader=leader, leader_epoch=3, isr=(1, 2), replicas=(1, 2)
    )
    return told._replace(**fields)


def update(
    *states: UpdateMetadataPartitionState,
    brokers: tuple[UpdateMetadataBroker, ...] = (live(1), live(2)),
    controller: int = 1,
    topic: str = "orders",
    topic_id: UUID = TOPIC_ID,
) -> UpdateMetadataRequest:
    topics = (UpdateMetadataTopicState(topic, topic_id, states),) if states else ()
    return UpdateMetadataRequest(
        controller_id=controller, controller_epoch=1, topic_states=topics, live_brokers=brokers
    )


def cache(*states: UpdateMetadataPartitionState) -> MetadataCache:
    made = MetadataCache("cluster")
    made.update(update(*states or (state(0), state(1))))
    return made


async def test_brokers_and_controller_are_replaced_and_partitions_merged() -> None:
    known = cache()
    assert known.update(update(brokers=(live(3),), controller=3)) == ()
    assert list(known.brokers) == [3]
    assert known.controller_id == 3
    assert sorted(known.topics["orders"].partitions) == [0, 1]
    known.update(update(state(1, leader=2), state(2)))
    found = known.topics["orders"].partitions
    assert {index: each.leader for index, each in found.items()} == {0: 1, 1: 2, 2: 1}


def test_a_leader_of_minus_two_takes_a_partition_out_and_the_last_one_its_topic() -> None:
    known = cache()
    gone = known.update(update(state(1, leader=LEADER_DURING_DELETE)))
    assert gone == (TopicPartition("orders", 1),)
    assert known.names == {TOPIC_ID: "orders"}
    assert known.has_partition("orders", 0)
    assert not known.has_partition("orders", 1)
    known.update(update(state(0, leader=LEADER_DURING_DELETE)))
    assert known.topics == {}
    assert known.names == {}


def test_a_partition_nobody_knew_is_told_as_gone_all_the_same() -> None:
    known = cache()
    assert known.update(update(state(0, leader=LEADER_DURING_DELETE), topic="lost")) == (
        TopicPartition("lost", 0),
    )
    assert "lost" not in known.topics


def test_a_topic_that_was_made_anew_is_found_by_its_new_id_only() -> None:
    known = cache()
    other = uuid4()
    known.update(update(state(0), topic_id=other))
    assert known.names == {other: "orders"}
    known.update(update(state(0), topic_id=ZERO_ID))
    assert known.names == {}


def test_the_oldest_requests_are_understood() -> None:
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
    known = cache()
    known.update(update(*(state(index, replicas=tuple(map(int, "12"))) for index in range(2, 5))))
    lists = {id(each.replicas) for each in known.topics["orders"].partitions.values()}
    assert len(lists) == 1


# ---- what clients are told


def test_a_leader_that_is_gone_is_not_told_and_its_replicas_are() -> None:
    known = cache(state(0, leader=3, replicas=(3, 1), offline_replicas=(3,)))
    (told,) = known.describe("orders", 12).partitions
    assert told.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (told.leader_id, told.leader_epoch) == (-1, 3)
    assert (told.replica_nodes, told.offline_replicas) == ((3, 1), (3,))


@pytest.mark.parametrize(
    ("version", "code"),
    [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)],
)
def test_a_leader_without_the_clients_listener_cannot_be_used(
    version: int, code: ErrorCode
) -> None:
    known = cache()
    known.update(update(brokers=(live(1, "INSIDE"), live(2, "INSIDE", "OUTSIDE"))))
    (told, _) = known.describe("orders", version, "OUTSIDE").partitions
    assert (told.error_code, told.leader_id) == (code, -1)
    (told, _) = known.describe("orders", version, "INSIDE").partitions
    assert (told.error_code, told.leader_id) == (0, 1)


def test_the_oldest_clients_are_not_told_of_brokers_they_cannot_find() -> None:
    known = cache(state(0, replicas=(1, 3), isr=(1,)))
    (told,) = known.describe("orders", 0).partitions
    assert told.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert told.replica_nodes == (1,)
    (told,) = known.describe("orders", 1).partitions
    assert told.error_code == 0
    assert told.replica_nodes == (1, 3)


async def test_what_was_encoded_is_kept_until_the_topic_or_a_broker_changes() -> None:
    known = cache()
    known.update(update(state(0), topic="other", topic_id=uuid4()))

    def encoded(name: str) -> bytes:
        return known.encoded_topic(name, 12, encode_metadata_topic, "PLAINTEXT")

    orders, other = encoded("orders"), encoded("other")
    known.update(update(state(0, leader=2)))
    assert encoded("other") is other
    assert encoded("orders") != orders
    known.update(update(brokers=(live(1),)))
    assert encoded("other") is not other


# ---- waiting


async def test_who_waits_is_woken_by_the_update_that_matters() -> None:
    known = MetadataCache("cluster")
    waiting = asyncio.create_task(known.wait_until(lambda: known.has_partition("orders", 1), 30))
    await asyncio.sleep(0)
    known.update(update(state(0)))
    await asyncio.sleep(0)
    assert not waiting.done()
    known.update(update(state(1)))
    assert await asyncio.wait_for(waiting, 30)
    assert known.waiting == []


async def test_who_waits_in_vain_is_told_so() -> None:
    known = MetadataCache("cluster")
    assert not await known.wait_until(lambda: False, 0.001)
    assert not await known.wait_until(lambda: False, 0)
    assert await known.wait_until(lambda: True, 0)
    assert known.waiting == []


async def test_a_condition_that_fails_fails_who_waits_and_nobody_else() -> None:
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


# ---- the moment in which a broker goes


async def test_who_is_gone_is_remembered_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "DEPARTED_SECONDS", 0.01)
    told = cache()
    told.update(update(brokers=(live(1),)))
    assert list(told.brokers) == [1]
    assert [broker.id for broker in told.brokers_and_departed()] == [1, 2]
    async with asyncio.timeout(30):
        while len(told.brokers_and_departed()) > 1:
            await asyncio.sleep(0.001)


async def test_who_is_back_is_there_once() -> None:
    told = cache()
    told.update(update(brokers=(live(1),)))
    told.update(update(brokers=(live(1), live(2))))
    assert [broker.id for broker in told.brokers_and_departed()] == [1, 2]


async def test_who_asks_for_what_a_doubtful_leader_leads_waits_for_the_news() -> None:
    told = cache(state(0, leader=2))
    told.mark_suspect(BrokerId(2))
    waiting = asyncio.create_task(told.wait_for_suspect_leaders(["orders"]))
    await asyncio.sleep(0)
    assert not waiting.done()
    await told.wait_for_suspect_leaders(["payments"])  # nobody doubts those
    told.update(update(state(0, leader=1), brokers=(live(1),)))
    async with asyncio.timeout(30):
        await waiting


async def test_a_doubt_does_not_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "SUSPECT_SECONDS", 0.01)
    told = cache(state(0, leader=2))
    told.mark_suspect(BrokerId(7))
    assert not told.suspects, "nobody knows it"
    told.mark_suspect(BrokerId(2))
    told.mark_suspect(BrokerId(2))
    async with asyncio.timeout(30):
        await told.wait_for_suspect_leaders(["orders"])
        while told.suspects:
            await asyncio.sleep(0.001)
