"""Producer snapshots of a log, and the producer state rebuilt from the newest valid one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from barnabas.batch.header import BatchHeader
from barnabas.batch.records import records
from barnabas.errors import CorruptBatch, StorageError, reason
from barnabas.storage.files import SNAPSHOT_MAX, read_head, segment_path
from barnabas.storage.producers import Producers, decode_snapshot
from barnabas.storage.segment import Segment, floor_index
from barnabas.world.ports import Disk

logger = logging.getLogger(__name__)

SUFFIX = ".snapshot"


def write_snapshot(disk: Disk, directory: str, offset: int, producers: Producers) -> str:
    path = segment_path(directory, offset) + SUFFIX
    disk.replace_bytes(path, producers.encode(), sync=False)
    return path


def remove_snapshots(disk: Disk, directory: str, unneeded: Callable[[int], bool]) -> None:
    for offset in list_snapshots(disk, directory):
        if unneeded(offset):
            disk.remove(segment_path(directory, offset) + SUFFIX)


def list_snapshots(disk: Disk, directory: str) -> list[int]:
    stems = [name.removesuffix(SUFFIX) for name in disk.list(directory) if name.endswith(SUFFIX)]
    return [int(stem) for stem in stems if stem.isdecimal()]


def rebuild_producers(
    disk: Disk, directory: str, segments: Sequence[Segment], *, log_start_offset: int, end: int
) -> Producers:
    """Return the producer state as of offset `end`: the newest valid snapshot, then the batches after it."""
    producers, start = load_newest_snapshot(disk, directory, log_start_offset, end)
    for segment in segments[floor_index(segments, start) :]:
        if segment.base_offset >= end or segment.size == 0:
            continue
        try:
            replay_segment(producers, segment, start, end)
        except CorruptBatch as error:
            logger.error(
                "segment is corrupt, some producers in it are not restored error=%s", error
            )
    return producers


def replay_segment(producers: Producers, segment: Segment, start: int, end: int) -> None:
    found = segment.find(start)
    for position, header in segment.headers(found.position) if found else ():
        if header.base_offset >= end:
            break
        if header.producer_id >= 0:
            batch = segment.log.read(position, header.size) if header.is_control else b""
            apply_batch(producers, header, memoryview(batch))


def load_newest_snapshot(disk: Disk, directory: str, low: int, high: int) -> tuple[Producers, int]:
    """Return the newest valid snapshot in this range and its offset, or (Producers(), low). Removes corrupt ones."""
    for offset in sorted(list_snapshots(disk, directory), reverse=True):
        if low <= offset <= high:
            path = segment_path(directory, offset) + SUFFIX
            try:
                return decode_snapshot(read_head(disk, path, SNAPSHOT_MAX)), offset
            except (ValueError, StorageError) as error:
                logger.warning(
                    "producer snapshot is unusable path=%s reason=%s", path, reason(error)
                )
                disk.remove(path)
    return Producers(), low


def apply_batch(producers: Producers, header: BatchHeader, batch: memoryview) -> None:
    """Update the producer state with a batch of the log. `batch` is used only for a control batch."""
    if not header.is_control:
        producers.record(header, header.base_offset, header.max_timestamp)
        return
    # The value of a transaction marker: int16 version, int32 coordinator epoch.
    for marker in records(batch):
        value = marker.value or b""
        producers.record_marker(header, int.from_bytes(value[2:6], "big", signed=True))
