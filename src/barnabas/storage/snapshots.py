"""Producer snapshots of a log, and the producer state rebuilt from the newest valid one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from barnabas.errors import CorruptBatch, StorageError, reason
from barnabas.storage.files import SNAPSHOT_MAX, read_head, segment_path
from barnabas.storage.producer_updates import apply_batch
from barnabas.storage.producers import Producers, decode_snapshot
from barnabas.storage.segment import Segment, floor_index
from barnabas.world.ports import Disk

logger = logging.getLogger(__name__)

SUFFIX = ".snapshot"
INTERVAL_BYTES = 16 * 2**20
INTERVAL_BYTES_PER_PRODUCER = 4096


def is_due(appended_bytes: int, producers: Producers) -> bool:
    """Return whether to write a snapshot in the middle of a segment, after this many bytes.

    A truncation reads the batches since the last snapshot, on the event loop. Many producers make a snapshot costly.
    """
    count = len(producers.by_id)
    return count > 0 and appended_bytes >= INTERVAL_BYTES + INTERVAL_BYTES_PER_PRODUCER * count


def write_snapshot(disk: Disk, directory: str, offset: int, producers: Producers) -> str:
    path = segment_path(directory, offset) + SUFFIX
    disk.replace_bytes(path, producers.encode(), sync=False)
    return path


def remove_snapshots(disk: Disk, directory: str, unneeded: Callable[[int], bool]) -> None:
    for offset in list_snapshots(disk, directory):
        if unneeded(offset):
            disk.remove(segment_path(directory, offset) + SUFFIX)


def remove_inside_closed_segments(disk: Disk, directory: str, bases: Sequence[int]) -> None:
    """Keep the snapshots at the base offset of a segment and in the active segment. `bases` are all base offsets."""
    kept = set(bases)
    remove_snapshots(disk, directory, lambda offset: offset < bases[-1] and offset not in kept)


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
