"""Loading of the transaction indexes of a log.

The index of the active segment is in memory. That of a closed segment is read at the first lookup and kept: 34 bytes
for each aborted transaction. A missing file means that there are no aborted transactions, as in Kafka. A damaged one is
rebuilt from the batches of its segment.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack, closing

from barnabas.errors import CorruptBatch
from barnabas.storage import snapshots, transaction_index
from barnabas.storage.producer_updates import apply_batch
from barnabas.storage.segment import Segment
from barnabas.storage.transaction_index import AbortedEntry, Entries
from barnabas.world.ports import Disk

logger = logging.getLogger(__name__)


def load_aborted(
    disk: Disk, directory: str, segments: Sequence[Segment], at: int, *, end_offset: int
) -> Entries:
    """Return the transaction index of segment `at`. `end_offset` is the end of the log."""
    segment = segments[at]
    if segment.aborted is not None:
        return segment.aborted
    path = segment.path + transaction_index.SUFFIX
    entries: Entries = transaction_index.NO_ENTRIES
    if disk.exists(path):
        entries = disk.read_bytes(path)
    end = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
    if not transaction_index.is_valid(entries, base_offset=segment.base_offset, end_offset=end):
        logger.warning("transaction index is broken, rebuilding it path=%s", path)
        entries = rebuild_aborted(disk, directory, segments, at)
        disk.replace_bytes(path, bytes(entries), sync=False)
    segment.aborted = entries
    return entries


def restore_aborted(
    disk: Disk, directory: str, segments: Sequence[Segment], at: int
) -> tuple[str, ...]:
    """Write the transaction index of segment `at` again, from its batches. Return the paths of files to flush."""
    path = segments[at].path + transaction_index.SUFFIX
    entries = rebuild_aborted(disk, directory, segments, at)
    segments[at].aborted = None
    disk.remove(path)
    if not entries:
        return ()
    disk.replace_bytes(path, bytes(entries), sync=False)
    return (path,)


def rebuild_aborted(disk: Disk, directory: str, segments: Sequence[Segment], at: int) -> Entries:
    """Return the transaction index of segment `at` from its batches. A transaction may begin in an earlier segment."""
    segment, entries = segments[at], bytearray()
    producers = snapshots.rebuild_producers(
        disk,
        directory,
        segments[:at],
        log_start_offset=segments[0].base_offset,
        end=segment.base_offset,
    )
    try:
        for position, header in segment.headers():
            if header.producer_id >= 0:
                batch = segment.log.read(position, header.size) if header.is_control else b""
                aborted = apply_batch(producers, header, memoryview(batch))
                if aborted is not None:
                    entries += transaction_index.encode_entry(aborted)
    except CorruptBatch as error:
        logger.error(
            "segment is corrupt, its later aborted transactions are unknown error=%s", error
        )
    return entries


class AbortedSearch:
    """A search for aborted transactions in a thread. Created on the event loop, to which the segments belong."""

    def __init__(self, segments: Sequence[Segment], end_offset: int) -> None:
        """`end_offset` is the end of the log."""
        self.indexes = [
            (each.path, each.base_offset, None if each.aborted is None else bytes(each.aborted))
            for each in segments
        ]
        self.end_offset = end_offset

    def find(self, disk: Disk, directory: str, start: int, end: int) -> list[AbortedEntry]:
        """Return the aborted transactions with records from `start` to before `end`. `disk` is that of the thread."""
        found: list[AbortedEntry] = []
        ends = [base for _, base, _ in self.indexes[1:]] + [self.end_offset]
        for at, (_, _, in_memory) in enumerate(self.indexes):
            if ends[at] <= start:
                continue
            entries = self.read(disk, directory, at, ends[at]) if in_memory is None else in_memory
            more, is_complete = transaction_index.search(entries, start, end)
            found += more
            if is_complete:
                break
        return found

    def read(self, disk: Disk, directory: str, at: int, end: int) -> Entries:
        """Read the file of an index. A broken one is rebuilt in memory; the next lookup of a reader replaces it."""
        path, base, _ = self.indexes[at]
        path += transaction_index.SUFFIX
        entries = disk.read_bytes(path) if disk.exists(path) else transaction_index.NO_ENTRIES
        if transaction_index.is_valid(entries, base_offset=base, end_offset=end):
            return entries
        with ExitStack() as stack:
            segments = [
                stack.enter_context(closing(Segment(disk, each, base)))
                for each, base, _ in self.indexes[: at + 1]
            ]
            return rebuild_aborted(disk, directory, segments, at)
