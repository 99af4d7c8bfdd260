"""Partition of a group, and appends to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from msgspec.structs import replace

from barnabas.batch.compression import Compression
from barnabas.batch.header import BatchHeader
from barnabas.batch.records import records
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.records import KeyValue
from barnabas.groups.store import GROUP_ERROR_CODES, GroupStore, partition_of, translate_error
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.wire.java_hash import java_string_hash
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tests.unit.replication.nodes import FixedClock, Node, Nodes

RECORDS: list[KeyValue] = [(b"key", b"value"), (b"other", None)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("hello", 99162322),
        ("test", 3556498),
        ("Hello World", -862545276),
        ("polygenelubricants", -(2**31)),
        ("\N{GRINNING FACE}", 0xD83D * 31 + 0xDE00),
    ],
)
def test_hash_matches_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_group_maps_to_partition_by_hash() -> None:
    assert partition_of("test", 50) == 3556498 % 50
    assert partition_of("Hello World", 50) == 862545276 % 50
    assert partition_of("polygenelubricants", 50) == 0, "the minimum integer counts as 0"


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    made = Nodes(Node(1, offsets_topic_num_partitions=1, offsets_commit_timeout_ms=50))
    await made.start()
    yield made
    await made.stop()


def store_of(node: Node) -> GroupStore:
    return GroupStore(node.config, node.replicas, node.metadata, FixedClock())


async def lead(node: Node, *, replicas: tuple[int, ...] = (1,), epoch: int = 0) -> None:
    state = LeaderAndIsrPartitionState(
        partition_index=0, leader=1, leader_epoch=epoch, isr=replicas, replicas=replicas
    )
    topic = LeaderAndIsrTopicState(CONSUMER_OFFSETS, uuid4(), (state,))
    await node.leader_and_isr(
        LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=(topic,))
    )


async def test_records_are_appended_to_partition_of_group(nodes: Nodes) -> None:
    await lead(nodes[1])
    store = store_of(nodes[1])
    assert await append(store) == 0
    assert await append(store) == 2
    (part,) = nodes[1].partition(topic=CONSUMER_OFFSETS).log.read(0, 1 << 20, 4).slices
    found = list(records(memoryview(part.file.read(part.position, part.size))))
    assert [(each.key, each.value) for each in found] == RECORDS


async def test_records_use_configured_compression(nodes: Nodes) -> None:
    nodes[1].config = replace(nodes[1].config, offsets_topic_compression_codec=1)
    await lead(nodes[1])
    await append(store_of(nodes[1]))
    (part,) = nodes[1].partition(topic=CONSUMER_OFFSETS).log.read(0, 1 << 20, 2).slices
    batch = memoryview(part.file.read(part.position, part.size))
    assert BatchHeader(batch).compression == Compression.GZIP
    assert [(each.key, each.value) for each in records(batch)] == RECORDS


async def test_append_without_leadership_is_rejected(nodes: Nodes) -> None:
    store = store_of(nodes[1])
    assert await append_error(store) is ErrorCode.COORDINATOR_NOT_AVAILABLE, (
        "the topic does not exist yet"
    )
    await lead(nodes[1])
    nodes[1].partition(topic=CONSUMER_OFFSETS).stop_leading()
    assert await append_error(store) is ErrorCode.NOT_COORDINATOR


async def test_too_few_in_sync_replicas_map_to_coordinator_not_available(
    nodes: Nodes,
) -> None:
    nodes[1].topics.config = replace(nodes[1].topics.config, min_insync_replicas=2)
    await lead(nodes[1], replicas=(1, 2))
    partition = nodes[1].partition(topic=CONSUMER_OFFSETS)
    partition.isr = partition.isr[:1]
    assert await append_error(store_of(nodes[1])) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_replication_timeout_maps_to_rebalance_in_progress(nodes: Nodes) -> None:
    await lead(nodes[1], replicas=(1, 2))
    assert await append_error(store_of(nodes[1])) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_too_large_record_maps_to_unknown_server_error(nodes: Nodes) -> None:
    nodes[1].topics.config = replace(nodes[1].topics.config, max_message_bytes=80)
    await lead(nodes[1])
    assert await append_error(store_of(nodes[1])) is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_required_acks_1_waits_for_no_replica(nodes: Nodes) -> None:
    await lead(nodes[1], replicas=(1, 2))
    nodes[1].config = replace(nodes[1].config, offsets_commit_required_acks=1)
    assert await append(store_of(nodes[1])) == 0


async def test_wait_for_an_earlier_append(nodes: Nodes) -> None:
    await lead(nodes[1], replicas=(1, 2))
    store = store_of(nodes[1])
    await append_error(store)
    again = store.begin_wait("app", len(RECORDS))
    with pytest.raises(ApiError, match="REQUEST_TIMED_OUT"):
        await store.wait_for(again)
    nodes[1].partition(topic=CONSUMER_OFFSETS).log.high_watermark = len(RECORDS)
    assert store.begin_wait("app", len(RECORDS)).waits == []


async def test_required_acks_1_waits_for_no_earlier_append(nodes: Nodes) -> None:
    await lead(nodes[1], replicas=(1, 2))
    nodes[1].config = replace(nodes[1].config, offsets_commit_required_acks=1)
    store = store_of(nodes[1])
    await append(store)
    assert store.begin_wait("app", len(RECORDS)).waits == []


async def append(store: GroupStore) -> int:
    appended = store.begin_append("app", RECORDS)
    await store.wait_for(appended)
    return appended.first_offset


async def append_error(store: GroupStore) -> ErrorCode:
    """Return the error code of a rebalance."""
    with pytest.raises(ApiError) as refused:
        await append(store)
    return translate_error(refused.value, GROUP_ERROR_CODES).code
