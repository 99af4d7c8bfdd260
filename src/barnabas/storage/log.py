"""The log of one partition: batches in order, spread over segments, each record numbered once and for ever.

    log start ≤ … ≤ high watermark ≤ … ≤ log end            recovery point: up to here fsync is known

    <directory>/00000000000000000000.log .index .timeindex     closed segments
                00000000000000004711.log                       the active one; its indexes are in memory
                00000000000000004711.snapshot                  producers.py, as of offset 4711
                leader-epoch-checkpoint  partition.metadata    epochs.py; the topic's id

Order of effects in an append: check, write the batch with one call, then memory. A write that fails leaves the log as
it was, so it goes on when the disk does. Nothing here waits for the disk: `begin_flush` says what is to be fsynced, the
caller does it off the loop, and `end_flush` moves the recovery point. Batches are written as they came, but for their
offset and leader epoch; they are not opened, unless a topic's settings ask for something the header does not tell.

Time comes in as `now_ms`. recovery.py opens a log that exists, retention.py says which segments may go.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID
from zlib import crc32

from barnabas.config.topic import TopicConfig
from barnabas.errors import ApiError, ErrorCode, OutOfSpace, StorageError
from barnabas.model import NO_TIMESTAMP
from barnabas.storage import (
    acceptance,
    checking,
    flushing,
    follower,
    retention,
    snapshots,
    timestamps,
    truncation,
)
from barnabas.storage import epochs as leader_epochs
from barnabas.storage.acceptance import Validation
from barnabas.storage.checkpoints import PARTITION_METADATA, encode_partition_metadata
from barnabas.storage.compaction import NEVER_CLEANED
from barnabas.storage.epochs import LeaderEpochs
from barnabas.storage.flushing import Flush
from barnabas.storage.follower import FollowerAppend
from barnabas.storage.index import MAX_RELATIVE_OFFSET
from barnabas.storage.producers import EXPIRATION_MS, Producers
from barnabas.storage.segment import Segment
from barnabas.storage.tail import Tail
from barnabas.storage.timestamps import TimestampOffset
from barnabas.wire.records import (
    LOG_APPEND_TIME,
    BatchHeader,
    stamp,
    stamp_log_append_time,
)
from barnabas.world.ports import Disk, FileSlice

logger = logging.getLogger(__name__)

LONG_MAX = 2**63 - 1

new_tuple: Callable[..., Any] = tuple.__new__


class AppendInfo(NamedTuple):
    """Where a produced batch went. `log_append_time` is −1 where the topic keeps the producer's time, but for a
    duplicate, of which Kafka tells the timestamp either way."""

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool = False


class LogRead(NamedTuple):
    """Bytes to be sent. `first_incomplete`: not even the first batch fits the limit, so nothing can be decoded."""

    slices: tuple[FileSlice, ...]
    size: int
    first_incomplete: bool = False
    unchecked: Segment | None = None
    """Nobody has verified these bytes since the start: not to be sent before `checking.check` was here."""


NOTHING = LogRead((), 0)


class Log:
    __slots__ = (
        "active",
        "bases",
        "bound_at",
        "bound_offset",
        "cleaned_to",
        "closed_bytes",
        "config",
        "cuts",
        "deleted",
        "directory",
        "directory_changes",
        "directory_synced",
        "disk",
        "epochs",
        "flush_messages",
        "is_rewritten",
        "keeps_codec",
        "log_append_time",
        "log_end_offset",
        "log_start_offset",
        "looks_into_records",
        "max_batch_bytes",
        "max_entries",
        "on_truncated",
        "parent_synced",
        "paths_synced",
        "producer_expiration_ms",
        "producers",
        "recovery_point",
        "roll_ms",
        "saved_end",
        "segment_bytes",
        "segments",
        "tail",
        "timestamp_after_max_ms",
        "topic_id",
        "unflushed_since_ms",
        "unsynced_paths",
        "watermark",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: TopicConfig,
        segments: list[Segment],
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: Producers,
        topic_id: UUID | None,
        producer_expiration_ms: int = EXPIRATION_MS,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.closed_bytes = sum(segment.size for segment in segments[:-1])
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.watermark = log_start_offset
        self.epochs = epochs
        self.producers = producers
        self.producer_expiration_ms = producer_expiration_ms
        self.topic_id = topic_id
        self.on_truncated: Callable[[], None] | None = None
        """Called when the recovery point went back, so that no stale checkpoint outlives it."""
        self.tail = Tail()
        self.bound_offset = -1
        self.bound_at = 0
        self.unflushed_since_ms = -1
        # Flushes may overlap, so each counts how far it went and nothing is struck off before one has ended.
        self.unsynced_paths: list[str] = []
        self.paths_synced = 0
        self.directory_changes = 0
        self.directory_synced = 0
        self.parent_synced = True
        self.saved_end = -1
        """The log end for which the active segment's indexes and the producers stand in their files."""
        self.deleted: list[tuple[int, Segment]] = []
        """By the time their files may go."""
        self.cleaned_to = NEVER_CLEANED
        """Up to here compaction has been; a checkpoint."""
        self.is_rewritten = False
        """Somebody is writing what is to replace segments of it."""
        self.cuts = 0
        """How often records were taken off the end or made anew: who works on a segment elsewhere compares."""
        self.use_config(config)

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        config: TopicConfig,
        *,
        topic_id: UUID | None,
        now_ms: int,
        start_offset: int = 0,
        producer_expiration_ms: int = EXPIRATION_MS,
    ) -> Log:
        """A new, empty log. It is on the disk for good after the first flush."""
        disk.make_directory(directory)
        interval = config.index_interval_bytes
        first = Segment.create(
            disk, directory, start_offset, index_interval=interval, now_ms=now_ms
        )
        log = cls(
            disk,
            directory,
            config,
            [first],
            log_start_offset=start_offset,
            log_end_offset=start_offset,
            recovery_point=start_offset,
            epochs=LeaderEpochs(),
            producers=Producers(),
            topic_id=None,
            producer_expiration_ms=producer_expiration_ms,
        )
        log.parent_synced = False
        log.directory_changes = 1
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    def use_config(self, config: TopicConfig) -> None:
        """Settings may change while the log is open; what an append needs of them is worked out here, once."""
        self.config = config
        self.flush_messages = config.flush_messages
        self.keeps_codec = config.compression_type == "producer"
        self.max_batch_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.max_entries = min(
            config.segment_index_bytes // 8, config.segment_index_bytes // 12 - 1
        )
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        if jitter:
            jitter = crc32(self.directory.encode()) % jitter
        self.roll_ms = config.segment_ms - jitter
        if config.compacts:
            # What is in the active segment cannot be compacted, however long it has been there.
            self.roll_ms = min(config.segment_ms, config.max_compaction_lag_ms) - jitter
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.timestamp_after_max_ms = (
            LONG_MAX if self.log_append_time else config.message_timestamp_after_max_ms
        )
        # Only these two need the records themselves.
        self.looks_into_records = (
            "compact" in config.cleanup_policy or config.message_timestamp_before_max_ms < LONG_MAX
        )
        for segment in self.segments:
            segment.index_interval = config.index_interval_bytes

    def assign_topic_id(self, topic_id: UUID) -> None:
        path = f"{self.directory}/{PARTITION_METADATA}"
        self.disk.replace_bytes(path, encode_partition_metadata(topic_id), sync=False)
        self.topic_id = topic_id
        self.unsynced_paths.append(path)
        self.directory_changes += 1

    # ---- where we stand -----------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        return self.watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        """Kept between log start and log end."""
        self.watermark = max(self.log_start_offset, min(offset, self.log_end_offset))

    @property
    def earliest(self) -> TimestampOffset:
        """Where a reader may begin. No timestamp belongs to it."""
        start = self.log_start_offset
        return TimestampOffset(NO_TIMESTAMP, start, self.epochs.epoch_at(start))

    @property
    def size_bytes(self) -> int:
        return self.closed_bytes + self.active.size

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    # ---- append -------------------------------------------------------------------------------------------------

    def validate(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, if_small: bool = False
    ) -> None:
        """Check the records of a batch; ApiError if a leader must not append it. Safe to call in a thread."""
        if self.looks_into_records or header[8] - now_ms > self.timestamp_after_max_ms:
            acceptance.check_records(batch, header, self.config, now_ms, if_small=if_small)
        else:
            acceptance.check_contents(batch, header, if_small=if_small)

    def append_as_leader(
        self,
        batch: memoryview,
        header: BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        validation: Validation = Validation.FULL,
    ) -> AppendInfo:
        """Assign offsets to one batch whose header is valid, and write it. `batch` is stamped in place.

        A batch that this producer sent before is not written again: the answer carries the offsets it has.
        """
        size = header[1] + 12
        if size > self.max_batch_bytes or size > self.segment_bytes:
            raise acceptance.too_large(size, self.config)
        if header[5] & LOG_APPEND_TIME:
            header = acceptance.in_producers_time(batch, header, self.config)
        timestamp = header[8]
        if validation is not Validation.DONE:
            self.validate(batch, header, now_ms, if_small=validation is Validation.IF_SMALL)
        producer_id = header[9]
        if producer_id >= 0:
            written = self.producers.check(header)
            if written is not None:
                return AppendInfo(
                    written.first_offset,
                    written.last_offset,
                    written.timestamp,
                    self.log_start_offset,
                    True,
                )
        first = self.log_end_offset
        last = first + header[6]
        appended_at = NO_TIMESTAMP
        if self.log_append_time:
            stamp_log_append_time(batch, 0, now_ms)
            timestamp = appended_at = now_ms
        stamp(batch, 0, first, header[1], leader_epoch)
        if leader_epoch != self.epochs.latest:
            self.assign_epoch(leader_epoch, first)
        elif self.epochs.unsaved:
            self.save_epochs()
        segment = self.active
        if self.must_roll(segment, size, timestamp, last, now_ms):
            segment = self.roll(now_ms)
        position = segment.size
        segment.append(batch, size, last, timestamp, last)
        self.log_end_offset = last + 1
        if self.unflushed_since_ms < 0:
            self.unflushed_since_ms = now_ms
        self.tail.append(first, position)
        if producer_id >= 0:
            self.producers.record(header, first, timestamp)
        info: AppendInfo = new_tuple(
            AppendInfo, (first, last, appended_at, self.log_start_offset, False)
        )
        return info

    def append_as_follower(self, data: memoryview, now_ms: int = 0) -> FollowerAppend:
        """Take over whole batches as the leader numbered them; one that is cut short at the end is left out."""
        return follower.append(self, data, now_ms)

    # ---- read ---------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, upper_bound: int, at_least_one: bool = True
    ) -> LogRead:
        """Batches from the one that holds `offset` on, none that reaches beyond `upper_bound`, all of one segment.

        `at_least_one`: the first batch comes whole even if it is larger than `max_bytes`. The last one may be cut.
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            why = f"offset {offset} is not within {self.log_start_offset}..{end}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
        if offset >= upper_bound or offset == end:
            return NOTHING
        if self.tail.holds(offset):
            segment = self.active
            position, batch_end = self.tail.batch_of(offset, segment.size)
        else:
            at = bisect_right(self.bases, offset) - 1
            segment = self.segments[at]
            found = segment.find(offset)
            while found is None:
                at += 1
                if at >= len(self.segments):
                    return NOTHING
                segment = self.segments[at]
                found = segment.find(offset)
            position = found.position
            batch_end = position + found.header.size
        limit = self.position_of_bound(segment, upper_bound)
        wanted = max_bytes
        if wanted < batch_end - position and at_least_one:
            wanted = batch_end - position
        size = min(wanted, limit - position)
        if size <= 0:
            return NOTHING
        unchecked = None
        if position < segment.unchecked_to:
            size, unchecked = checking.sendable(segment, position, size)
        part = FileSlice(segment.log, position, size)
        return LogRead((part,), size, position + size < batch_end, unchecked)

    def position_of_bound(self, segment: Segment, bound: int) -> int:
        """Where reading in this segment must stop so that nothing at or beyond `bound` is read."""
        if bound >= self.log_end_offset:
            return segment.size
        if bound <= segment.base_offset:
            return 0
        if segment is self.active:
            if self.tail.holds(bound):
                return self.tail.batch_of(bound, segment.size)[0]
        elif bound >= self.bases[bisect_right(self.bases, segment.base_offset)]:
            return segment.size
        if bound != self.bound_offset:
            found = segment.find(bound)
            self.bound_at = found.position if found else segment.size
            self.bound_offset = bound
        return self.bound_at

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or behind `timestamp`."""
        return timestamps.first_at_or_after(self.segments, timestamp, self.log_start_offset)

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        return timestamps.largest(self.segments)

    def segment_base_offsets_newest_first(
        self, timestamp: int, max_count: int, now_ms: int
    ) -> list[int]:
        """What ListOffsets v0 is answered with: where segments begin that were last written at or before `timestamp`
        (-1: up to the log end, -2: the log start alone)."""
        return timestamps.offsets_before(
            self.segments,
            timestamp,
            max_count,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            now_ms=now_ms,
        )

    # ---- roll ---------------------------------------------------------------------------------------------------

    def must_roll(
        self, segment: Segment, size: int, timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        if segment.size == 0:
            segment.created_ms = segment.created_ms or now_ms
            return last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        first = segment.first_timestamp
        if first < -1:
            first = segment.first_batch_timestamp()
        return (
            segment.size + size > self.segment_bytes
            or (timestamp - first if first >= 0 else now_ms - segment.created_ms) > self.roll_ms
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or (segment.offsets is not None and len(segment.offsets) >= self.max_entries)
        )

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Close the active segment and begin a new one. Memory changes last: if the disk refuses, the active segment
        stays the active one."""
        active = self.active
        base = self.log_end_offset if base_offset is None else base_offset
        if active.size == 0 and active.base_offset == base:
            return active
        fresh = self.new_segment(base, now_ms)
        try:
            written = [active.log.path, *active.write_indexes()]
            if self.log_end_offset == base:
                written.append(self.take_snapshot())
        except StorageError:
            fresh.close()
            self.disk.remove(fresh.log.path)
            raise
        active.forget_entries()
        self.unsynced_paths += written
        self.directory_changes += 1
        self.closed_bytes += active.size
        self.segments.append(fresh)
        self.bases.append(base)
        self.active = fresh
        self.tail.clear()
        self.bound_offset = -1
        return fresh

    def take_snapshot(self) -> str:
        return snapshots.take(self.disk, self.directory, self.log_end_offset, self.producers)

    def new_segment(self, base_offset: int, now_ms: int) -> Segment:
        interval = self.config.index_interval_bytes
        return Segment.create(
            self.disk, self.directory, base_offset, index_interval=interval, now_ms=now_ms
        )

    def begin_epoch(self, epoch: int) -> None:
        """On becoming leader. The file may wait until there is time for it or a record comes: an epoch without records
        is nothing a start would miss."""
        self.epochs.assign(epoch, self.log_end_offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """`epoch` begins at `start_offset`, with the first batch that carries it."""
        self.epochs.assign(epoch, start_offset)
        self.save_epochs()

    def save_epochs(self) -> None:
        if self.epochs.unsaved:
            path = f"{self.directory}/{leader_epochs.FILE_NAME}"
            self.disk.replace_bytes(path, self.epochs.encode(), sync=False)
            self.epochs.unsaved = False
            self.unsynced_paths.append(path)
            self.directory_changes += 1

    # ---- flush --------------------------------------------------------------------------------------------------

    def flush_due(self, now_ms: int) -> bool:
        """The topic's flush policy asks for it, or a segment was closed since the last time."""
        if self.unflushed_messages <= 0:
            return False
        return (
            self.recovery_point < self.active.base_offset
            or self.unflushed_messages >= self.flush_messages
            or now_ms - self.unflushed_since_ms >= self.config.flush_ms
        )

    def begin_flush(self) -> Flush:
        """What to fsync now. Appends may go on meanwhile; they belong to the next flush."""
        return flushing.begin(self)

    def end_flush(self, flush: Flush) -> None:
        """The flush was done. A truncation that happened meanwhile is respected."""
        flushing.end(self, flush)

    # ---- cutting ------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int = 0) -> bool:
        """Drop everything from `offset` on; True if there was anything. A batch that spans it goes as a whole."""
        return truncation.truncate_to(self, offset, now_ms)

    def truncate_fully_and_start_at(
        self, offset: int, *, log_start_offset: int | None = None, now_ms: int = 0
    ) -> None:
        """Nothing that is here is of use: begin anew at `offset`."""
        start = offset if log_start_offset is None else log_start_offset
        truncation.truncate_fully_and_start_at(self, offset, start, now_ms)

    def advance_log_start(self, offset: int) -> bool:
        """DeleteRecords, or the leader's log start on a follower. Segments wholly below go with the next retention."""
        if offset > self.watermark:
            why = f"{offset} is beyond the high watermark {self.watermark}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        # Retention must go on when the disk is full, and an old file says too much, not too little.
        with suppress(OutOfSpace):
            self.save_epochs()
        return True

    def delete_old_segments(self, now_ms: int) -> int:
        """Retention; the number of segments that went. Their files follow after file.delete.delay.ms (`purge`)."""
        return retention.delete_old_segments(self, now_ms)

    def purge(self, now_ms: int) -> None:
        """Remove the files of deleted segments whose delay is over."""
        retention.purge(self, now_ms)

    def expire_producers(self, monotonic_ms: int) -> None:
        """Called periodically, with the time of a monotonic clock (`Producers.expire`)."""
        self.producers.expire(monotonic_ms, self.producer_expiration_ms)

    # ---- close --------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool) -> None:
        """`clean`: everything is on the disk when this returns, and the next start need not check it."""
        if clean:
            self.save_epochs()
            if self.saved_end != self.log_end_offset:
                self.save_active()
            flush = self.begin_flush()
            if len(flush.files) > 1 or flush.directories or self.unflushed_messages:
                self.disk.sync_now(flush.files, flush.directories)
            self.end_flush(flush)
        for segment in (*self.segments, *(deleted for _, deleted in self.deleted)):
            segment.close()

    def save_active(self) -> None:
        """Put into files what the next start would otherwise have to read the active segment for."""
        if self.active.size:
            self.unsynced_paths += self.active.write_indexes()
            self.unsynced_paths.append(self.take_snapshot())
            self.directory_changes += 1
        end = self.log_end_offset
        needed = {*self.bases, end}
        snapshots.drop(self.disk, self.directory, lambda offset: offset not in needed)
        self.saved_end = end


def parent(directory: str) -> str:
    return directory.rpartition("/")[0]
