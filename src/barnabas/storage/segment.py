"""A segment: one file of a log and its indexes.

    00000000000000004711.log        record batches with ascending offsets, from 4711 on
    00000000000000004711.index      index.py
    00000000000000004711.timeindex  index.py
    00000000000000004711.txnindex   transaction_index.py; only if it has aborted transactions

The last segment of a log is the active one, and all others are closed. Only the active segment is appended to, and its
index entries are in memory. When the log rolls, they are written (`write_indexes`) and freed (`free_entries`).
Positions are bytes in the `.log` file.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from barnabas.batch.header import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    crc_is_valid,
)
from barnabas.errors import CorruptBatch
from barnabas.model import NO_TIMESTAMP
from barnabas.storage import transaction_index
from barnabas.storage.files import INDEX_MAX, segment_path
from barnabas.storage.index import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY,
    TIME_ENTRY,
    OffsetEntries,
    TimeEntries,
    find_floor_entry,
    last_entry,
    strip_zero_tail,
)
from barnabas.world.ports import Buffer, Disk, File

logger = logging.getLogger(__name__)

LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD
NOT_LOADED: Final = -2
SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
DELETED: Final = ".deleted"
HEADER_WINDOW: Final = 4096
TIMES_CHECKED_MAX: Final = 1000
"""Number of batches after the last time entry that are compared with it. Usually there are few: timestamps ascend."""
CHECK_WINDOW: Final = 4 << 20
UNINDEXED_MAX: Final = 4 << 20
"""Bytes that may follow the last index entry, in addition to index.interval.bytes: an append adds at most one entry."""


class BatchPosition(NamedTuple):
    position: int
    header: BatchHeader


class Segment:
    __slots__ = (
        "aborted",
        "base_offset",
        "bytes_since_entry",
        "checked_from",
        "checked_to",
        "created_ms",
        "disk",
        "faults",
        "first_timestamp",
        "index_file",
        "index_interval",
        "largest_timestamp",
        "largest_timestamp_offset",
        "log",
        "offsets",
        "path",
        "size",
        "snapshot_size",
        "suffix",
        "time_file",
        "times",
        "unchecked_to",
    )

    def __init__(
        self,
        disk: Disk,
        path: str,
        base_offset: int,
        *,
        log: File | None = None,
        index_interval: int = 0,
        now_ms: int = 0,
    ) -> None:
        """`path` is the common path of its files, without suffix. If `log` is None, the log file is opened."""
        self.disk = disk
        self.path = path
        self.log = disk.open(path + ".log") if log is None else log
        self.base_offset = base_offset
        self.size = self.log.size()
        self.snapshot_size = 0
        """`size` at the last producer snapshot inside this segment."""
        self.index_interval = index_interval
        self.created_ms = now_ms
        self.bytes_since_entry = 0
        self.first_timestamp = NO_TIMESTAMP if self.size == 0 else NOT_LOADED
        self.largest_timestamp = NO_TIMESTAMP if self.size == 0 else NOT_LOADED
        self.largest_timestamp_offset = base_offset
        self.offsets: OffsetEntries | None = None
        self.times: TimeEntries | None = None
        self.aborted: transaction_index.Entries | None = None
        """Entries of the transaction index, or None if they are only in its file (aborted_transactions.py)."""
        self.index_file: File | None = None
        self.time_file: File | None = None
        # Bytes before `unchecked_to` are verified before they are sent. Those from `checked_from` to `checked_to` are
        # verified already. `faults` are the positions of corrupt batches. See checking.py.
        self.unchecked_to = self.checked_from = self.checked_to = 0
        self.faults: tuple[int, ...] = ()
        self.suffix = ""
        """Suffix of all its files after `rename_deleted`, such as `.deleted`. Empty before."""

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, *, index_interval: int, now_ms: int
    ) -> Segment:
        path = segment_path(directory, base_offset)
        log = disk.open(path + ".log", create=True)
        if log.size():
            log.truncate(0)
        # As in Kafka, the index files exist from the start. They are empty until the segment is closed.
        for suffix in (".index", ".timeindex"):
            disk.open(path + suffix, create=True).close()
        segment = cls(
            disk, path, base_offset, log=log, index_interval=index_interval, now_ms=now_ms
        )
        segment.offsets = OffsetEntries()
        segment.times = TimeEntries()
        segment.aborted = transaction_index.NO_ENTRIES
        return segment

    # ---- writing ----------------------------------------------------------------------------------------------

    def append(
        self,
        data: Buffer,
        size: int,
        last_offset: int,
        largest_timestamp: int,
        largest_timestamp_offset: int,
    ) -> None:
        """Append an append set (append_sets.py). The file is written first: if that fails, nothing has changed."""
        position = self.size
        self.log.append((data,))
        self.size = position + size
        if position == 0:
            self.first_timestamp = largest_timestamp
        if largest_timestamp > self.largest_timestamp:
            self.largest_timestamp = largest_timestamp
            self.largest_timestamp_offset = largest_timestamp_offset
        if self.bytes_since_entry > self.index_interval:
            self.add_entry(last_offset, position)
            self.bytes_since_entry = size
        else:
            self.bytes_since_entry += size

    def add_entry(self, last_offset: int, position: int) -> None:
        assert self.offsets is not None and self.times is not None, "the segment is closed"
        base = self.base_offset
        self.offsets.append(last_offset - base, position)
        if self.largest_timestamp > NO_TIMESTAMP:
            self.times.append_if_later(self.largest_timestamp, self.largest_timestamp_offset - base)

    def add_aborted(self, entry: transaction_index.AbortedEntry) -> None:
        """Add an aborted transaction, whose marker is the last record."""
        assert self.aborted is not None, "the transaction index is not loaded"
        if not isinstance(self.aborted, bytearray):
            self.aborted = bytearray(self.aborted)
        self.aborted += transaction_index.encode_entry(entry)

    def write_indexes(self, suffix: str = "", *, sync: bool = False) -> tuple[str, ...]:
        """Write the entries to files, with the largest timestamp as the last time entry. Return the paths."""
        assert self.offsets is not None and self.times is not None, "the segment is closed"
        if self.largest_timestamp > NO_TIMESTAMP:
            self.times.append_if_later(
                self.largest_timestamp, self.largest_timestamp_offset - self.base_offset
            )
        index_path, time_path = self.path + ".index" + suffix, self.path + ".timeindex" + suffix
        self.disk.replace_bytes(index_path, self.offsets.encode(), sync=sync)
        self.disk.replace_bytes(time_path, self.times.encode(), sync=sync)
        if not self.aborted:
            return index_path, time_path
        aborted_path = self.path + transaction_index.SUFFIX + suffix
        self.disk.replace_bytes(aborted_path, bytes(self.aborted), sync=sync)
        return index_path, time_path, aborted_path

    def free_entries(self) -> None:
        """Free the index entries of a closed segment. Precondition: `write_indexes` was called."""
        self.close_index_files()
        self.offsets = None
        self.times = None
        if self.aborted:
            self.aborted = None

    def load_entries(self) -> None:
        """Load the index entries into memory, before this segment is appended to."""
        if self.offsets is None:
            self.close_index_files()
            entries = self.stored_entries()
            self.offsets, self.times = entries or (OffsetEntries(), TimeEntries())
            if entries is None:
                self.rebuild_indexes()

    def truncate(self, offset: int, now_ms: int) -> None:
        """Remove the batch with `offset` and all batches after it. The indexes are in memory afterwards.

        Precondition: `aborted` is loaded.
        """
        found = self.find(offset)
        self.load_timestamps()
        self.load_entries()
        assert self.offsets is not None and self.times is not None
        if found is None:
            return
        self.log.truncate(found.position)
        self.size = found.position
        self.snapshot_size = 0
        self.unchecked_to = min(self.unchecked_to, self.size)
        self.faults = tuple(position for position in self.faults if position < self.size)
        self.offsets.truncate(found.header.base_offset - self.base_offset)
        self.times.truncate(found.header.base_offset - self.base_offset)
        assert self.aborted is not None
        self.aborted = transaction_index.truncate(self.aborted, found.header.base_offset)
        self.bytes_since_entry = 0
        if self.size == 0:
            self.created_ms = now_ms
            self.first_timestamp = NO_TIMESTAMP
        self.largest_timestamp = NO_TIMESTAMP
        self.largest_timestamp_offset = self.base_offset
        start = 0
        if self.times.timestamps:
            self.largest_timestamp = self.times.timestamps[-1]
            self.largest_timestamp_offset = self.base_offset + self.times.offsets[-1]
            start = self.offsets.floor_position(self.times.offsets[-1])
        for _, header in self.headers(start):
            self.update_largest_timestamp(header)

    def update_largest_timestamp(self, header: BatchHeader) -> None:
        if header.max_timestamp > self.largest_timestamp:
            self.largest_timestamp = header.max_timestamp
            self.largest_timestamp_offset = header.last_offset

    # ---- finding ----------------------------------------------------------------------------------------------

    def find(self, offset: int) -> BatchPosition | None:
        """Return the first batch whose last offset is `offset` or later, or None. Raises CorruptBatch."""
        start = self.floor_position(offset)
        try:
            return self.scan_to(offset, start)
        except CorruptBatch:
            if start == 0:
                raise
        # The index points into the middle of a batch or after `offset`, or the log file is corrupt. Rebuild the index.
        logger.warning("index is broken, rebuilding it path=%s", self.path + ".index")
        self.rebuild_indexes()
        return self.scan_to(offset, self.floor_position(offset))

    def scan_to(self, offset: int, start: int) -> BatchPosition | None:
        for position, header in self.headers(start):
            if header.base_offset + header.last_offset_delta >= offset:
                if position == start > 0 and offset < header.base_offset:
                    raise CorruptBatch(self.log.path, "the index points after the offset", start)
                return BatchPosition(position, header)
        return None

    def headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of every batch from `start` on. Checksums are not verified. Raises CorruptBatch."""
        position, size = start, self.size
        window, window_at = b"", 0
        floor = self.base_offset
        offset_max = floor + MAX_RELATIVE_OFFSET
        while position < size:
            at = position - window_at
            if at + HEADER_SIZE > len(window):
                window, window_at, at = self.log.read(position, HEADER_WINDOW), position, 0
                if len(window) < HEADER_SIZE:
                    raise CorruptBatch(self.log.path, "incomplete batch header", position)
            header = BatchHeader(window, at)
            is_batch = is_plausible(header, floor) and header.last_offset <= offset_max
            if not is_batch or position + header.size > size:
                raise CorruptBatch(self.log.path, "no valid batch header", position)
            yield position, header
            floor = header.next_offset
            position += header.length + LOG_OVERHEAD

    def floor_position(self, offset: int) -> int:
        """Return the position from which to scan for `offset`."""
        relative = offset - self.base_offset
        if self.offsets is not None:
            return self.offsets.floor_position(relative)
        entry = find_floor_entry(self.open_indexes()[0], OFFSET_ENTRY, relative)
        return entry[1] if entry else 0

    def floor_position_of_time(self, timestamp: int) -> int:
        """Return a position before which every batch is older than `timestamp`."""
        entry = self.floor_time_entry(timestamp - 1)
        if entry is not None and not self.is_time_entry_right(*entry):
            logger.warning("time index is broken, rebuilding it path=%s", self.path + ".timeindex")
            self.rebuild_indexes()
            entry = self.floor_time_entry(timestamp - 1)
        return self.floor_position(self.base_offset + entry[1]) if entry else 0

    def floor_time_entry(self, timestamp: int) -> tuple[int, int] | None:
        if self.times is not None:
            return self.times.floor_entry(timestamp)
        return find_floor_entry(self.open_indexes()[1], TIME_ENTRY, timestamp)

    def is_time_entry_right(self, timestamp: int, relative_offset: int) -> bool:
        found = self.find(self.base_offset + relative_offset)
        return found is not None and found.header.max_timestamp == timestamp

    def load_timestamps(self) -> None:
        """Read the largest timestamp of a closed segment from the end of its time index, on first use."""
        if self.largest_timestamp == NOT_LOADED:
            entry = self.last_time_entry()
            self.largest_timestamp = entry[0] if entry else NO_TIMESTAMP
            self.largest_timestamp_offset = self.base_offset + (entry[1] if entry else 0)

    def last_time_entry(self) -> tuple[int, int] | None:
        if self.times is not None:
            timestamps = self.times.timestamps
            return (timestamps[-1], self.times.offsets[-1]) if timestamps else None
        return last_entry(self.open_indexes()[1], TIME_ENTRY)

    def first_batch_timestamp(self) -> int:
        """Return the timestamp from which segment.ms counts."""
        if self.first_timestamp == NOT_LOADED:
            first = next(self.headers(), None)
            self.first_timestamp = first[1].max_timestamp if first else NO_TIMESTAMP
        return self.first_timestamp

    def retention_timestamp_ms(self) -> int:
        """Return the time from which retention.ms counts: the largest timestamp, else the file's modification time."""
        self.load_timestamps()
        if self.largest_timestamp >= 0:
            return self.largest_timestamp
        return self.disk.modified_ms(self.log.path)

    def next_offset(self) -> int:
        """Return the offset after the last record."""
        last = self.last_batch()
        return last.header.next_offset if last else self.base_offset

    def last_batch(self) -> BatchPosition | None:
        """Return the last batch, or None. Scans from the last index entry."""
        last = None
        start = self.floor_position(self.base_offset + MAX_RELATIVE_OFFSET) if self.size else 0
        for position, header in self.headers(start):
            last = BatchPosition(position, header)
        return last

    # ---- checking ---------------------------------------------------------------------------------------------

    def checked_batches(
        self, next_offset: int, window_bytes: int = CHECK_WINDOW, *, start: int = 0
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield position, header and bytes of every batch from `start` on. Checksums are verified.

        Ends before the first incomplete, corrupt or out-of-order batch. `next_offset` is the lowest valid offset.
        """
        position, size = start, self.size
        window, window_at = memoryview(b""), 0
        while size - position >= HEADER_SIZE:
            at = position - window_at
            if at + HEADER_SIZE > len(window):
                window, window_at, at = self.window(position, window_bytes), position, 0
                if len(window) < HEADER_SIZE:
                    return
            header = BatchHeader(window, at)
            batch_size = header.length + LOG_OVERHEAD
            if not is_plausible(header, next_offset) or position + batch_size > size:
                return
            if header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
                return
            if at + batch_size > len(window):
                wanted = max(window_bytes, batch_size)
                window, window_at, at = self.window(position, wanted), position, 0
            if not crc_is_valid(window, at, header):
                return
            yield position, header, window[at : at + batch_size]
            next_offset = header.next_offset
            position += batch_size

    def window(self, position: int, size: int) -> memoryview:
        return memoryview(self.log.read(position, min(size, self.size - position)))

    def rebuild_indexes(self) -> None:
        """Rebuild the indexes from the batch headers: in memory for the active segment, else in files."""
        is_active = self.offsets is not None
        self.begin_rebuild()
        try:
            for position, header in self.headers():
                self.index_batch(position, header)
        except CorruptBatch as error:
            logger.error("segment is corrupt, later records in it cannot be read error=%s", error)
        if not is_active:
            self.write_indexes()
            self.free_entries()

    def begin_rebuild(self) -> None:
        self.close_index_files()
        self.offsets = OffsetEntries()
        self.times = TimeEntries()
        self.bytes_since_entry = 0
        self.largest_timestamp = NO_TIMESTAMP
        self.largest_timestamp_offset = self.base_offset
        self.first_timestamp = NO_TIMESTAMP

    def index_batch(self, position: int, header: BatchHeader) -> None:
        """Update the indexes as `append` does, for a batch that is in the file already."""
        if position == 0:
            self.first_timestamp = header.max_timestamp
        self.update_largest_timestamp(header)
        if self.bytes_since_entry > self.index_interval:
            self.add_entry(header.last_offset, position)
            self.bytes_since_entry = 0
        self.bytes_since_entry += header.size

    # ---- files ------------------------------------------------------------------------------------------------

    def open_indexes(self) -> tuple[File, File]:
        """Return the index files of a closed segment. On first use they are checked, and rebuilt if invalid."""
        if self.index_file is None or self.time_file is None:
            entries = self.stored_entries()
            if entries is None:
                if self.size:
                    logger.warning("index is missing or broken, rebuilding it path=%s", self.path)
                self.rebuild_indexes()
            else:
                self.cut_zero_tails(*entries)
            self.index_file = self.disk.open(self.path + ".index")
            self.time_file = self.disk.open(self.path + ".timeindex")
        return self.index_file, self.time_file

    def stored_entries(self) -> tuple[OffsetEntries, TimeEntries] | None:
        """Return the entries in the index files, or None if a file is missing or does not match the log file."""
        index = self.read_index(".index", OFFSET_ENTRY.size)
        times = self.read_index(".timeindex", TIME_ENTRY.size)
        if index is None or times is None:
            return None
        entries = OffsetEntries.decode(index), TimeEntries.decode(times)
        try:
            return entries if self.are_entries_valid(*entries) else None
        except CorruptBatch:
            return None

    def read_index(self, suffix: str, entry_size: int) -> bytes | None:
        """Return the bytes of the entries in an index file, or None if it is missing or its size is impossible."""
        path = self.path + suffix
        if not self.disk.exists(path):
            return None
        entries_max = self.size // max(self.index_interval, HEADER_SIZE) + 2
        if self.disk.size(path) > max(INDEX_MAX, entries_max * entry_size):
            return None
        return strip_zero_tail(self.disk.read_bytes(path), entry_size)

    def are_entries_valid(self, offsets: OffsetEntries, times: TimeEntries) -> bool:
        """Return whether the entries ascend and match the log.

        They are compared with the first batch, the batch of the last time entry, and the batches after that one.
        """
        if not (offsets.is_valid(self.size) and times.is_valid()):
            return False
        first = next(self.headers(), None)
        if first is None:
            return not times
        if first[1].size + 2 * self.index_interval < self.size and not offsets:
            return False
        if not times:
            return first[1].max_timestamp == NO_TIMESTAMP
        last = self.base_offset + times.offsets[-1]
        found = self.scan_to(last, offsets.floor_position(times.offsets[-1]))
        if found is None or found.header.max_timestamp != times.timestamps[-1]:
            return False
        after_last = islice(self.headers(found.position), TIMES_CHECKED_MAX)
        if any(header.max_timestamp > times.timestamps[-1] for _, header in after_last):
            return False
        return self.is_tail_indexed(offsets, times.timestamps[-1])

    def is_tail_indexed(self, offsets: OffsetEntries, largest_timestamp: int) -> bool:
        """Return whether both indexes reach the end of the log file. `largest_timestamp` is that of the time index.

        A later batch with a larger timestamp means that time entries are lost: retention could delete too early.
        A batch far after the last offset entry means that offset entries are lost: reads would be slow.
        """
        start = offsets.positions[-1] if offsets else 0
        second = None
        for position, header in self.headers(start):
            if header.max_timestamp > largest_timestamp:
                return False
            if second is None:
                second = position + header.size
            elif position - second > self.index_interval + UNINDEXED_MAX:
                return False
        return True

    def cut_zero_tails(self, offsets: OffsetEntries, times: TimeEntries) -> None:
        for path, entries, size in (
            (self.path + ".index", offsets, OFFSET_ENTRY.size),
            (self.path + ".timeindex", times, TIME_ENTRY.size),
        ):
            if self.disk.size(path) > size * len(entries):
                self.disk.replace_bytes(path, entries.encode(), sync=False)

    def close_index_files(self) -> None:
        for file in (self.index_file, self.time_file):
            if file is not None:
                file.close()
        self.index_file = self.time_file = None

    def remove_index_files(self) -> None:
        """Remove the index files, which are older than the entries in memory."""
        self.close_index_files()
        for suffix in (".index", ".timeindex", transaction_index.SUFFIX):
            self.disk.remove(self.path + suffix)

    def close(self) -> None:
        """Close the files of an active or closed segment. Does not write the indexes."""
        self.close_index_files()
        self.log.close()

    def rename_deleted(self, *, keep_snapshot: bool) -> None:
        """Rename all files to `.deleted`, so that a replacement can take over their names. Readers of the log file are
        not interrupted. A number makes the suffix unique while files of an earlier replacement exist."""
        self.suffix, number = DELETED, 0
        while self.disk.exists(self.path + ".log" + self.suffix):
            number += 1
            self.suffix = f".{number}{DELETED}"
        self.close_index_files()
        self.log.rename(self.path + ".log" + self.suffix)
        for suffix in SUFFIXES[1:]:
            path = self.path + suffix
            if self.disk.exists(path) and not (keep_snapshot and suffix == ".snapshot"):
                self.disk.rename(path, path + self.suffix)

    def remove_files(self) -> None:
        self.close()
        for suffix in SUFFIXES:
            self.disk.remove(self.path + suffix + self.suffix)


def floor_index(segments: Sequence[Segment], offset: int) -> int:
    """Return the index of the segment with `offset`, or 0 if all segments begin after it."""
    return max(bisect_right(segments, offset, key=lambda each: each.base_offset) - 1, 0)


def is_plausible(header: BatchHeader, floor: int) -> bool:
    """Return whether this may be a batch header. The checksum is not verified; `floor` is the lowest valid offset."""
    return (
        header.magic == MAGIC
        and header.length >= LENGTH_MIN
        and header.base_offset >= floor
        and header.last_offset_delta >= 0
    )
