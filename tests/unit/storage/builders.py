"""Short builders of batches and logs for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from barnabas.batch.header import BatchHeader, batch_headers
from barnabas.batch.markers import Marker, build_marker
from barnabas.batch.records import Record, build_batch, records
from barnabas.config.topic import TopicConfig
from barnabas.errors import StorageError
from barnabas.storage.log import AppendInfo, Log
from barnabas.storage.log_manager import LogManager
from barnabas.storage.recovery import open_log
from barnabas.world.ports import Disk
from simulator.disk import ForgetfulDisk

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
DIRECTORY = "/data/orders-0"
NOW_MS = 1_700_000_000_000


def forgetful_disk(now_ms: Callable[[], int] = lambda: NOW_MS) -> ForgetfulDisk:
    """Return a ForgetfulDisk with a synced directory /data."""
    disk = ForgetfulDisk(now_ms=now_ms)
    disk.make_directory("/data")
    disk.sync_now([], [""])
    return disk


def settings(**changes: Any) -> TopicConfig:
    return replace(TopicConfig(), **changes)


def new_log(disk: Disk, config: TopicConfig | None = None, directory: str = DIRECTORY) -> Log:
    return Log.create(disk, directory, config or TopicConfig(), topic_id=TOPIC_ID, now_ms=NOW_MS)


def reopen(
    log: Log,
    *,
    clean: bool = False,
    disk: Disk | None = None,
    recovery_point: int = 0,
    log_start_offset: int | None = None,
) -> Log:
    """Open the log again, as the next start of the broker does."""
    return open_log(
        disk or log.disk,
        log.directory,
        log.config,
        was_clean_shutdown=clean,
        recovery_point=recovery_point,
        log_start_offset=log.log_start_offset if log_start_offset is None else log_start_offset,
        now_ms=NOW_MS,
    )


def open_log_manager(
    disk: Disk,
    directories: Sequence[str],
    *,
    broker_id: int,
    cluster_id: str,
    config_of: Callable[[str], TopicConfig],
    random: Random,
    now_ms: int,
) -> LogManager:
    manager = LogManager(disk, directories, random=random)
    try:
        manager.load_all(broker_id, cluster_id, config_of, now_ms)
    except StorageError:
        manager.release()
        raise
    return manager


def batch(
    values: Sequence[bytes | None],
    *,
    timestamps: Sequence[int] | None = None,
    key: bytes | None = b"key",
    **fields: Any,
) -> memoryview:
    times = timestamps or [NOW_MS] * len(values)
    rows = [Record(at, times[at], key, value) for at, value in enumerate(values)]
    return memoryview(bytearray(build_batch(rows, **fields)))


def append(
    log: Log, *values: bytes | None, epoch: int = 0, now_ms: int = NOW_MS, **fields: Any
) -> AppendInfo:
    data, header = log.validator.validate(batch(values, **fields), now_ms)
    return log.append_as_leader(data, header, leader_epoch=epoch, now_ms=now_ms)


def produce(
    log: Log, sequence: int, *values: bytes, producer: int = 7, producer_epoch: int = 0
) -> AppendInfo:
    """Append as an idempotent producer does."""
    return append(
        log,
        *values,
        epoch=max(0, log.epochs.latest),
        producer_id=producer,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )


def produce_in_transaction(
    log: Log, sequence: int, *values: bytes, producer: int = 7, producer_epoch: int = 0
) -> AppendInfo:
    """Append as a transactional producer does, without a verification."""
    return append(
        log,
        *values,
        epoch=max(0, log.epochs.latest),
        producer_id=producer,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def end_transaction(
    log: Log,
    *,
    commit: bool,
    producer: int = 7,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
) -> AppendInfo:
    """Append a marker as the leader does."""
    data = build_marker(
        producer_id=producer,
        producer_epoch=producer_epoch,
        marker=Marker(commit, coordinator_epoch),
        timestamp=NOW_MS,
    )
    return log.append_as_leader(
        memoryview(data),
        BatchHeader(data),
        leader_epoch=max(0, log.epochs.latest),
        now_ms=NOW_MS,
    )


def contents(
    log: Log, start: int | None = None, bound: int | None = None
) -> dict[int, bytes | None]:
    """Read every record by offset, fetched as a consumer does."""
    offset = log.log_start_offset if start is None else start
    limit = log.log_end_offset if bound is None else bound
    found: dict[int, bytes | None] = {}
    while offset < limit:
        read = log.read(offset, 300, limit, True)
        data = memoryview(b"".join(s.file.read(s.position, s.size) for s in read.slices))
        if not data:
            break
        following = offset
        for position, header in batch_headers(data):
            for record in records(data[position : position + header.size]):
                if record.offset >= offset:
                    found[record.offset] = record.value
            following = header.next_offset
        assert following > offset
        offset = following
    return found


def flush(log: Log) -> None:
    pending = log.begin_flush()
    log.disk.sync_now(pending.files, pending.directories)
    log.end_flush(pending)
