"""Compaction of one log: read closed segments, write the surviving records, replace the segments.

    00000000000000000000.log  ┐                                       ┌ 00000000000000000000.log.deleted
    00000000000000000812.log  ┼─► 00000000000000000000.log.cleaned ─► ┤ 00000000000000000812.log.deleted
                              ┘        (and its indexes)              └ 00000000000000000000.log

`Cleaning.steps` runs in a thread, one short step at a time. It reads closed segments, which do not change, and writes
files that nothing else uses. `put_in_place` runs on the event loop and only renames files. If the log was truncated,
deleted or taken offline in between (`Cleaning.applies_to`), the output is discarded. Readers of an old segment are not
interrupted: its file is renamed, and removed after file.delete.delay.ms.

A crash may leave these files. recovery.py completes or undoes the replacement, as Kafka does:

    .cleaned            partly or completely written      removed: all old segments still exist
    .swap               complete and on disk              replaces the old segments in its range
    .deleted            replaced                          removed

This relies, as in Kafka, on renames in one directory surviving a crash in the order in which they were made.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct

from barnabas.batch.header import BatchHeader
from barnabas.errors import CorruptBatch, OutOfSpace, StorageError
from barnabas.storage import compaction, transaction_index
from barnabas.storage.aborted_transactions import AbortedSearch
from barnabas.storage.cleaner_output import CLEANED, FILES, SWAP, SegmentOutput, remove_output
from barnabas.storage.compaction import CleanableRange, LogFacts, SegmentFacts
from barnabas.storage.compaction_batches import Survival, clean_batch, find_keys
from barnabas.storage.compaction_transactions import AbortedRanges, CleanedTransactions
from barnabas.storage.files import segment_path
from barnabas.storage.index import OFFSET_ENTRY, TIME_ENTRY
from barnabas.storage.log import Log
from barnabas.storage.segment import Segment
from barnabas.world.ports import Disk

logger = logging.getLogger(__name__)

STEP_BYTES = 256 << 10
STEP_RECORDS = 200
"""Limits of one step: about 2 ms of CPU time, for records of any size."""
BYTES_PER_KEY = 160
"""Measured memory of a key and its offset in the map."""


class Limits(Struct, frozen=True, kw_only=True):
    """Memory that one cleaning may use, in bytes."""

    map_bytes: int
    buffer_bytes: int

    @property
    def keys_max(self) -> int:
        return max(self.map_bytes // BYTES_PER_KEY, 1)


class CleaningStats(Struct, kw_only=True):
    """Bytes and records of one cleaning, before and after."""

    bytes_read: int = 0
    bytes_kept: int = 0
    records_read: int = 0
    records_kept: int = 0


class Replacement(Struct, frozen=True, kw_only=True):
    """A complete segment in `.cleaned` files, and the segments that it replaces."""

    old: tuple[Segment, ...]
    base_offset: int


Step = int | Replacement
"""Number of bytes read and written, or a complete output for `put_in_place`."""


def collect_facts(log: Log) -> LogFacts:
    with_times = compaction.needs_timestamps(log.config)
    closed, active = log.segments[:-1], log.segments.active
    if closed and active.size == 0:
        # Keep the last record of a log: some readers stop only when they get the record before the log end offset.
        active = closed.pop()
    return LogFacts(
        closed=[facts_of_segment(segment, with_times) for segment in closed],
        active_base=active.base_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        stable_offset=log.last_stable_offset,
        cleaned_to=log.cleaned_to,
    )


def facts_of_segment(segment: Segment, with_times: bool) -> SegmentFacts:
    if not with_times:
        return SegmentFacts(segment.base_offset, segment.size)
    segment.load_timestamps()
    return SegmentFacts(
        segment.base_offset,
        segment.size,
        first_timestamp=segment.first_batch_timestamp(),
        largest_timestamp=segment.largest_timestamp,
    )


class Cleaning:
    """One compaction of one log. Created on the event loop; `steps` runs in a thread."""

    def __init__(self, log: Log, cleanable: CleanableRange, limits: Limits, *, now_ms: int) -> None:
        self.log = log
        self.config = log.config
        self.revision = log.revision
        self.cleanable = cleanable
        self.limits = limits
        self.now_ms = now_ms
        self.disk = log.disk.for_thread()
        """With its own file descriptors: those of the log belong to the event loop."""
        self.segments = [
            segment
            for segment in log.segments[:-1]
            if segment.base_offset < cleanable.first_uncleanable
        ]
        self.last_offset_of = {
            producer_id: producer.batches[-1].last_offset
            for producer_id, producer in log.producers.by_id.items()
            if producer.batches
        }
        self.epoch_of = {
            producer_id: producer.epoch
            for producer_id, producer in log.producers.by_id.items()
            if not producer.batches
        }
        self.aborted_search = AbortedSearch(log.segments, log.log_end_offset)
        self.aborted = AbortedRanges(())
        """Complete when `steps` runs."""
        self.latest: dict[bytes, int] = {}
        self.cleaned_to = cleanable.first_dirty
        """Offset up to which the log is compacted after this cleaning. Final when all keys are read."""
        self.stats = CleaningStats()

    def applies_to(self, log: Log | None) -> bool:
        """Return whether the output may still replace segments of `log`."""
        return log is self.log and log.revision == self.revision and log.config.compacts

    # ---- in a thread ------------------------------------------------------------------------------------------

    def steps(self) -> Generator[Step, None, None]:
        base = self.segments[0].base_offset if self.segments else 0
        found = self.aborted_search.find(
            self.disk, self.log.directory, base, self.cleanable.first_uncleanable
        )
        self.aborted = AbortedRanges(found)
        yield from self.read_keys()
        survival = Survival(
            latest=self.latest,
            mapped_to=self.cleaned_to,
            now_ms=self.now_ms,
            delete_retention_ms=self.config.delete_retention_ms,
            last_offset_of=self.last_offset_of,
            epoch_of=self.epoch_of,
        )
        transactions = CleanedTransactions(self.aborted)
        by_base = {segment.base_offset: segment for segment in self.segments}
        facts = [
            SegmentFacts(segment.base_offset, segment.size, self.index_bytes(segment))
            for segment in self.segments
            if segment.base_offset < self.cleaned_to
        ]
        for group in compaction.group_segments(
            facts, self.config, self.cleanable.first_uncleanable
        ):
            old = tuple(by_base[each.base_offset] for each in group)
            yield from self.rewrite(old, survival, transactions)
            yield Replacement(old=old, base_offset=old[0].base_offset)

    def read_keys(self) -> Iterator[int]:
        """Collect the last offset of each key in the dirty part. Stops when the map is full. Yields bytes read."""
        latest, keys_max = self.latest, self.limits.keys_max
        first_dirty = self.cleanable.first_dirty
        bases = [segment.base_offset for segment in self.segments]
        ends = [*bases[1:], self.cleanable.first_uncleanable][: len(bases)]
        for segment, end in zip(self.segments, ends, strict=True):
            if end <= first_dirty:
                continue
            done = records = 0
            for header, batch in self.batches(segment):
                if header.last_offset >= first_dirty:
                    if not header.is_control and self.aborted.find(header) is None:
                        for offset, key in find_keys(batch, header):
                            if offset >= first_dirty:
                                latest[key] = offset
                    self.cleaned_to = max(self.cleaned_to, header.next_offset)
                    if len(latest) >= keys_max:
                        return
                done += header.size
                records += header.count
                if done >= STEP_BYTES or records >= STEP_RECORDS:
                    yield done
                    done = records = 0
            self.cleaned_to = max(self.cleaned_to, end)
            yield done

    def rewrite(
        self, old: Sequence[Segment], survival: Survival, transactions: CleanedTransactions
    ) -> Iterator[int]:
        """Write the surviving records to `.cleaned` files, and fsync them. Yields bytes read and written."""
        target = SegmentOutput(
            self.disk, self.log.directory, old[0].base_offset, self.config, self.now_ms
        )
        try:
            done = records = 0
            for segment in old:
                for header, batch in self.batches(segment):
                    cleaned = clean_batch(batch, header, survival, transactions)
                    if cleaned is not None:
                        new_header = BatchHeader(cleaned)
                        target.add(cleaned, new_header)
                        self.stats.records_kept += new_header.count
                    done += header.size
                    records += header.count
                    self.stats.records_read += header.count
                    if target.waiting_bytes >= self.limits.buffer_bytes:
                        done += target.waiting_bytes
                        target.write()
                        yield done
                        done = records = 0
                    elif done >= STEP_BYTES or records >= STEP_RECORDS:
                        yield done
                        done = records = 0
                self.stats.bytes_read += segment.size
            self.stats.bytes_kept += target.size
            for entry in transactions.take_kept():
                target.segment.add_aborted(entry)
            target.finish(self.disk.modified_ms(old[-1].log.path))
        finally:
            target.close()
        yield done

    def batches(self, segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield every batch of a closed segment. Raises CorruptBatch for a wrong checksum: a rewritten batch would get
        a valid one."""
        source = Segment(self.disk, segment.path, segment.base_offset)
        position = 0
        try:
            for position, header, batch in source.checked_batches(
                segment.base_offset, self.limits.buffer_bytes
            ):
                yield header, batch
                position += header.size
        finally:
            source.close()
        if position != segment.size:
            raise CorruptBatch(segment.path + ".log", "the checksum does not match", position)

    def index_bytes(self, segment: Segment) -> int:
        """Return the size of the larger of its two indexes."""
        sizes = [0]
        for suffix, entry in ((".index", OFFSET_ENTRY), (".timeindex", TIME_ENTRY)):
            with suppress(StorageError):
                sizes.append(self.disk.size(segment.path + suffix) // entry.size * entry.size)
        return max(sizes)

    # ---- on the event loop ------------------------------------------------------------------------------------

    def discard_output(self) -> None:
        """Remove output that was not put in place. The directory may have been deleted with its topic."""
        for segment in self.segments:
            with suppress(StorageError):
                remove_output(self.disk, self.log.directory, segment.base_offset)


def put_in_place(log: Log, replacement: Replacement, now_ms: int) -> bool:
    """Replace the old segments by the `.cleaned` files. Return False if an old segment is no longer in the log."""
    old = replacement.old
    if not log.segments.has_run(old):
        return False
    disk, path = log.disk, segment_path(log.directory, replacement.base_offset)
    rename_all(disk, path, CLEANED, SWAP)
    try:
        for segment in old:
            keeps_snapshot = segment.base_offset == replacement.base_offset
            segment.rename_deleted(keep_snapshot=keeps_snapshot)
        rename_all(disk, path, SWAP, "")
    except OutOfSpace as error:
        # Only a restart can complete the renames, so this counts as a disk failure and takes the directory offline.
        raise StorageError(error.path, error.why) from error
    interval = log.config.index_interval_bytes
    segment = Segment(disk, path, replacement.base_offset, index_interval=interval, now_ms=now_ms)
    log.replace_segments(old, segment, now_ms)
    return True


def rename_all(disk: Disk, path: str, before: str, after: str) -> None:
    for suffix in FILES:
        if suffix != transaction_index.SUFFIX or disk.exists(path + suffix + before):
            disk.rename(path + suffix + before, path + suffix + after)
