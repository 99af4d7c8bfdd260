"""A data directory with every kind of auxiliary file, ways to damage one, and checks after a
restart.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from barnabas.model import TopicPartition
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager
from barnabas.world.disk import RealDisk
from barnabas.world.ports import File
from tests.unit.storage.builders import (
    NOW_MS,
    TOPIC_ID,
    append,
    contents,
    flush,
    open_log_manager,
    produce,
    settings,
)

SMALL = settings(segment_bytes=1200, index_interval_bytes=150, retention_ms=86_400_000)
COMPLETE, TRIMMED = TopicPartition("orders", 0), TopicPartition("orders", 1)
PARTITIONS = (COMPLETE, TRIMMED)
RECORDS = 75
HOUR_MS = 3_600_000
SPARSE_BYTES = 8 << 30
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
TEXTS = (*CHECKPOINTS, "leader-epoch-checkpoint", "partition.metadata", "meta.properties")
BINARIES = (".index", ".timeindex", ".txnindex", ".snapshot")


class UnsyncedDisk(RealDisk):
    """Real disk without fsync: these tests lose no power, and restart hundreds of times."""

    def sync_now(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        pass

    def write_and_rename(self, path: str, data: bytes, *, sync: bool) -> None:
        super().write_and_rename(path, data, sync=False)


def open_manager(directory: Path, now_ms: int = NOW_MS) -> LogManager:
    return open_log_manager(
        UnsyncedDisk(),
        (str(directory),),
        broker_id=1,
        cluster_id="c",
        config_of=lambda topic: SMALL,
        random=Random(1),
        now_ms=now_ms,
    )


def build_directory(directory: Path) -> None:
    """Create two logs with several segments, three epochs and one idempotent producer each. The
    second starts at offset 13.
    """
    manager = open_manager(directory)
    for partition in PARTITIONS:
        log = manager.create_log(partition, TOPIC_ID, SMALL, NOW_MS)
        for at in range(60):
            append(log, b"%d" % at * 20, timestamps=[NOW_MS + at * HOUR_MS // 10], epoch=at // 20)
            if at % 4 == 0:
                produce(log, at // 4, b"from a producer")
        assert log.log_end_offset == RECORDS
        assert len(log.segments) > 4
        log.high_watermark = RECORDS
        log.cleaned_to = log.segments.bases[1]
        flush(log)
    manager.logs[TRIMMED].advance_log_start(13)
    manager.shutdown()
    for partition in PARTITIONS:
        (directory / f"{partition}" / f"{0:020d}.txnindex").write_bytes(b"")


def matching(directory: Path, name: str) -> list[Path]:
    found = sorted(path for path in directory.rglob(f"*{name}") if path.is_file())
    assert found, name
    return found


# ---- damage


def with_numbers(data: bytes, change: Callable[[int], int]) -> bytes:
    """Change the last number of every line after the first two."""
    head, rest = data.split(b"\n", 2)[:2], data.split(b"\n", 2)[2:]
    changed = re.sub(
        rb"(\d+)$", lambda found: b"%d" % change(int(found[1])), b"".join(rest), flags=re.MULTILINE
    )
    return b"\n".join([*head, changed])


TEXT_DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "too large": lambda data: with_numbers(data, lambda number: number + 90_000_000),
    "largest": lambda data: with_numbers(data, lambda number: 2**63 - 1),
    "beyond int64": lambda data: with_numbers(data, lambda number: 2**80),
    "larger within the log": lambda data: with_numbers(data, lambda number: min(number + 40, 75)),
    "too small": lambda data: with_numbers(data, lambda number: number // 10),
    "zero": lambda data: with_numbers(data, lambda number: 0),
    "negative": lambda data: with_numbers(data, lambda number: -number - 1),
    "not a number": lambda data: data.replace(b"1", b"l").replace(b"7", b"?"),
    "unknown version": lambda data: b"7" + data[1:],
}
ANY_DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "duplicated": lambda data: data * 2,
    "truncated": lambda data: data[: len(data) * 2 // 3],
    "one byte short": lambda data: data[:-1],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "binary": lambda data: bytes((7 * at + 13) % 251 for at in range(max(len(data), 500))),
    "trailing bytes": lambda data: data + b"\xff\0\n" * 40,
}


def make_sparse(path: Path, *, zeros: bool) -> None:
    """Extend a file to 8 GiB, after its contents or without them."""
    if zeros:
        path.write_bytes(b"")
    os.truncate(path, SPARSE_BYTES)


# ---- checks


def expected_value(offset: int) -> bytes:
    """Return the expected value: of five offsets the second is the producer's, the others are plain
    records.
    """
    round_, within = divmod(offset, 5)
    if within == 1:
        return b"from a producer"
    at = round_ * 4 + (0 if within == 0 else within - 1)
    return b"%d" % at * 20


def check_directory(directory: Path, *, label: str) -> None:
    """Restart twice and check: no record lost, correct offsets, retries recognised, appends
    possible.
    """
    for restart in range(2):
        manager = open_manager(directory, now_ms=NOW_MS + restart)
        try:
            for partition in PARTITIONS:
                check_log(manager.logs[partition], partition, restart, label)
        finally:
            manager.shutdown()


def check_log(log: Log, partition: TopicPartition, restart: int, label: str) -> None:
    end = RECORDS + restart
    start = 13 if partition == TRIMMED else 0
    assert log.log_end_offset == end, label
    assert log.log_start_offset <= start, label
    assert log.log_start_offset <= log.high_watermark <= end, label
    assert log.log_start_offset <= log.recovery_point <= end, label
    found = contents(log)
    for offset in range(start, RECORDS):
        assert found[offset] == expected_value(offset), f"{label} offset={offset}"
    for at in range(0, 60, 7):
        time = log.offset_for_timestamp(NOW_MS + at * HOUR_MS // 10)
        expected = max(start, at // 4 * 5 + at % 4 + (1 if at % 4 else 0))
        assert time is not None and time.offset <= expected, label
        if log.log_start_offset == start:
            assert time.offset == expected, f"{label} time of {at}"
    # With a clock at which every segment is just young enough, retention deletes nothing.
    log.high_watermark = log.log_end_offset
    oldest = min(segment_age(log, at) for at in range(len(log.segments) - 1))
    log.delete_old_segments(oldest + SMALL.retention_ms - 1)
    assert set(range(start, RECORDS)) <= set(contents(log)), label
    retried = produce(log, 14, b"from a producer")
    assert (retried.is_duplicate, retried.first_offset) == (True, 71), label
    assert log.epochs.latest == 2, label
    assert append(log, b"more", epoch=2).first_offset == end, label
    assert contents(log)[end] == b"more", label


def segment_age(log: Log, at: int) -> int:
    """Return the largest timestamp of a segment, by its batches."""
    return max(header.max_timestamp for _, header in log.segments[at].headers())
