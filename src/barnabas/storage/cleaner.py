"""Cleaning one log: reading closed segments, writing what is left of them, putting that in their place.

    00000000000000000000.log  ┐                                       ┌ 00000000000000000000.log.deleted
    00000000000000000812.log  ┼─► 00000000000000000000.log.cleaned ─► ┤ 00000000000000000812.log.deleted
                              ┘        (and its two indexes)          └ 00000000000000000000.log

`steps()` is run in a thread, a little at a time: it touches nothing but files of closed segments, which do not change,
and files that nobody else knows. `put_in_place` is run on the loop and does nothing but rename. Between the two the
log may have been cut, deleted or taken offline: `Cleaning.is_still_of` says so, and then what was written is thrown
away. Whoever reads an old segment goes on reading it: its file is renamed, and removed after file.delete.delay.ms.

A crash leaves one of these behind, and recovery.py ends it either way, as Kafka would:

    .cleaned            written, or half written          removed: the old segments are all there
    .swap               whole and on the disk             the old segments it covers go, it takes its place
    .deleted            replaced                          removed

Renames in one directory survive a crash in the order they were made in. Kafka counts on that as well.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from barnabas.errors import CorruptBatch, OutOfSpace, StorageError
from barnabas.storage import compaction
from barnabas.storage.cleaner_output import CLEANED, FILES, SWAP, Output, remove_output
from barnabas.storage.compaction import Cleanable, LogFacts, SegmentFacts
from barnabas.storage.compaction_batches import Survival, cleaned, keys
from barnabas.storage.index import OFFSET_ENTRY, TIME_ENTRY
from barnabas.storage.paths import segment_path
from barnabas.storage.segment import Segment
from barnabas.wire.records import BatchHeader, read_header
from barnabas.world.ports import Disk

if TYPE_CHECKING:
    from barnabas.storage.log import Log

logger = logging.getLogger(__name__)

STEP_BYTES = 256 << 10
STEP_RECORDS = 200
"""About two milliseconds of computing, whatever the size of the records."""
BYTES_PER_KEY = 160
"""What a key, its offset and their place in the map take, measured."""


class Limits(Struct, frozen=True, kw_only=True):
    """What one cleaning may use."""

    map_bytes: int
    buffer_bytes: int

    @property
    def keys_max(self) -> int:
        return max(self.map_bytes // BYTES_PER_KEY, 1)


class Tally(Struct, kw_only=True):
    bytes_read: int = 0
    bytes_kept: int = 0
    records_read: int = 0
    records_kept: int = 0


class Replacement(Struct, frozen=True, kw_only=True):
    """A segment that stands ready in `.cleaned` files, for those that it is to replace."""

    old: tuple[Segment, ...]
    base_offset: int


Step = int | Replacement
"""So many bytes were read and written, or something is to be put in place."""


def facts_of(log: Log) -> LogFacts:
    with_times = compaction.needs_timestamps(log.config)
    closed, active = log.segments[:-1], log.segments.active
    if closed and active.size == 0:
        # The last record of a log stays, whatever it is: readers go on until they have seen one before the end.
        active = closed.pop()
    return LogFacts(
        closed=[facts_of_segment(segment, with_times) for segment in closed],
        active_base=active.base_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        stable_offset=stable_offset(log),
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


def stable_offset(log: Log) -> int:
    begun = (producer.transaction_first_offset for producer in log.producers.by_id.values())
    return min((log.watermark, *(offset for offset in begun if offset >= 0)))


class Cleaning:
    """One round over one log. Made on the loop; its `steps` are run elsewhere, one at a time."""

    def __init__(self, log: Log, found: Cleanable, limits: Limits, *, now_ms: int) -> None:
        self.log = log
        self.config = log.config
        self.cuts = log.cuts
        self.found = found
        self.limits = limits
        self.now_ms = now_ms
        self.disk = log.disk.aside()
        """Its own descriptors: those of the log belong to the loop."""
        self.segments = [
            segment
            for segment in log.segments[:-1]
            if segment.base_offset < found.first_uncleanable
        ]
        self.last_offset_of = {
            producer_id: producer.batches[-1].last_offset
            for producer_id, producer in log.producers.by_id.items()
            if producer.batches
        }
        self.latest: dict[bytes, int] = {}
        self.cleaned_to = found.first_dirty
        """The first offset that is dirty after this round, once the keys are read."""
        self.tally = Tally()

    def is_still_of(self, log: Log | None) -> bool:
        """Whether what is written here may still take its place."""
        return log is self.log and log.cuts == self.cuts and log.config.compacts

    # ---- elsewhere ----------------------------------------------------------------------------------------------

    def steps(self) -> Generator[Step, None, None]:
        yield from self.read_keys()
        survival = Survival(
            latest=self.latest,
            mapped_to=self.cleaned_to,
            now_ms=self.now_ms,
            delete_retention_ms=self.config.delete_retention_ms,
            last_offset_of=self.last_offset_of,
        )
        by_base = {segment.base_offset: segment for segment in self.segments}
        facts = [
            SegmentFacts(segment.base_offset, segment.size, self.index_bytes(segment))
            for segment in self.segments
            if segment.base_offset < self.cleaned_to
        ]
        for group in compaction.groups(facts, self.config, self.found.first_uncleanable):
            old = tuple(by_base[each.base_offset] for each in group)
            yield from self.rewrite(old, survival)
            yield Replacement(old=old, base_offset=old[0].base_offset)

    def read_keys(self) -> Iterator[int]:
        """Note the last offset of each key of the dirty part; of as much of it as there is room for."""
        latest, keys_max = self.latest, self.limits.keys_max
        first_dirty = self.found.first_dirty
        bases = [segment.base_offset for segment in self.segments]
        ends = [*bases[1:], self.found.first_uncleanable][: len(bases)]
        for segment, end in zip(self.segments, ends, strict=True):
            if end <= first_dirty:
                continue
            done = records = 0
            for header, batch in self.batches(segment):
                if header.last_offset >= first_dirty:
                    for offset, key in keys(batch, header):
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

    def rewrite(self, old: Sequence[Segment], survival: Survival) -> Iterator[int]:
        """Write what is left of these into `.cleaned` files, and all of that to the disk."""
        target = Output(self.disk, self.log.directory, old[0].base_offset, self.config, self.now_ms)
        try:
            done = records = 0
            for segment in old:
                for header, batch in self.batches(segment):
                    left = cleaned(batch, header, survival)
                    if left is not None:
                        new = read_header(left)
                        target.add(left, new)
                        self.tally.records_kept += new.count
                    done += header.size
                    records += header.count
                    self.tally.records_read += header.count
                    if target.waiting_bytes >= self.limits.buffer_bytes:
                        done += target.waiting_bytes
                        target.write()
                        yield done
                        done = records = 0
                    elif done >= STEP_BYTES or records >= STEP_RECORDS:
                        yield done
                        done = records = 0
                self.tally.bytes_read += segment.size
            self.tally.bytes_kept += target.size
            target.finish(self.disk.modified_ms(old[-1].log.path))
        finally:
            target.close()
        yield done

    def batches(self, segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch of a closed segment, its checksum verified: what is damaged must not be written anew with a
        checksum that is right."""
        source = Segment(
            self.disk,
            segment.path,
            self.disk.open(segment.path + ".log"),
            base_offset=segment.base_offset,
            index_interval=0,
            now_ms=0,
        )
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
        """Of the larger of its two indexes."""
        sizes = [0]
        for suffix, entry in ((".index", OFFSET_ENTRY), (".timeindex", TIME_ENTRY)):
            with suppress(StorageError):
                sizes.append(self.disk.size(segment.path + suffix) // entry.size * entry.size)
        return max(sizes)

    # ---- on the loop --------------------------------------------------------------------------------------------

    def throw_away(self) -> None:
        """What was written and not put in place. The directory may be gone with its topic."""
        for segment in self.segments:
            with suppress(StorageError):
                remove_output(self.disk, self.log.directory, segment.base_offset)


def put_in_place(log: Log, replacement: Replacement, now_ms: int) -> bool:
    """Let the `.cleaned` files stand for the old segments; False if those are not all in the log any more."""
    old = replacement.old
    if not log.segments.holds_run(old):
        return False
    disk, path = log.disk, segment_path(log.directory, replacement.base_offset)
    rename_all(disk, path, CLEANED, SWAP)
    try:
        for segment in old:
            keeps_snapshot = segment.base_offset == replacement.base_offset
            segment.rename_deleted(keep_snapshot=keeps_snapshot)
        rename_all(disk, path, SWAP, "")
    except OutOfSpace as error:
        # Half of it is done. What is on the disk can be put right by the next start alone.
        raise StorageError(error.path, error.why) from error
    fresh = Segment(
        disk,
        path,
        disk.open(path + ".log"),
        base_offset=replacement.base_offset,
        index_interval=log.config.index_interval_bytes,
        now_ms=now_ms,
    )
    log.replace_segments(old, fresh, now_ms)
    return True


def rename_all(disk: Disk, path: str, before: str, after: str) -> None:
    for suffix in FILES:
        disk.rename(path + suffix + before, path + suffix + after)
