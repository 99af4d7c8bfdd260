"""The log of one partition: record batches in offset order, stored in segments.

    log start ≤ last stable offset ≤ high watermark ≤ log end offset   recovery point: everything before it is on disk

    <directory>/00000000000000000000.log .index .timeindex     closed segments; .txnindex (transaction_index.py)
                00000000000000004711.log                       active segment; its indexes are in memory
                00000000000000004711.snapshot                  producer state as of offset 4711 (producers.py)
                leader-epoch-checkpoint                        epochs.py
                partition.metadata                             topic id

Order of effects in an append: validate, write the batch with one call, change memory. A write that fails leaves the log
unchanged, so appends succeed again when the disk recovers. A leader validates a batch (batch/validation.py) and writes
it as received, unless the topic requires another codec. It only stamps fields of the header: base offset, leader epoch
and, if the topic uses it, the log append time.

Order of effects in a truncation: segment files, all of memory, then the files that describe the log. Only the last step
needs free disk space. If it fails, memory and segments agree and the log remains usable. In particular the producer
state never contains a removed batch: a retry of that batch would be acknowledged as a duplicate.

No method waits for an fsync, except a truncation, `purge` and a clean `close`. recovery.py opens an existing log.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas.batch.header import BatchHeader, stamp, stamp_log_append_time
from barnabas.batch.validation import BatchValidator
from barnabas.config.topic import TopicConfig
from barnabas.errors import ApiError, ErrorCode, OutOfSpace, StorageError
from barnabas.model import NO_TIMESTAMP
from barnabas.storage import append_sets, producer_updates, retention, snapshots, timestamps
from barnabas.storage import epochs as leader_epochs
from barnabas.storage.aborted_transactions import load_aborted
from barnabas.storage.append_sets import FollowerAppend
from barnabas.storage.checkpoints import PARTITION_METADATA, encode_partition_metadata
from barnabas.storage.compaction import NEVER_CLEANED
from barnabas.storage.epochs import LeaderEpochs
from barnabas.storage.flush_state import Flush, FlushState
from barnabas.storage.producers import EXPIRATION_MS, Producers, Verification
from barnabas.storage.roll_policy import RollPolicy
from barnabas.storage.segment import Segment
from barnabas.storage.segment_list import NOTHING, LogRead, SegmentList
from barnabas.storage.timestamps import TimestampOffset
from barnabas.world.ports import Disk

logger = logging.getLogger(__name__)

new_tuple: Final[Callable[..., Any]] = tuple.__new__


class AppendInfo(NamedTuple):
    """The result of a leader's append. `log_append_time` is -1 if the topic uses create time. For a duplicate it is the
    timestamp of the first copy, as in Kafka."""

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    is_duplicate: bool = False


class Log:
    """The log of one partition. Invariant: log start offset ≤ high watermark ≤ log end offset."""

    __slots__ = (
        "cleaned_to",
        "config",
        "directory",
        "disk",
        "epochs",
        "flush_messages",
        "flush_state",
        "is_being_rewritten",
        "log_end_offset",
        "log_start_offset",
        "on_truncated",
        "producer_expiration_ms",
        "producers",
        "revision",
        "roll_policy",
        "saved_end",
        "segments",
        "topic_id",
        "uses_log_append_time",
        "validator",
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
        self.segments = SegmentList(segments)
        self.flush_state = FlushState(disk, directory, recovery_point)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.watermark = log_start_offset
        """The high watermark. If a new value may be outside the log, set `high_watermark` instead, which clamps it."""
        self.epochs = epochs
        self.producers = producers
        self.producer_expiration_ms = producer_expiration_ms
        self.topic_id = topic_id
        self.on_truncated: Callable[[], None] | None = None
        """Called after a truncation that lowered the recovery point: the checkpoint on disk is then too high."""
        self.saved_end = -1
        """Log end offset as of which the active segment's indexes and the producer state were written to files."""
        self.cleaned_to = NEVER_CLEANED
        """Offset up to which the log has been compacted. Checkpointed."""
        self.is_being_rewritten = False
        """Whether a compaction or a repair is writing a replacement for segments of this log."""
        self.revision = 0
        """Number of truncations and repairs. If it changes while a thread works on a segment, the result is ignored."""
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
        """Create an empty log. A power loss may remove it until the first flush."""
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
        log.flush_state.add_directory()
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    def use_config(self, config: TopicConfig) -> None:
        """Apply the topic's settings, at any time. Precomputes the values that every append needs."""
        self.config = config
        self.flush_messages = config.flush_messages
        self.uses_log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.validator = BatchValidator(config)
        self.roll_policy = RollPolicy(config, self.directory)
        for segment in self.segments:
            segment.index_interval = config.index_interval_bytes

    def assign_topic_id(self, topic_id: UUID) -> None:
        path = f"{self.directory}/{PARTITION_METADATA}"
        self.disk.replace_bytes(path, encode_partition_metadata(topic_id), sync=False)
        self.topic_id = topic_id
        self.flush_state.add_files(path)

    # ---- offsets and sizes ------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        return self.watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        """Set the high watermark, clamped to the range from log start offset to log end offset."""
        self.watermark = max(self.log_start_offset, min(offset, self.log_end_offset))

    @property
    def last_stable_offset(self) -> int:
        """Offset below which all transactions are decided (producers.py): the end of the log for read_committed."""
        producers = self.producers
        if not producers.has_undecided():
            return self.watermark
        # The beginning of an open transaction may be deleted.
        return max(self.log_start_offset, producers.last_stable_offset(self.watermark))

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def recovery_point(self) -> int:
        return self.flush_state.recovery_point

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.flush_state.recovery_point

    def next_segment_offset(self, offset: int) -> int:
        """Return the base offset of the first segment that begins after `offset`, or else the log end offset."""
        bases = self.segments.bases
        at = bisect_right(bases, offset)
        return bases[at] if at < len(bases) else self.log_end_offset

    # ---- append -----------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batch: memoryview,
        header: BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        verification: Verification | None = None,
        checks_sequence: bool = True,
    ) -> AppendInfo:
        """Assign offsets to a batch that `validator` has accepted, or to a transaction marker, and write it.

        `batch` is stamped in place. A duplicate is not written again; the result has the offsets of the first copy.
        `verification` and `checks_sequence` are for transactional batches (Producers.check_transactional). Raises
        ApiError or StorageError.
        """
        size, timestamp, producer_id = header.size, header.max_timestamp, header.producer_id
        if producer_id >= 0:
            if header.is_transactional:
                written = producer_updates.check_transactional(
                    self.producers, header, batch, verification, checks_sequence
                )
            else:
                written = self.producers.check(header)
            if written is not None:
                offsets = written.first_offset, written.last_offset, written.timestamp
                return AppendInfo(*offsets, self.log_start_offset, is_duplicate=True)
        first = self.log_end_offset
        last = first + header.last_offset_delta
        appended_at = NO_TIMESTAMP
        if self.uses_log_append_time:
            stamp_log_append_time(batch, 0, now_ms)
            timestamp = appended_at = now_ms
        stamp(batch, 0, first, header.length, leader_epoch)
        if leader_epoch != self.epochs.latest:
            self.assign_epoch(leader_epoch, first)
        elif self.epochs.unsaved:
            self.save_epochs()
        segment = self.segments.active
        if self.roll_policy.is_due(segment, size, timestamp, last, now_ms):
            segment = self.roll(now_ms)
        position = segment.size
        segment.append(batch, size, last, timestamp, last)
        self.log_end_offset = last + 1
        flush_state = self.flush_state
        if flush_state.unflushed_since_ms < 0:
            flush_state.unflushed_since_ms = now_ms
        self.segments.tail.append(first, position)
        if producer_id >= 0:
            if header.is_control:
                self.apply_batch(BatchHeader(batch), batch)
            else:
                self.producers.record(header, first, timestamp)
        info: AppendInfo = new_tuple(
            AppendInfo, (first, last, appended_at, self.log_start_offset, False)
        )
        return info

    def apply_batch(self, header: BatchHeader, batch: memoryview) -> None:
        """Update the producer state and the transaction index with a batch at the end of the active segment."""
        aborted = producer_updates.apply_batch(self.producers, header, batch)
        if aborted is not None:
            self.segments.active.add_aborted(aborted)
        if header.is_control:
            self.producers.forget_decided(self.watermark)

    def append_as_follower(self, data: memoryview, now_ms: int = 0) -> FollowerAppend:
        """Append the complete batches in `data`, with the leader's offsets. Raises ApiError or StorageError."""
        headers = append_sets.verified_headers(data)
        if not headers:
            return append_sets.NOTHING_APPENDED
        first, at = headers[0], 0
        if first.base_offset < self.log_end_offset:
            self.begin_inside_batch(first, now_ms)
        while headers:
            max_bytes = self.roll_policy.bytes_until_roll(self.segments.active)
            count, size = append_sets.first_set(headers, max_bytes)
            self.append_set(data[at : at + size], headers[:count], now_ms)
            at, headers = at + size, headers[count:]
        return FollowerAppend(first.base_offset, self.log_end_offset - 1, at)

    def begin_inside_batch(self, first: BatchHeader, now_ms: int) -> None:
        """Move the end of an empty log back to the start of batch `first`, which contains the log start offset. After
        DeleteRecords the leader's log may start inside a batch, and a follower fetches the whole batch."""
        end = self.log_end_offset
        if self.size_bytes or first.last_offset < end:
            why = f"the log ends at {end}, the batch begins at {first.base_offset}"
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why)
        self.truncate_fully_and_start_at(first.base_offset, log_start_offset=end, now_ms=now_ms)

    def append_set(self, data: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Write consecutive batches, all of `data`, into one segment with one call."""
        size, last_offset = len(data), headers[-1].last_offset
        largest = max(headers, key=lambda header: header.max_timestamp)
        for header in headers:
            if header.partition_leader_epoch > self.epochs.latest:
                # In a log that starts inside a batch, the first epoch starts at the log start offset.
                epoch_start = max(header.base_offset, self.log_start_offset)
                self.assign_epoch(header.partition_leader_epoch, epoch_start)
        self.save_epochs()  # a truncation on a full disk may not have saved them
        segment, timestamp = self.segments.active, largest.max_timestamp
        if self.roll_policy.is_due(segment, size, timestamp, last_offset, now_ms):
            segment = self.roll(now_ms, base_offset=headers[0].base_offset)
        position = segment.size
        segment.append(data, size, last_offset, timestamp, largest.last_offset)
        tail, expected = self.segments.tail, self.log_end_offset
        self.log_end_offset = last_offset + 1
        if self.flush_state.unflushed_since_ms < 0:
            self.flush_state.unflushed_since_ms = now_ms
        at = 0
        for header in headers:
            if header.base_offset != expected:
                tail.clear()
            tail.append(header.base_offset, position + at)
            expected = header.next_offset
            end = at + header.size
            if header.producer_id >= 0:
                self.apply_batch(header, data[at:end])
            at = end

    # ---- read -------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, upper_bound: int, at_least_one: bool = True
    ) -> LogRead:
        """Read the batch with `offset` and the following ones, up to offset `upper_bound`, from one segment.

        `max_bytes` may cut the last batch. `at_least_one`: the first batch is complete even if it is larger. Raises
        ApiError if `offset` is not in the log.
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            why = f"offset {offset} is not within {self.log_start_offset}..{end}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
        if offset >= upper_bound or offset == end:
            return NOTHING
        bound = upper_bound if upper_bound < end else None
        return self.segments.read(offset, max_bytes, bound, at_least_one)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record with this timestamp or a later one, or None."""
        return timestamps.find_first_at_or_after(self.segments, timestamp, self.log_start_offset)

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        return timestamps.find_largest(self.segments)

    # ---- roll -------------------------------------------------------------------------------------------------

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Close the active segment, and return a new one. If the disk fails, the active segment stays active."""
        active = self.segments.active
        base = self.log_end_offset if base_offset is None else base_offset
        if active.size == 0 and active.base_offset == base:
            return active
        segment = self.new_segment(base, now_ms)
        try:
            written = [active.log.path, *active.write_indexes()]
            if self.log_end_offset == base:
                written.append(self.take_snapshot())
        except StorageError:
            segment.close()
            self.disk.remove(segment.log.path)
            raise
        active.free_entries()
        self.flush_state.add_files(*written)
        self.segments.add_active(segment)
        return segment

    def new_segment(self, base_offset: int, now_ms: int) -> Segment:
        interval = self.config.index_interval_bytes
        return Segment.create(
            self.disk, self.directory, base_offset, index_interval=interval, now_ms=now_ms
        )

    def take_snapshot(self) -> str:
        """Write the producer state as of the log end offset. Return the path of the file."""
        return snapshots.write_snapshot(
            self.disk, self.directory, self.log_end_offset, self.producers
        )

    # ---- leader epochs ----------------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        """Start an epoch as the leader, in memory. The first append saves it, unless `save_epochs` was called before:
        an epoch without records need not survive a restart."""
        self.epochs.assign(epoch, self.log_end_offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Start an epoch at the offset of its first batch, and save it."""
        self.epochs.assign(epoch, start_offset)
        self.save_epochs()

    def save_epochs(self) -> None:
        """Write the leader epochs to their file if they have changed."""
        if self.epochs.unsaved:
            path = f"{self.directory}/{leader_epochs.FILE_NAME}"
            self.disk.replace_bytes(path, self.epochs.encode(), sync=False)
            self.epochs.unsaved = False
            self.flush_state.add_files(path)

    # ---- flush ------------------------------------------------------------------------------------------------

    def is_flush_due(self, now_ms: int) -> bool:
        """Return whether flush.messages or flush.ms requires a flush, or a closed segment is not on disk."""
        unflushed = self.unflushed_messages
        return unflushed > 0 and (
            self.recovery_point < self.segments.active.base_offset
            or unflushed >= self.flush_messages
            or now_ms - self.flush_state.unflushed_since_ms >= self.config.flush_ms
        )

    def begin_flush(self) -> Flush:
        return self.flush_state.begin(self.segments.active.log, self.log_end_offset)

    def end_flush(self, flush: Flush) -> None:
        self.flush_state.end(flush, self.log_end_offset)

    # ---- truncate ---------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int = 0) -> bool:
        """Remove the batch with `offset` and all batches after it. Return False if there were none.

        Durable on return: if a removed file reappeared after a crash, its old records would follow the new ones.
        """
        if offset >= self.log_end_offset:
            # This broker may have started an epoch as leader without writing anything in it.
            self.epochs.truncate_from_end(self.log_end_offset)
            self.save_epochs()
            return False
        logger.info("truncating log=%s from=%d to=%d", self.directory, self.log_end_offset, offset)
        if offset < self.segments.bases[0]:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        self.revision += 1
        kept = bisect_right(self.segments.bases, offset) - 1
        self.segments[kept].aborted = load_aborted(
            self.disk, self.directory, self.segments, kept, end_offset=self.log_end_offset
        )
        self.segments.truncate(offset, now_ms)
        end = self.log_end_offset = self.segments.active.next_offset()
        start = self.log_start_offset = min(self.log_start_offset, end)
        self.watermark = min(self.watermark, end)
        snapshots.remove_snapshots(self.disk, self.directory, lambda snapshot: snapshot > end)
        if self.producers.by_id:
            self.producers = snapshots.rebuild_producers(
                self.disk, self.directory, self.segments, log_start_offset=start, end=end
            )
        self.finish_truncation()
        return True

    def truncate_fully_and_start_at(
        self, offset: int, *, log_start_offset: int | None = None, now_ms: int = 0
    ) -> None:
        """Remove all records. The next record gets `offset`; `log_start_offset` may be higher (begin_inside_batch)."""
        self.revision += 1
        self.epochs.clear()
        self.producers = Producers()
        self.segments.remove_files()
        self.segments.start_over(self.new_segment(offset, now_ms))
        self.log_end_offset = offset
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.watermark = offset
        snapshots.remove_snapshots(self.disk, self.directory, lambda _: True)
        self.finish_truncation()

    def finish_truncation(self) -> None:
        """Adjust the other fields to the new log end offset, then sync, then write files."""
        end = self.log_end_offset
        self.saved_end = -1
        self.epochs.truncate_from_end(end)
        self.cleaned_to = min(self.cleaned_to, end)
        is_lower = self.flush_state.truncate(end)
        self.disk.sync_now([self.segments.active.log], [self.directory])
        if is_lower and self.on_truncated is not None:
            self.on_truncated()
        self.save_epochs()

    # ---- delete -----------------------------------------------------------------------------------------------

    def advance_log_start(self, offset: int) -> bool:
        """Delete records before `offset`: DeleteRecords, retention, or the leader's log start offset on a follower.

        Retention later deletes the segments before it. Returns False if the log already starts at or after `offset`.
        Raises ApiError if `offset` is above the high watermark.
        """
        if offset > self.watermark:
            why = f"{offset} is beyond the high watermark {self.watermark}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        # Retention must work on a full disk. The old file is harmless: it has too many epochs, not too few.
        with suppress(OutOfSpace):
            self.save_epochs()
        return True

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention. Return the number of deleted segments; `purge` removes their files later."""
        segments = self.segments
        reasons = retention.reasons_to_delete(
            segments,
            self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=self.watermark,
            log_end_offset=self.log_end_offset,
            now_ms=now_ms,
        )
        if len(reasons) == len(segments):
            try:
                self.roll(now_ms)
            except OutOfSpace:
                reasons.pop()  # deleting the others frees disk space
        if not reasons:
            return 0
        count = len(reasons)
        self.advance_log_start(segments[count].base_offset)
        for segment, reason in zip(segments[:count], reasons, strict=True):
            logger.info(
                "deleting segment log=%s base_offset=%d bytes=%d reason=%s",
                *(self.directory, segment.base_offset, segment.size, reason),
            )
        segments.delete_first(count, now_ms + self.config.file_delete_delay_ms)
        return count

    def replace_segments(self, old: Sequence[Segment], replacement: Segment, now_ms: int) -> None:
        """Replace closed segments, whose files have been renamed, by a rewritten one."""
        self.segments.replace_run(old, replacement, now_ms + self.config.file_delete_delay_ms)
        self.flush_state.add_directory_change()

    def purge(self, now_ms: int) -> None:
        """Remove the files of deleted segments whose delay is over.

        Oldest first, and each removal is on disk before the next one. If a crash restored the first file without the
        second, offsets would be missing between segments, and recovery would truncate the log there.
        """
        deleted = self.segments.deleted
        while deleted and deleted[0][0] <= now_ms:
            self.flush_state.sync_directory()
            segment = deleted.pop(0)[1]
            segment.remove_files()
            if not segment.suffix:  # a `.deleted` file that reappears is ignored by the next start
                self.flush_state.add_directory_change()

    def save_producers_if_due(self) -> None:
        active = self.segments.active
        if snapshots.is_due(active.size - active.snapshot_size, self.producers):
            self.flush_state.add_files(self.take_snapshot())
            active.snapshot_size = active.size
            snapshots.remove_inside_closed_segments(self.disk, self.directory, self.segments.bases)

    def expire_producers(self, monotonic_ms: int) -> None:
        self.producers.expire(monotonic_ms, self.producer_expiration_ms)

    # ---- close ------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool) -> None:
        """Close all files. `clean`: write and fsync everything first, so that the next start need not recover."""
        if clean:
            self.save_epochs()
            if self.saved_end != self.log_end_offset:
                self.save_active()
            flush = self.begin_flush()
            if len(flush.files) > 1 or flush.directories or self.unflushed_messages:
                self.disk.sync_now(flush.files, flush.directories)
            self.end_flush(flush)
        self.segments.close()

    def save_active(self) -> None:
        """Write the indexes of the active segment and the producer state, so that a start need not rebuild them."""
        if self.segments.active.size:
            self.flush_state.add_files(*self.segments.active.write_indexes(), self.take_snapshot())
        needed = {*self.segments.bases, self.log_end_offset}
        snapshots.remove_snapshots(self.disk, self.directory, lambda offset: offset not in needed)
        self.saved_end = self.log_end_offset
