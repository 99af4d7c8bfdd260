"""AlterReplicaLogDirs and DescribeLogDirs through the wire: moves between the log directories of one broker."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.batch.header import batch_headers
from barnabas.batch.records import Record, build_batch
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer
from barnabas.client.log_dir_admin import LogDirAdmin
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.apis import APIS
from barnabas.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from barnabas.wire.messages.fetch import FetchResponse
from barnabas.wire.messages.list_offsets import EARLIEST_TIMESTAMP
from support.waiting import eventually
from tests.compatibility.raw import (
    Raw,
    batch_of,
    fetch_request,
    partitions_of,
    recent_batch_of,
    values_in,
)
from tests.faulty_disk import failing

NAMES = (f"moved-{number}" for number in count())
SETTINGS = {
    "log.retention.ms": "-1",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
    "log.cleaner.backoff.ms": "20",
}
SLOW = {"replica.alter.log.dirs.io.max.bytes.per.second": "2000"}
"""A move of 100 kB takes a minute: it does not end during a test."""
UNUSED = "/no/such/directory"


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0",
}


class Directories:
    """One broker with three log directories, and requests about them."""

    def __init__(self, cluster: LocalCluster, raw: Raw) -> None:
        self.cluster = cluster
        self.raw = raw
        self.paths = cluster.brokers[1].config.log_dirs

    def alter(
        self, topic: str, directory: str, partition: int = 0, version: int | None = None
    ) -> ErrorCode:
        wanted = AlterReplicaLogDir(directory, (AlterReplicaLogDirTopic(topic, (partition,)),))
        request = AlterReplicaLogDirsRequest(dirs=(wanted,))
        answer = self.raw.ask(request, AlterReplicaLogDirsResponse, version)
        (found,) = answer.results
        assert found.topic_name == topic
        assert found.partitions[0].partition_index == partition
        return ErrorCode(found.partitions[0].error_code)

    def describe(self, topic: str) -> dict[str, list[DescribeLogDirsPartition]]:
        """The logs of the topic by directory. Directories without one are not included."""
        request = DescribeLogDirsRequest(topics=(DescribableLogDirTopic(topic, (0, 1, 2)),))
        answer = self.raw.ask(request, DescribeLogDirsResponse)
        return {
            result.log_dir: list(result.topics[0].partitions)
            for result in answer.results
            if result.topics
        }

    def failed(self) -> list[str]:
        """Directories that are offline."""
        answer = self.raw.ask(DescribeLogDirsRequest(topics=()), DescribeLogDirsResponse)
        return [result.log_dir for result in answer.results if result.error_code]

    def directory_of(self, topic: str) -> str:
        (path,) = [
            path
            for path, logs in self.describe(topic).items()
            if any(not log.is_future_key for log in logs)
        ]
        return path

    def other(self, topic: str) -> str:
        """A directory without a log of the topic."""
        return next(path for path in self.paths if path not in self.describe(topic))

    def wait_until_moved(self, topic: str, directory: str) -> None:
        eventually(lambda: list(self.describe(topic)) == [directory], "it has moved", 60)

    def is_moving(self, topic: str) -> bool:
        return len(self.describe(topic)) == 2

    def create(self, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        name = next(NAMES)
        self.raw.create_topic(name, partitions=partitions, configs=configs)
        return name

    def fill(self, topic: str, batches: int = 20, size: int = 5000) -> list[bytes | None]:
        values: list[bytes | None] = [b"%06d" % at + b"x" * size for at in range(batches)]
        for value in values:
            self.produce(topic, value)
        return values

    def produce(self, topic: str, *values: bytes | None) -> int:
        answer = self.raw.produce(topic, recent_batch_of(*values))
        assert answer.error_code == ErrorCode.NONE
        return answer.base_offset

    def read(self, topic: str, offset: int = 0) -> list[bytes | None]:
        found: list[bytes | None] = []
        while True:
            fetched = self.raw.fetch(topic, offset)
            assert fetched.error_code == ErrorCode.NONE
            if not fetched.records:
                return found
            found += values_in(fetched)
            *_, (_, last) = batch_headers(memoryview(fetched.records))
            offset = last.next_offset

    def start(self, topic: str) -> int:
        return self.raw.list_offset(topic, EARLIEST_TIMESTAMP).offset

    def delete_records(self, topic: str, before: int) -> None:
        wanted = DeleteRecordsTopic(topic, (DeleteRecordsPartition(0, before),))
        request = DeleteRecordsRequest(topics=(wanted,), timeout_ms=5000)
        answer = self.raw.ask(request, DeleteRecordsResponse)
        (result,) = answer.topics[0].partitions
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, before)

    def delete(self, topic: str) -> None:
        request = DeleteTopicsRequest(topics=(DeleteTopicState(topic),), timeout_ms=30_000)
        answer = self.raw.ask(request, DeleteTopicsResponse)
        assert answer.responses[0].error_code == ErrorCode.NONE

    def restart(self) -> None:
        """Kill the broker and start it again."""
        self.raw.close()
        self.cluster.brokers[1].kill()
        self.cluster.brokers[1].start()
        self.raw = Raw(self.cluster.bootstrap_servers)

    def on_disk(self, topic: str) -> list[str]:
        """Suffixes of the directories of the topic's partitions, without removed ones."""
        found = [entry.name for path in self.paths for entry in Path(path).glob(f"{topic}-*")]
        return sorted(name.rpartition("-")[2] for name in found if not name.endswith("-delete"))


def produce_keyed(directories: Directories, topic: str, key: bytes, value: bytes) -> None:
    batch = build_batch([Record(0, 1_700_000_000_000, key, value)])
    assert directories.raw.produce(topic, batch).error_code == ErrorCode.NONE


def run(tmp_path: Path, settings: dict[str, str]) -> Iterator[Directories]:
    dirs = ",".join(str(tmp_path / name) for name in ("one", "two", "three"))
    settings = {**SETTINGS, "log.dirs": dirs, **settings}
    with LocalCluster(data=tmp_path / "data", settings=settings) as cluster:
        directories = Directories(cluster, Raw(cluster.bootstrap_servers))
        try:
            yield directories
        finally:
            directories.raw.close()


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directories]:
    """A broker whose moves are not throttled."""
    yield from run(tmp_path_factory.mktemp("fast"), {})


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directories]:
    """A broker whose moves take longer than a test."""
    yield from run(tmp_path_factory.mktemp("slow"), SLOW)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Directories]:
    """A broker for one test, which breaks it."""
    yield from run(tmp_path, SLOW)


# ---- errors


def test_unknown_directory_is_rejected(fast: Directories) -> None:
    topic = fast.create()
    assert fast.alter(topic, UNUSED) is ErrorCode.LOG_DIR_NOT_FOUND
    assert fast.alter("nobody", UNUSED) is ErrorCode.LOG_DIR_NOT_FOUND
    assert fast.alter(topic, "") is ErrorCode.LOG_DIR_NOT_FOUND


def test_unknown_partition_is_rejected(fast: Directories) -> None:
    topic = fast.create()
    for name, partition in (("nobody", 0), (topic, 1), (topic, -1), ("a/b", 0), ("", 0)):
        code = fast.alter(name, fast.paths[0], partition)
        assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_long_topic_name_is_rejected(fast: Directories) -> None:
    name = "x" * 214
    fast.raw.create_topic(name)
    assert fast.alter(name, fast.paths[0]) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert fast.alter(name, UNUSED) is ErrorCode.INVALID_TOPIC_EXCEPTION
    name = "x" * 213
    fast.raw.create_topic(name)
    assert fast.alter(name, fast.paths[0]) is ErrorCode.NONE


def test_empty_request_gets_empty_response(fast: Directories) -> None:
    answer = fast.raw.ask(AlterReplicaLogDirsRequest(dirs=()), AlterReplicaLogDirsResponse)
    assert answer == AlterReplicaLogDirsResponse()


def test_last_directory_of_a_partition_is_used(fast: Directories) -> None:
    topic = fast.create()
    fast.produce(topic, b"x")
    other = fast.other(topic)
    wanted = (AlterReplicaLogDirTopic(topic, (0, 0)),)
    dirs = (AlterReplicaLogDir(UNUSED, wanted), AlterReplicaLogDir(other, wanted))
    answer = fast.raw.ask(AlterReplicaLogDirsRequest(dirs=dirs), AlterReplicaLogDirsResponse)
    assert [each.error_code for each in answer.results[0].partitions] == [ErrorCode.NONE]
    fast.wait_until_moved(topic, other)


# ---- moves


@pytest.mark.parametrize("version", APIS[AlterReplicaLogDirsRequest.API_KEY].versions)
def test_replica_moves_with_its_records(fast: Directories, version: int) -> None:
    topic = fast.create()
    values = fast.fill(topic)
    source, other = fast.directory_of(topic), fast.other(topic)
    assert fast.alter(topic, other, version=version) is ErrorCode.NONE
    fast.wait_until_moved(topic, other)
    assert fast.directory_of(topic) == other != source
    assert fast.read(topic) == values
    assert fast.produce(topic, b"after") == len(values)
    assert fast.read(topic) == [*values, b"after"]
    assert fast.on_disk(topic) == ["0"]


def test_replica_moves_back(fast: Directories) -> None:
    topic = fast.create()
    values = fast.fill(topic)
    source, other = fast.directory_of(topic), fast.other(topic)
    for directory in (other, source, other):
        assert fast.alter(topic, directory) is ErrorCode.NONE
        fast.wait_until_moved(topic, directory)
    assert fast.read(topic) == values


def test_empty_replica_moves(fast: Directories) -> None:
    topic = fast.create()
    other = fast.other(topic)
    assert fast.alter(topic, other) is ErrorCode.NONE
    fast.wait_until_moved(topic, other)
    assert fast.produce(topic, b"first") == 0


def test_move_to_own_directory_does_nothing(fast: Directories) -> None:
    topic = fast.create()
    directory = fast.directory_of(topic)
    assert fast.alter(topic, directory) is ErrorCode.NONE
    assert list(fast.describe(topic)) == [directory]


def test_moved_replica_survives_restart(fast: Directories) -> None:
    topic = fast.create()
    values = fast.fill(topic)
    other = fast.other(topic)
    assert fast.alter(topic, other) is ErrorCode.NONE
    fast.wait_until_moved(topic, other)
    fast.restart()
    assert list(fast.describe(topic)) == [other]
    assert fast.read(topic) == values


def test_records_arrive_during_moves(fast: Directories) -> None:
    topic = fast.create(configs={"segment.bytes": "20000"})
    values = fast.fill(topic)
    for number in range(4):
        assert fast.alter(topic, fast.paths[number % 3]) is ErrorCode.NONE
        while fast.is_moving(topic):
            value = b"%d" % len(values)
            assert fast.produce(topic, value) == len(values)
            values.append(value)
    assert fast.read(topic) == values


def test_waiting_fetch_survives_move(fast: Directories) -> None:
    topic = fast.create()
    values = fast.fill(topic)
    other = fast.other(topic)
    with Raw(fast.cluster.bootstrap_servers) as consumer:
        request = fetch_request(topic, {0: len(values)}, max_wait_ms=30_000)
        sent = consumer.begin(request, 12)
        assert fast.alter(topic, other) is ErrorCode.NONE
        fast.wait_until_moved(topic, other)
        fast.produce(topic, b"after")
        (fetched,) = partitions_of(consumer.answer(FetchResponse, *sent)).values()
        assert values_in(fetched) == [b"after"]


def test_consumer_reads_during_moves(fast: Directories) -> None:
    topic = fast.create()
    values = fast.fill(topic)
    with Cluster(fast.cluster.bootstrap_servers) as client:
        consumer = Consumer(client, {TopicPartition(topic, 0): Beginning()})
        read: list[bytes | None] = []
        for number in range(6):
            assert fast.alter(topic, fast.paths[number % 3]) is ErrorCode.NONE
            is_moving = True
            while is_moving or len(read) < len(values):
                is_moving = fast.is_moving(topic)
                if is_moving:
                    values.append(b"%d" % len(values))
                    fast.produce(topic, values[-1])
                read += [record.value for record in consumer.poll(1.0)]
        assert read == values


def test_flushed_topic_moves_under_load(fast: Directories) -> None:
    topic = fast.create(configs={"flush.messages": "1"})
    values = fast.fill(topic)
    other = fast.other(topic)
    assert fast.alter(topic, other) is ErrorCode.NONE
    while fast.is_moving(topic):
        values.append(b"x")
        fast.produce(topic, b"x")
    fast.wait_until_moved(topic, other)
    assert fast.read(topic) == values


def test_duplicates_are_detected_after_move(fast: Directories) -> None:
    topic = fast.create()
    batch = batch_of(b"once", producer_id=7, producer_epoch=0, base_sequence=0)
    assert fast.raw.produce(topic, batch).base_offset == 0
    other = fast.other(topic)
    assert fast.alter(topic, other) is ErrorCode.NONE
    fast.wait_until_moved(topic, other)
    assert fast.raw.produce(topic, batch).base_offset == 0
    assert fast.read(topic) == [b"once"]


def test_log_start_offset_moves(fast: Directories) -> None:
    topic = fast.create()
    for _ in range(3):
        fast.produce(topic, b"a", b"b", b"c")
    fast.delete_records(topic, 4)
    other = fast.other(topic)
    assert fast.alter(topic, other) is ErrorCode.NONE
    fast.wait_until_moved(topic, other)
    assert fast.start(topic) == 4
    fast.restart()
    assert fast.start(topic) == 4


def test_compacted_log_moves_with_missing_offsets(fast: Directories) -> None:
    topic = fast.create(configs=COMPACTED)
    for at in range(100):
        produce_keyed(fast, topic, b"key", b"%d" % at + b"x" * 100)
    eventually(lambda: len(fast.read(topic)) < 60, "it is compacted", 30)
    other = fast.other(topic)
    assert fast.alter(topic, other) is ErrorCode.NONE
    fast.wait_until_moved(topic, other)
    produce_keyed(fast, topic, b"other", b"after")
    assert fast.raw.list_offset(topic, -1).offset == 101
    assert fast.read(topic)[-2:] == [b"99" + b"x" * 100, b"after"]
    eventually(lambda: len(fast.read(topic)) < 40, "compaction continues", 30)


# ---- during a move


def test_move_in_progress_is_described(slow: Directories) -> None:
    topic = slow.create()
    slow.fill(topic)
    source, other = slow.directory_of(topic), slow.other(topic)
    assert slow.alter(topic, other) is ErrorCode.NONE
    assert slow.alter(topic, other) is ErrorCode.NONE
    found = slow.describe(topic)
    (current,), (future,) = found[source], found[other]
    assert (current.is_future_key, current.offset_lag) == (False, 0)
    assert future.is_future_key
    assert 0 < future.offset_lag <= 20
    assert future.partition_size < current.partition_size
    assert slow.on_disk(topic) == ["0", "future"]
    slow.delete(topic)


def test_move_to_own_directory_cancels_move(slow: Directories) -> None:
    topic = slow.create()
    values = slow.fill(topic)
    source = slow.directory_of(topic)
    assert slow.alter(topic, slow.other(topic)) is ErrorCode.NONE
    assert slow.is_moving(topic)
    assert slow.alter(topic, source) is ErrorCode.NONE
    assert list(slow.describe(topic)) == [source]
    assert slow.on_disk(topic) == ["0"]
    assert slow.read(topic) == values


def test_cancelled_move_resumes_compaction(slow: Directories) -> None:
    topic = slow.create(configs=COMPACTED)
    for at in range(50):
        produce_keyed(slow, topic, b"key-%d" % at, b"x" * 100)
    source = slow.directory_of(topic)
    assert slow.alter(topic, slow.other(topic)) is ErrorCode.NONE
    for _ in range(50):
        produce_keyed(slow, topic, b"key", b"x" * 100)
    assert len(slow.read(topic)) == 100, "it is not compacted during the move"
    assert slow.alter(topic, source) is ErrorCode.NONE
    eventually(lambda: len(slow.read(topic)) < 90, "it is compacted", 30)


def test_move_to_third_directory_replaces_move(slow: Directories) -> None:
    topic = slow.create()
    slow.fill(topic)
    source, second = slow.directory_of(topic), slow.other(topic)
    (third,) = {*slow.paths} - {source, second}
    assert slow.alter(topic, second) is ErrorCode.NONE
    assert slow.alter(topic, third) is ErrorCode.NONE
    assert set(slow.describe(topic)) == {source, third}
    slow.delete(topic)


def test_rejected_request_keeps_move(slow: Directories) -> None:
    topic = slow.create()
    slow.fill(topic)
    assert slow.alter(topic, slow.other(topic)) is ErrorCode.NONE
    assert slow.alter(topic, UNUSED) is ErrorCode.LOG_DIR_NOT_FOUND
    assert slow.is_moving(topic)
    slow.delete(topic)


def test_deletion_removes_both_logs(slow: Directories) -> None:
    topic = slow.create()
    slow.fill(topic)
    assert slow.alter(topic, slow.other(topic)) is ErrorCode.NONE
    slow.delete(topic)
    eventually(lambda: not slow.on_disk(topic), "both directories are renamed")
    assert slow.describe(topic) == {}


def test_records_are_deleted_during_move(slow: Directories) -> None:
    topic = slow.create()
    values = slow.fill(topic)
    assert slow.alter(topic, slow.other(topic)) is ErrorCode.NONE
    slow.delete_records(topic, 15)
    assert slow.read(topic, 15) == values[15:]
    slow.delete(topic)


def test_throttled_move_ends(slow: Directories) -> None:
    topic = slow.create()
    values = slow.fill(topic, batches=3, size=500)
    other = slow.other(topic)
    assert slow.alter(topic, other) is ErrorCode.NONE
    slow.wait_until_moved(topic, other)
    assert slow.read(topic) == values


# ---- preferred directories


def test_directory_of_future_topic_is_remembered(fast: Directories) -> None:
    for directory in fast.paths:
        name = next(NAMES)
        assert fast.alter(name, directory) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        fast.raw.create_topic(name)
        assert fast.directory_of(name) == directory


# ---- failed directories


def test_failed_directory_is_rejected(alone: Directories) -> None:
    topic = alone.create()
    alone.fill(topic)
    source, other = alone.directory_of(topic), alone.other(topic)
    (third,) = {*alone.paths} - {source, other}
    with failing(Path(other), errno.EIO):
        eventually(lambda: alone.failed() == [other], "the checkpoints fail", 30)
        assert alone.alter(topic, other) is ErrorCode.KAFKA_STORAGE_ERROR
        # Its future log may be in the failed directory.
        assert alone.alter(topic, third) is ErrorCode.KAFKA_STORAGE_ERROR
        assert alone.alter(topic, source) is ErrorCode.NONE


def test_failed_target_ends_move(alone: Directories) -> None:
    topic = alone.create()
    values = alone.fill(topic)
    source, other = alone.directory_of(topic), alone.other(topic)
    assert alone.alter(topic, other) is ErrorCode.NONE
    with failing(Path(other), errno.EIO):
        eventually(lambda: alone.failed() == [other], "the copy fails", 30)
        assert list(alone.describe(topic)) == [source]
        assert alone.read(topic) == values
        assert alone.produce(topic, b"after") == len(values)


def test_failed_source_takes_moving_replica_offline(alone: Directories) -> None:
    topic = alone.create()
    alone.fill(topic)
    source, other = alone.directory_of(topic), alone.other(topic)
    assert alone.alter(topic, other) is ErrorCode.NONE
    with failing(Path(source), errno.EIO):
        eventually(lambda: alone.failed() == [source], "it fails", 30)
        assert alone.alter(topic, other) is ErrorCode.KAFKA_STORAGE_ERROR
        refused = alone.raw.produce(topic, recent_batch_of(b"lost"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        (future,) = alone.describe(topic)[other]
        assert (future.is_future_key, future.offset_lag) == (True, -1)


# ---- client


def test_client_moves_and_describes(fast: Directories) -> None:
    topic = fast.create(partitions=2)
    fast.produce(topic, b"x")
    target = fast.paths[2]
    with Cluster(fast.cluster.bootstrap_servers) as client:
        admin = LogDirAdmin(client)
        results = admin.alter_replica_log_dirs(
            {(topic, 0, 1): target, (topic, 1, 1): target, ("nobody", 0, 1): UNUSED}
        )
        assert results[topic, 0, 1] is results[topic, 1, 1] is None
        error = results["nobody", 0, 1]
        assert error is not None
        assert error.code is ErrorCode.LOG_DIR_NOT_FOUND

        def is_moved() -> bool:
            partitions = [TopicPartition(topic, index) for index in range(2)]
            views = admin.describe_log_dirs([1], partitions)[1]  # type: ignore[index]
            return [(view.path, len(view.logs)) for view in views if view.logs] == [(target, 2)]

        eventually(is_moved, "both have moved", 30)
        (first, *_) = admin.describe_log_dirs()[1]  # type: ignore[index]
        assert first.path == fast.paths[0]
        assert first.total_bytes >= first.usable_bytes > 0
