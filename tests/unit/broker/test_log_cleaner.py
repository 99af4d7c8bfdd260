"""Compaction beside everything else that may happen to a log while it is being cleaned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from barnabas.broker.log_cleaner import LogCleaner
from barnabas.config import TopicConfig
from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.storage import checkpoints
from barnabas.storage.compaction import NEVER_CLEANED
from barnabas.storage.log import Log
from barnabas.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.wire.records import Record, batch_headers, build_batch, read_header, records
from tests.unit.replication.nodes import NOW_MS, TOPIC, Node, Nodes, StandingClock

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


class Interrupted(LogCleaner):
    """Something happens between two steps of the first cleaning, after so many of them."""

    def __init__(self, node: Node, happens: Callable[[], None] = lambda: None, after: int = 0):
        super().__init__(node.config, node.replicas, StandingClock())
        self.happens = happens
        self.left = after

    def sleep_after(self, size: int, took: float) -> float:
        if self.left == 0:
            self.happens()
        self.left -= 1
        return 0.0


def fill(node: Node, index: int = 0, count: int = RECORDS) -> None:
    """One record per batch, a few keys over and over."""
    for number in range(count):
        data = memoryview(
            bytearray(build_batch([Record(0, NOW_MS, b"%d" % (number % KEYS), b"v%d" % number)]))
        )
        node.partition(index).append(data, read_header(data), acks=1, now_ms=NOW_MS)


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


def assert_sound(log: Log) -> None:
    """Nothing of a cleaning is left, and every index leads to its record."""
    assert not [name for name in names(log) if name.endswith((".cleaned", ".swap"))]
    for offset, row in read_all(log).items():
        (part,) = log.read(offset, 100_000, log.log_end_offset).slices
        data = memoryview(part.file.read(part.position, part.size))
        assert next(iter(records(data))).key == row[0]


async def test_the_dirtiest_log_is_cleaned_first_and_the_checkpoint_tells(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node, 0, 80)
    fill(node, 1, 300)
    node.partition(0).log.cleaned_to = node.partition(0).log.segments[1].base_offset
    log = node.partition(1).log
    before = last_values(log)
    cleaner = LogCleaner(node.config, node.replicas, StandingClock())
    assert await cleaner.clean_dirtiest()
    assert last_values(log) == before
    assert len(read_all(log)) < 60
    assert node.partition(0).log.size_bytes > 4000
    text = Path(node.directory, checkpoints.CLEANED_TO).read_bytes()
    assert (
        checkpoints.decode_offsets(text).offsets[TopicPartition(TOPIC, 1)]
        == log.segments.active.base_offset
    )
    assert_sound(log)
    assert await cleaner.clean_dirtiest(), "then the other one"
    assert not await cleaner.clean_dirtiest(), "then there is nothing to do"


async def test_segments_that_have_become_small_become_one(nodes: Nodes) -> None:
    node = nodes[1]
    log = node.partition().log
    cleaner = LogCleaner(node.config, node.replicas, StandingClock())
    for _ in range(2):
        fill(node)
        assert await cleaner.clean_dirtiest()
    assert len(log.segments) < 15, "those of the first round have little left in them"
    assert log.segments.bases == [segment.base_offset for segment in log.segments]
    assert log.segments.closed_bytes == sum(segment.size for segment in log.segments[:-1])
    assert_sound(log)


async def test_who_still_reads_a_replaced_segment_reads_on(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log
    (part,) = log.read(0, 1500, log.log_end_offset).slices
    before = part.file.read(part.position, part.size)
    assert await LogCleaner(node.config, node.replicas, StandingClock()).clean_dirtiest()
    node.disk.descriptors = 1
    node.disk.close_idle_files()
    node.disk.descriptors = 100
    assert part.file.read(part.position, part.size) == before, "found under its new name"
    assert [name for name in names(log) if name.endswith(".deleted")]
    log.purge(NOW_MS)
    assert not [name for name in names(log) if name.endswith(".deleted")]
    assert_sound(log)


async def test_two_cleanings_in_a_row_do_not_mix_up_what_is_still_being_read(nodes: Nodes) -> None:
    node = nodes[1]
    log = node.partition().log
    log.use_config(replace(COMPACT, file_delete_delay_ms=60_000))
    cleaner = LogCleaner(node.config, node.replicas, StandingClock())
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
    assert_sound(log)


async def test_a_cut_stops_a_cleaning_and_the_next_one_works(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log

    def cut() -> None:
        log.truncate_to(130, NOW_MS)
        fill(node, count=20)

    cleaner = Interrupted(node, cut, after=3)
    assert not await cleaner.clean_dirtiest()
    assert_sound(log)
    assert set(read_all(log)) == set(range(150)), "nothing was replaced"
    before = last_values(log)
    assert await cleaner.clean_dirtiest()
    assert last_values(log) == before


async def test_deleting_the_topic_stops_a_cleaning(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log

    def delete() -> None:
        node.replicas.stop_replica(TopicPartition(TOPIC, 0), delete=True)

    assert not await Interrupted(node, delete, after=3).clean_dirtiest()
    assert names(log) == []
    assert not node.logs.offline


async def test_a_topic_deleted_and_made_anew_is_not_given_the_old_one_s_records(
    nodes: Nodes,
) -> None:
    node = nodes[1]
    fill(node)
    task = asyncio.create_task(Interrupted(node).clean_dirtiest())
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
    assert_sound(log)
    assert not node.logs.offline


async def test_a_broken_disk_stops_a_cleaning(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)

    def break_disk() -> None:
        node.logs.mark_offline(node.directory, StorageError(node.directory, "broken"))

    cleaner = Interrupted(node, break_disk, after=3)
    assert not await cleaner.clean_dirtiest()
    assert node.partition().is_offline
    assert not await cleaner.clean_dirtiest(), "there is nothing left to clean"


async def test_another_policy_stops_a_cleaning(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log
    cleaner = Interrupted(node, lambda: log.use_config(TopicConfig()), after=3)
    assert not await cleaner.clean_dirtiest()
    assert len(read_all(log)) == RECORDS
    assert_sound(log)


async def test_deleted_segments_do_not_come_back_by_a_cleaning(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log

    def delete_records() -> None:
        log.advance_log_start(100)
        assert log.delete_old_segments(NOW_MS) > 1

    cleaner = Interrupted(node, delete_records, after=3)
    assert not await cleaner.clean_dirtiest()
    assert log.log_start_offset == 100
    assert min(read_all(log)) == 100
    assert_sound(log)
    before = last_values(log)
    assert await cleaner.clean_dirtiest()
    assert last_values(log) == before


@pytest.mark.parametrize("after", [0, 3, 9])
async def test_appends_and_a_change_of_leader_do_not_stop_a_cleaning(
    nodes: Nodes, after: int
) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log

    def go_on() -> None:
        node.partition().stop_leading()
        node.partition().leader = node.id
        fill(node, count=100)

    assert await Interrupted(node, go_on, after).clean_dirtiest()
    assert log.log_end_offset == RECORDS + 100
    assert last_values(log) == {
        b"%d" % (number % KEYS): b"v%d" % number for number in range(100 - KEYS, 100)
    }
    assert_sound(log)


async def test_a_broker_that_stops_in_the_middle_leaves_nothing_behind(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log
    reached = asyncio.Event()
    cleaner = Interrupted(node, reached.set, after=4)
    task = asyncio.create_task(cleaner.clean_dirtiest())
    await reached.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert_sound(log)
    assert not log.is_rewritten


async def test_a_damaged_segment_is_not_written_anew_with_a_right_checksum(nodes: Nodes) -> None:
    node = nodes[1]
    fill(node)
    log = node.partition().log
    path = Path(log.segments[2].log.path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    cleaner = LogCleaner(node.config, node.replicas, StandingClock())
    assert not await cleaner.clean_dirtiest()
    assert path.read_bytes() == data
    assert not node.logs.offline
    assert cleaner.failed_logs, "and it is not tried again and again"
    assert await cleaner.find_dirtiest() is None


async def test_the_last_record_of_a_log_stays_even_if_nothing_has_followed_it(
    nodes: Nodes,
) -> None:
    node = nodes[1]
    log = node.partition().log
    log.use_config(replace(COMPACT, delete_retention_ms=0, min_cleanable_dirty_ratio=0.0))
    fill(node, count=100)
    data = memoryview(bytearray(build_batch([Record(0, NOW_MS, b"0", None)])))
    node.partition().append(data, read_header(data), acks=1, now_ms=NOW_MS)
    log.roll(NOW_MS)
    cleaner = LogCleaner(node.config, node.replicas, StandingClock())
    for _ in range(3):
        assert await cleaner.clean_dirtiest()
        log.cleaned_to = NEVER_CLEANED
    assert len(read_all(log)) < 40
    assert max(read_all(log)) == 100


async def test_compact_delete_also_forgets_by_size(nodes: Nodes) -> None:
    node = nodes[1]
    log = node.partition().log
    both = replace(COMPACT, cleanup_policy=("compact", "delete"), retention_bytes=5000)
    log.use_config(both)
    fill(node)
    await LogCleaner(node.config, node.replicas, StandingClock()).delete_old_segments()
    assert log.size_bytes < 7001
    assert log.log_start_offset > 100


async def test_a_log_that_was_compacted_may_have_holes_when_it_no_longer_is(nodes: Nodes) -> None:
    node = nodes[1]
    log = node.partition().log
    fill(node, count=100)
    log.roll(NOW_MS)
    for number in range(60):  # all of one key, so that whole segments are left empty
        data = memoryview(bytearray(build_batch([Record(0, NOW_MS, b"0", b"%d" % number)])))
        node.partition().append(data, read_header(data), acks=1, now_ms=NOW_MS)
    log.use_config(replace(COMPACT, segment_bytes=500))  # nothing is merged
    cleaner = LogCleaner(node.config, node.replicas, StandingClock())
    assert await cleaner.clean_dirtiest()
    before = read_all(log)
    node.topics.config = replace(TopicConfig(), segment_bytes=500)
    await node.stop()  # as a kill would, so that everything is read again
    await node.start()
    assert read_all(node.logs.logs[TopicPartition(TOPIC, 0)]) == before
