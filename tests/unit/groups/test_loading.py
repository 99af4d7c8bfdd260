"""Loading the groups of a partition from its log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import cast

import pytest
from msgspec.structs import replace

from barnabas.batch.header import BatchHeader
from barnabas.batch.records import Record, build_batch
from barnabas.broker.log_cleaner import LogCleaner
from barnabas.config import TopicConfig
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.consumer_records import (
    ConsumerGroupEpochKey,
    ConsumerGroupEpochValue,
    ConsumerRecord,
    encode_consumer_record,
)
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.group import Group
from barnabas.groups.loading import GroupLoader, LatestRecords
from barnabas.groups.records import (
    GroupMetadataValue,
    KeyValue,
    OffsetCommitValue,
    group_metadata_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from barnabas.groups.store import GroupStore
from barnabas.model import TopicPartition
from barnabas.replication import internal_topic_loader
from barnabas.replication.internal_topic_loader import RECORDS_PER_YIELD, PartitionLoad
from barnabas.tasks import Tasks
from tests.unit.replication.nodes import NOW_MS, TOPIC, FixedClock, Node, Nodes, eventually

COMPACT = replace(
    TopicConfig(), cleanup_policy=("compact",), segment_bytes=4000, file_delete_delay_ms=0
)
SNAPSHOT = GroupMetadataValue("consumer", 4, None, None, NOW_MS)
COMMIT = bytes.fromhex("00000001")
ABORT = bytes.fromhex("00000000")
UNKNOWN_KEY = bytes.fromhex("0009 0003 617070")


class FakeCoordinator:
    """Receives the loaded groups in place of the coordinator."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.dropped: list[int] = []

    def add_loaded_group(self, group: Group, partition: int) -> None:
        self.groups[group.group_id] = group

    def drop_partition(self, partition: int) -> None:
        self.dropped.append(partition)
        self.groups.clear()

    def offsets(self, group_id: str = "app") -> dict[TopicPartition, int]:
        committed = self.groups[group_id].offsets.committed
        return {partition: value.offset for partition, value in committed.items()}


class LoadingBroker:
    """Broker with group records in its logs, and the loader that reads them."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.node = nodes[1]
        self.coordinator = FakeCoordinator()
        node = self.node
        self.store = GroupStore(node.config, node.replicas, node.metadata, FixedClock())
        self.loader = GroupLoader(self.store, cast(GroupCoordinator, self.coordinator))
        self.tasks = Tasks()
        self.epochs = count(1)

    def append(self, *written: KeyValue, index: int = 0, **options: object) -> None:
        batch = build_batch(
            [Record(at, NOW_MS, key, value) for at, (key, value) in enumerate(written)],
            **options,  # type: ignore[arg-type]
        )
        data = memoryview(bytearray(batch))
        self.node.partition(index).append(data, BatchHeader(data), acks=1, now_ms=NOW_MS)

    def listen(self) -> None:
        self.node.replicas.on_leadership[TOPIC] = self.loader.leadership_changed
        self.tasks.start("load", self.loader.run())

    async def load(self) -> FakeCoordinator:
        """Become leader in a new epoch and wait until the partition is loaded."""
        self.listen()
        await self.nodes.lead(1, epoch=next(self.epochs))
        assert 0 in self.store.loading
        await eventually(lambda: self.store.is_led(0))
        assert 0 not in self.store.loading
        return self.coordinator


@pytest.fixture
async def loading() -> AsyncIterator[LoadingBroker]:
    nodes = Nodes(Node(1))
    nodes[1].topics.config = COMPACT
    await nodes.start()
    await nodes.lead(1, partitions=2)
    made = LoadingBroker(nodes)
    yield made
    await made.tasks.stop()
    await nodes.stop()


def commit(offset: int, partition: int = 0, group_id: str = "app") -> KeyValue:
    return offset_record(group_id, "orders", partition, OffsetCommitValue(offset, -1, "", NOW_MS))


async def test_responses_of_loaded_consumer_group_wait_for_all_loaded_records(
    loading: LoadingBroker,
) -> None:
    epoch = ConsumerRecord(ConsumerGroupEpochKey("app"), ConsumerGroupEpochValue(3))
    loading.append(encode_consumer_record(epoch))
    loading.append(commit(1, group_id="other"))
    groups = cast("dict[str, ConsumerGroup]", (await loading.load()).groups)
    group = groups["app"]
    assert group.end_offset == 2


async def test_last_record_of_each_key_counts(loading: LoadingBroker) -> None:
    loading.append(commit(1), commit(1, partition=1))
    loading.append(commit(2), commit(9, group_id="other"))
    loading.append(group_metadata_record("app", SNAPSHOT._replace(generation=3)))
    loading.append(group_metadata_record("app", SNAPSHOT))
    coordinator = await loading.load()
    assert coordinator.offsets() == {("orders", 0): 2, ("orders", 1): 1}
    assert coordinator.groups["app"].snapshot() == SNAPSHOT
    assert coordinator.offsets("other") == {("orders", 0): 9}
    assert coordinator.groups["other"].protocol_type is None


async def test_tombstones_remove_offsets_and_groups(loading: LoadingBroker) -> None:
    loading.append(commit(1), commit(1, partition=1), group_metadata_record("app", SNAPSHOT))
    loading.append(commit(5, group_id="gone"))
    loading.append(offset_tombstone("app", "orders", 0), offset_tombstone("gone", "orders", 0))
    loading.append(group_tombstone("app"))
    coordinator = await loading.load()
    assert coordinator.offsets() == {("orders", 1): 1}
    assert coordinator.groups["app"].protocol_type is None
    assert "gone" not in coordinator.groups


async def test_transactional_offsets_count_if_committed(loading: LoadingBroker) -> None:
    loading.append(commit(1), commit(1, partition=1), commit(1, partition=2))
    for producer, partition in ((7, 0), (8, 1), (9, 2)):
        append_in_transaction(loading, producer, commit(2, partition=partition))
    for producer, marker in ((7, COMMIT), (8, ABORT)):
        append_marker(loading, producer, marker)
    coordinator = await loading.load()
    assert coordinator.offsets() == {("orders", 0): 2, ("orders", 1): 1, ("orders", 2): 1}


async def test_deleting_offset_discards_commits_of_open_transactions(
    loading: LoadingBroker,
) -> None:
    loading.append(commit(1, partition=2))
    append_in_transaction(loading, 7, commit(2), commit(2, partition=1), commit(2, partition=2))
    append_in_transaction(loading, 8, commit(3, partition=1))
    loading.append(offset_tombstone("app", "orders", 0), offset_tombstone("app", "orders", 1))
    append_marker(loading, 7, COMMIT)
    coordinator = await loading.load()
    assert coordinator.offsets() == {("orders", 2): 2}
    assert not coordinator.groups["app"].offsets.pending


def append_in_transaction(loading: LoadingBroker, producer: int, *written: KeyValue) -> None:
    loading.append(
        *written, producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True
    )


def append_marker(loading: LoadingBroker, producer: int, marker: bytes) -> None:
    sequence = loading.node.partition().log.producers.by_id[producer].next_sequence
    loading.append(
        (marker, b"\x00\x00\x00\x00\x00\x00"),
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,  # the loader ignores it, but an append checks it
        is_transactional=True,
        is_control=True,
    )


async def test_unknown_records_are_skipped(loading: LoadingBroker) -> None:
    loading.append((UNKNOWN_KEY, b"?"), (b"\x00\x01\x00", b"?"), commit(3))
    loading.append((commit(4, partition=1)[0], b"\x00\x63"))
    coordinator = await loading.load()
    assert coordinator.offsets() == {("orders", 0): 3}


async def test_corrupt_batch_is_skipped(loading: LoadingBroker) -> None:
    loading.append(commit(1))
    damaged_at = loading.node.partition().log.segments.active.size
    loading.append(commit(2))
    loading.append(commit(3, partition=1))
    path = loading.node.partition().log.segments.active.log.path
    with open(path, "r+b") as file:  # noqa: PTH123
        file.seek(damaged_at + 70)
        file.write(b"\xff")
    coordinator = await loading.load()
    assert coordinator.offsets() == {("orders", 0): 1, ("orders", 1): 3}


async def test_corrupt_batch_is_repaired_from_another_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(internal_topic_loader, "REPAIR_RETRY_SECONDS", 0.5)
    nodes = Nodes(Node(1), Node(2))
    nodes[1].topics.config = nodes[2].topics.config = COMPACT
    await nodes.start()
    await nodes.lead(1)
    await nodes.send_metadata(partitions=1)
    loading = LoadingBroker(nodes)
    loading.append(commit(1))
    damaged_at = loading.node.partition().log.segments.active.size
    loading.append(commit(2))
    log = loading.node.partition().log
    await eventually(lambda: log.high_watermark == 2)
    with open(log.segments.active.log.path, "r+b") as file:  # noqa: PTH123
        file.seek(damaged_at + 70)
        file.write(b"\xff")
    try:
        coordinator = await loading.load()
        assert coordinator.offsets() == {("orders", 0): 2}
    finally:
        await loading.tasks.stop()
        await nodes.stop()


async def test_lost_partition_is_dropped_and_reloaded(loading: LoadingBroker) -> None:
    loading.append(commit(1))
    coordinator = await loading.load()
    loading.node.partition().stop_leading()
    loading.node.replicas.notify_leadership(loading.node.partition())
    assert coordinator.dropped == [0]
    assert not loading.store.is_led(0)
    await loading.nodes.lead(1, epoch=next(loading.epochs))
    await eventually(lambda: loading.store.is_led(0))
    assert coordinator.offsets() == {("orders", 0): 1}


async def test_new_epoch_of_same_leader_reloads_nothing(loading: LoadingBroker) -> None:
    loading.append(commit(1))
    coordinator = await loading.load()
    before = dict(coordinator.groups)
    await loading.nodes.lead(1, epoch=next(loading.epochs))
    assert loading.store.is_led(0)
    assert coordinator.groups == before


async def test_leadership_lost_during_loading_leaves_nothing(
    loading: LoadingBroker,
) -> None:
    for number in range(3):
        loading.append(commit(number, group_id=f"group-{number}"))
    seen: list[Group] = []

    def take(group: Group, partition: int) -> None:
        """Lose the leadership after the first group."""
        seen.append(group)
        loading.node.partition().stop_leading()
        loading.node.replicas.notify_leadership(loading.node.partition())

    loading.coordinator.add_loaded_group = take  # type: ignore[method-assign]
    loading.listen()
    await loading.nodes.lead(1, epoch=next(loading.epochs))
    await eventually(lambda: bool(loading.coordinator.dropped))
    await eventually(lambda: not loading.loader.loads)
    assert len(seen) == 1
    assert not loading.store.is_led(0)
    assert 0 not in loading.store.loading


async def test_leadership_regained_during_loading_starts_over(
    loading: LoadingBroker,
) -> None:
    """Another leader has truncated the log in between."""
    has_read, may_continue = asyncio.Event(), asyncio.Event()
    read_records = loading.loader.read_records

    async def read_slowly(load: PartitionLoad) -> LatestRecords:
        found = await read_records(load)
        has_read.set()
        await may_continue.wait()
        return found

    loading.loader.read_records = read_slowly  # type: ignore[method-assign]
    loading.append(commit(1))
    loading.listen()
    await loading.nodes.lead(1, epoch=next(loading.epochs))
    await has_read.wait()
    loading.node.partition().stop_leading()
    loading.node.replicas.notify_leadership(loading.node.partition())
    loading.node.partition().log.truncate_to(0)
    await loading.nodes.lead(1, epoch=next(loading.epochs))
    loading.append(commit(2, partition=1))
    may_continue.set()
    await eventually(lambda: loading.store.is_led(0))
    assert loading.coordinator.offsets() == {("orders", 1): 2}


async def test_loading_yields_to_the_event_loop(loading: LoadingBroker) -> None:
    for number in range(100):
        many = [commit(number, partition, f"group-{number}") for partition in range(20)]
        loading.append(*many)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 0 in loading.store.loading

    loading.tasks.start("look", count_turns())
    coordinator = await loading.load()
    assert len(coordinator.groups) == 100
    assert turns >= 2000 // RECORDS_PER_YIELD, "at most RECORDS_PER_TURN records per turn"


async def test_loading_and_compaction_do_not_interfere(
    loading: LoadingBroker,
) -> None:
    """The log is cleaned repeatedly while it is read in small pieces."""
    for number in range(150):
        loading.append(commit(number, number % 7), commit(number, group_id=f"group-{number % 5}"))
    loading.loader.buffer_bytes = 300
    cleaner = LogCleaner(loading.node.config, loading.node.replicas, FixedClock())
    cleaner.sleep_after = lambda size, took: 0.0  # type: ignore[method-assign]
    cleaned = 0

    async def clean() -> None:
        nonlocal cleaned
        while True:
            cleaned += await cleaner.clean_dirtiest()
            await asyncio.sleep(0)

    loading.tasks.start("clean", clean())
    coordinator = await loading.load()
    await eventually(lambda: cleaned > 0)
    assert coordinator.offsets() == {("orders", each): 149 - (149 - each) % 7 for each in range(7)}
    for each in range(5):
        assert coordinator.offsets(f"group-{each}") == {("orders", 0): 145 + each}
    assert (await load_again(loading)).offsets() == coordinator.offsets()


async def load_again(loading: LoadingBroker) -> FakeCoordinator:
    again = LoadingBroker(loading.nodes)
    again.epochs = loading.epochs
    try:
        return await again.load()
    finally:
        await again.tasks.stop()
