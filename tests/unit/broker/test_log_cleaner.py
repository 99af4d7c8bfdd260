"""Log compaction while other operations change the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from barnabas.batch.header import BatchHeader, batch_headers
from barnabas.batch.records import Record, build_batch, records
from barnabas.broker.log_cleaner import LogCleaner
from barnabas.config import TopicConfig
from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.replication.partition import Partition
from barnabas.storage import checkpoints
from barnabas.storage.compaction import NEVER_CLEANED, CleanableRange
from barnabas.storage.log import Log
from barnabas.tasks import Tasks
from barnabas.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tests.unit.replication.nodes import NOW_MS, TOPIC, FixedClock, Node, Nodes

COMPACT = replace(
    TopicConfig(), cleanup_policy=("compact",), segment_bytes=2000, file_delete_delay_ms=0
)
KEYS = 7
RECORDS = 300


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    made = Nodes(Node(1))
    made[1].topics.config = COMPACT
    await made.start()
    await made.lead(1, partitions=2)
    yield made
    await made.stop()


class InterruptedCleaner(LogCleaner):
    """Cleaner that calls `action` between two steps of the first cleaning, after `after` steps."""

    def __init__(self, node: Node, action: Callable[[], None] = lambda: None, after: int = 0):
        super().__init__(node.config, node.replicas, FixedClock())
        self.action = action
        self.left = after

    def sleep_after(self, size: int, took: float) -> float:
        if self.left == 0:
            self.action()
        self.left -= 1
        return 0.0


def fill(node: Node, index: int = 0, count: int = RECORDS) -> None:
    """Append one record per batch, cycling through a few keys."""
    for number in range(count):
        data = memoryview(
            bytearray(build_batch([Record(0, NOW_MS, b"%d" % (number % KEYS), b"v%d" % number)]))
        )
        node.partition(index).append(data, BatchHeader(data), acks=1, now_ms=NOW_MS)


def read_all(log: Log) -> dict[int, tuple[bytes | None, bytes | None]]:
    found = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        (part,) = log.read(offset, 500, log.log_end_offset).slices
        data = memoryview(part.file.read(part.position, part.size))
        following = offset
        for position, header in batch_headers(data):
            for record in records(data[position : position + header.size]):
                if record.offset >= offset:
                    found[record.offset] = (record.key, record.value)
            following = header.next_offset
        offset = following
    return found


def last_values(log: Log) -> dict[bytes | None, bytes | None]:
    return {key: value for _, (key, value) in sorted(read_all(log).items())}


def names(log: Log) -> list[str]:
    directory = Path(log.directory)
    return sorted(each.name for each in directory.iterdir()) if directory.exists() else []


def assert_consistent(log: Log) -> None:
    """Check that no temporary file of a cleaning is left and every index entry leads to its record."""
    assert not [name for name in names(log) if name.endswith((".cleaned", ".swap"))]
    for offset, row in read_all(log).items():
        (part,) = log.read(offset, 100_000, log.log_end_offset).slices
        data = memoryview(part.file.read(part.position, part.size))
        assert next(iter(records(data))).key == row[0]


async def test_dirtiest_log_is_cleaned_first_and_checkpointed(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node, 0, 80)
    fill(node, 1, 300)
    node.partition(0).log.cleaned_to = node.partition(0).log.segments[1].base_offset
    log = node.partition(1).log
    before = last_values(log)
    cleaner = LogCleaner(node.config, node.replicas, FixedClock())
    assert await cleaner.clean_dirtiest()
    assert last_values(log) == before
    assert len(read_all(log)) < 60
    assert node.partition(0).log.size_bytes > 4000
    text = Path(node.directory, checkpoints.CLEANED_TO).read_bytes()
    assert (
        checkpoints.decode_offsets(text).offsets[TopicPartition(TOPIC, 1)]
        == log.segments.active.base_offset
    )
    assert_consistent(log)
    assert await cleaner.clean_dirtiest(), "the other log is cleaned next"
    assert not await cleaner.clean_dirtiest(), "both logs are clean"


async def test_small_segments_are_merged(nodes: Nodes) -> None:
    node = nodes[1]
    log = node.partition().log
    cleaner = LogCleaner(node.config, node.replicas, FixedClock())
    for _ in range(2):
        fill(node)
        assert await cleaner.clean_dirtiest()
    assert len(log.segments) < 15, "the segments of the first round are nearly empty"
    assert log.segments.bases == [segment.base_offset for segment in log.segments]
    assert log.segments.closed_bytes == sum(segment.size for segment in log.segments[:-1])
    assert_consistent(log)


async def test_reader_of_replaced_segment_continues(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log
    (part,) = log.read(0, 1500, log.log_end_offset).slices
    before = part.file.read(part.position, part.size)
    assert await LogCleaner(node.config, node.replicas, FixedClock()).clean_dirtiest()
    node.disk.descriptors = 1
    node.disk.close_idle_files()
    node.disk.descriptors = 100
    assert part.file.read(part.position, part.size) == before, "read from the renamed file"
    assert [name for name in names(log) if name.endswith(".deleted")]
    log.purge(NOW_MS)
    assert not [name for name in names(log) if name.endswith(".deleted")]
    assert_consistent(log)


async def test_readers_survive_several_cleanings(nodes: Nodes) -> None:
    node = nodes[1]
    log = node.partition().log
    log.use_config(replace(COMPACT, file_delete_delay_ms=60_000))
    cleaner = LogCleaner(node.config, node.replicas, FixedClock())
    parts = []
    for _ in range(3):
        fill(node)
        (part,) = log.read(0, 1500, log.log_end_offset).slices
        parts.append((part, part.file.read(part.position, part.size)))
        assert await cleaner.clean_dirtiest()
    node.disk.descriptors = 1
    node.disk.close_idle_files()
    node.disk.descriptors = 100
    for part, before in parts:
        assert part.file.read(part.position, part.size) == before
    assert len({part.file.path for part, _ in parts}) == 3
    log.purge(NOW_MS + 60_000)
    assert not [name for name in names(log) if name.endswith(".deleted")]
    assert_consistent(log)


async def test_truncation_aborts_cleaning_and_next_one_succeeds(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log

    def truncate() -> None:
        log.truncate_to(130, NOW_MS)
        fill(node, count=20)

    cleaner = InterruptedCleaner(node, truncate, after=3)
    assert not await cleaner.clean_dirtiest()
    assert_consistent(log)
    assert set(read_all(log)) == set(range(150)), "nothing was replaced"
    before = last_values(log)
    assert await cleaner.clean_dirtiest()
    assert last_values(log) == before


async def test_topic_deletion_aborts_cleaning(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log

    def delete() -> None:
        node.replicas.stop_replica(TopicPartition(TOPIC, 0), delete=True)

    assert not await InterruptedCleaner(node, delete, after=3).clean_dirtiest()
    assert names(log) == []
    assert not node.logs.offline


async def test_recreated_topic_gets_no_records_of_the_old_one(
    nodes: Nodes,
) -> None:
    node = nodes[1]
    fill(node)
    task = asyncio.create_task(InterruptedCleaner(node).clean_dirtiest())
    await asyncio.sleep(0)
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
    await node.stop_replica(
        StopReplicaRequest(
            controller_id=1,
            controller_epoch=1,
            topic_states=(StopReplicaTopicState(TOPIC, (state,)),),
        )
    )
    await nodes.lead(1)
    fill(node, count=20)
    assert not await task
    log = node.partition().log
    assert set(read_all(log)) == set(range(20))
    assert_consistent(log)
    assert not node.logs.offline


async def test_broken_disk_aborts_cleaning(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)

    def break_disk() -> None:
        node.logs.mark_offline(node.directory, StorageError(node.directory, "broken"))

    cleaner = InterruptedCleaner(node, break_disk, after=3)
    assert not await cleaner.clean_dirtiest()
    assert node.partition().is_offline
    assert not await cleaner.clean_dirtiest(), "there is nothing left to clean"


async def test_policy_change_aborts_cleaning(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log
    cleaner = InterruptedCleaner(node, lambda: log.use_config(TopicConfig()), after=3)
    assert not await cleaner.clean_dirtiest()
    assert len(read_all(log)) == RECORDS
    assert_consistent(log)


async def test_cleaning_does_not_restore_deleted_segments(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log

    def delete_records() -> None:
        log.advance_log_start(100)
        assert log.delete_old_segments(NOW_MS) > 1

    cleaner = InterruptedCleaner(node, delete_records, after=3)
    assert not await cleaner.clean_dirtiest()
    assert log.log_start_offset == 100
    assert min(read_all(log)) == 100
    assert_consistent(log)
    before = last_values(log)
    assert await cleaner.clean_dirtiest()
    assert last_values(log) == before


@pytest.mark.parametrize("after", [0, 3, 9])
async def test_appends_and_leader_change_do_not_abort_cleaning(nodes: Nodes, after: int) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log

    def append_more() -> None:
        node.partition().stop_leading()
        node.partition().leader = node.id
        fill(node, count=100)

    assert await InterruptedCleaner(node, append_more, after).clean_dirtiest()
    assert log.log_end_offset == RECORDS + 100
    assert last_values(log) == {
        b"%d" % (number % KEYS): b"v%d" % number for number in range(100 - KEYS, 100)
    }
    assert_consistent(log)


async def test_cancelled_cleaning_leaves_no_files(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log
    reached = asyncio.Event()
    cleaner = InterruptedCleaner(node, reached.set, after=4)
    task = asyncio.create_task(cleaner.clean_dirtiest())
    await reached.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert_consistent(log)
    assert not log.is_being_rewritten


async def test_corrupt_segment_is_not_rewritten(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log
    path = Path(log.segments[2].log.path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    cleaner = LogCleaner(node.config, node.replicas, FixedClock())
    assert not await cleaner.clean_dirtiest()
    assert path.read_bytes() == data
    assert not node.logs.offline
    assert cleaner.failed_logs, "it is not retried"
    assert await cleaner.find_dirtiest() is None


async def test_log_with_unexpected_error_does_not_block_others(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    node = nodes[1]
    fill(node, 0, 80)
    fill(node, 1, 300)
    other, broken = node.partition(0).log, node.partition(1).log
    other.cleaned_to = first_dirty = other.segments[1].base_offset
    attempts = 0

    class BuggyCleaner(LogCleaner):
        async def clean(self, partition: Partition, log: Log, cleanable: CleanableRange) -> bool:
            nonlocal attempts
            if log is broken:
                attempts += 1
                raise ValueError("a bug")
            return await super().clean(partition, log, cleanable)

    config = replace(node.config, log_cleaner_backoff_ms=10)
    cleaner = BuggyCleaner(config, node.replicas, FixedClock())
    best = await cleaner.find_dirtiest()
    assert best is not None
    assert best[0].log is broken
    task = asyncio.create_task(cleaner.run())
    async with asyncio.timeout(30):
        while other.cleaned_to == first_dirty or attempts < 3:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "a bug" in caplog.text
    assert not broken.is_being_rewritten


async def test_last_record_of_log_is_kept(
    nodes: Nodes,
) -> None:
    node = nodes[1]
    log = node.partition().log
    log.use_config(replace(COMPACT, delete_retention_ms=0, min_cleanable_dirty_ratio=0.0))
    fill(node, count=100)
    data = memoryview(bytearray(build_batch([Record(0, NOW_MS, b"0", None)])))
    node.partition().append(data, BatchHeader(data), acks=1, now_ms=NOW_MS)
    log.roll(NOW_MS)
    cleaner = LogCleaner(node.config, node.replicas, FixedClock())
    for _ in range(3):
        assert await cleaner.clean_dirtiest()
        log.cleaned_to = NEVER_CLEANED
    assert len(read_all(log)) < 40
    assert max(read_all(log)) == 100


async def test_compact_delete_also_deletes_by_size(nodes: Nodes) -> None:
    node = nodes[1]
    log = node.partition().log
    both = replace(COMPACT, cleanup_policy=("compact", "delete"), retention_bytes=5000)
    log.use_config(both)
    fill(node)
    await LogCleaner(node.config, node.replicas, FixedClock()).delete_old_segments()
    assert log.size_bytes < 7001
    assert log.log_start_offset > 100


async def test_gaps_of_compacted_log_survive_policy_change(nodes: Nodes) -> None:
    node = nodes[1]
    log = node.partition().log
    fill(node, count=100)
    log.roll(NOW_MS)
    for number in range(60):  # all records have one key, so that whole segments become empty
        data = memoryview(bytearray(build_batch([Record(0, NOW_MS, b"0", b"%d" % number)])))
        node.partition().append(data, BatchHeader(data), acks=1, now_ms=NOW_MS)
    log.use_config(replace(COMPACT, segment_bytes=500))  # segments are not merged
    cleaner = LogCleaner(node.config, node.replicas, FixedClock())
    assert await cleaner.clean_dirtiest()
    before = read_all(log)
    node.topics.config = replace(TopicConfig(), segment_bytes=500)
    await node.stop()  # without a clean shutdown, so that recovery reads everything again
    await node.start()
    assert read_all(node.logs.logs[TopicPartition(TOPIC, 0)]) == before


async def test_number_of_tasks_follows_the_setting(nodes: Nodes) -> None:
    node = nodes[1]
    config = replace(node.config, log_cleaner_threads=2, log_cleaner_backoff_ms=0)
    cleaner = LogCleaner(config, node.replicas, FixedClock())
    tasks = Tasks()
    try:
        cleaner.start(tasks)
        assert cleaner.running == {0, 1}
        for count in (4, 1, 2):
            cleaner.reconfigure(config, replace(config, log_cleaner_threads=count))
            async with asyncio.timeout(20):
                while len(cleaner.running) != count:
                    await asyncio.sleep(0.001)
            assert (len(tasks.running), cleaner.running) == (count, set(range(count)))
    finally:
        await tasks.stop()
