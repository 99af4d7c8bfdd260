"""Recovery: open an existing log after any kind of shutdown, crash or copy.

Result: the log has no invalid byte in the part that was read, and its indexes, leader epochs and producer state match
the batches. It has every batch that was fsynced, unless the disk has corrupted one.

After a clean shutdown only the end of the log is checked. Otherwise recovery reads every batch, with its checksum, from
the beginning of the segment that holds the recovery point. This includes the active segment:

    segment 0      segment 1          segment 2         segment 3
    ▓▓▓▓▓▓▓▓▓▓▓    ▓▓▓▓▓▓|▓▓▓▓▓▓▓     ▓▓▓▓▓▓▒░░░        ▓▓▓
    trusted        read               truncated here    removed
                         recovery point

Checkpointed offsets are hints. If one does not match the log, a warning is logged and the log on disk is trusted: no
record is removed only because of a checkpoint (checkpoint_validation.py).

The log ends at the first incomplete or corrupt batch, or at a gap between segments. Valid batches after it are removed:
consumers would not notice the missing offsets. In a log that is or was compacted, missing offsets are normal.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from uuid import UUID
from zlib import crc32

from msgspec import Struct

from barnabas.batch.header import crc_is_valid
from barnabas.config.topic import TopicConfig
from barnabas.errors import CorruptBatch, StorageError, reason
from barnabas.storage import (
    aborted_transactions,
    checkpoint_validation,
    checkpoints,
    snapshots,
    transaction_index,
)
from barnabas.storage import epochs as leader_epochs
from barnabas.storage.checkpoints import PARTITION_METADATA, decode_partition_metadata
from barnabas.storage.cleaner_output import CLEANED, SWAP
from barnabas.storage.compaction import LONG_MAX, NEVER_CLEANED
from barnabas.storage.epochs import LeaderEpochs
from barnabas.storage.files import EPOCHS_MAX, PROPERTIES_MAX, parent, read_head
from barnabas.storage.log import Log
from barnabas.storage.producer_updates import apply_batch
from barnabas.storage.producers import EXPIRATION_MS, Producers
from barnabas.storage.segment import DELETED, Segment, floor_index
from barnabas.world.ports import Disk

logger = logging.getLogger(__name__)

TEMPORARY = ".tmp"
OLD_HEAD = struct.Struct(">qiIb")
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")


class RecoveryState(Struct):
    """The result of reading the unflushed part of a log."""

    epochs: LeaderEpochs
    producers: Producers
    next_offset: int
    written: list[str]
    """Paths of files to flush."""
    last_epoch: int = leader_epochs.UNDEFINED
    """Leader epoch of the last batch."""
    is_truncated: bool = False


def open_log(
    disk: Disk,
    directory: str,
    config: TopicConfig,
    *,
    was_clean_shutdown: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
    high_watermark: int = 0,
    cleaned_to: int = NEVER_CLEANED,
    producer_expiration_ms: int = EXPIRATION_MS,
) -> Log:
    """Open a log. The offsets are checkpointed values. Raises StorageError."""
    finish_interrupted_compaction(disk, directory)
    drop_orphan_indexes(disk, directory)
    segments = list(find_segments(disk, directory, config, now_ms))
    epochs, are_epochs_known = load_epochs(disk, directory)
    log_start_offset = checkpoint_validation.usable_log_start(
        directory,
        segments,
        log_start_offset,
        epochs=epochs if are_epochs_known else None,
        high_watermark=high_watermark,
        was_clean_shutdown=was_clean_shutdown,
    )
    drop_deleted(segments, log_start_offset)
    if not are_epochs_known and any(segment.size for segment in segments):
        epochs = epochs_from_batches(segments)
    written: list[str] = []
    producers: Producers | None = None
    end, last_epoch = log_start_offset, leader_epochs.UNDEFINED
    if segments:
        valid_end = find_valid_end(segments[-1]) if was_clean_shutdown else None
        if valid_end is not None:
            end, last_epoch = valid_end
        else:
            recovered = recover_segments(
                disk,
                directory,
                segments,
                epochs,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                gaps_below=LONG_MAX if config.compacts else cleaned_to,
            )
            if recovered.next_offset < recovery_point:
                # Earlier segments are not read now: recovery would truncate the log at a corrupt batch. They are
                # checked before they are sent, and a corrupt batch is then repaired from another replica.
                problem = f"beyond the log end {recovered.next_offset}"
                base = segments[0].base_offset
                checkpoint_validation.warn_checkpoint(
                    directory, checkpoints.RECOVERY_POINT, recovery_point, problem, base
                )
                recovery_point = 0
            producers, written = recovered.producers, recovered.written
            end, last_epoch = recovered.next_offset, recovered.last_epoch
    if segments and end < log_start_offset:
        if any(segment.size for segment in segments):
            problem = f"beyond the log end {end}"
            base = segments[0].base_offset
            checkpoint_validation.warn_checkpoint(
                directory, checkpoints.LOG_START, log_start_offset, problem, base
            )
            log_start_offset = base
        else:
            for segment in segments:
                segment.remove_files()
            segments.clear()
    if not segments:
        interval = config.index_interval_bytes
        segments.append(
            Segment.create(
                disk, directory, log_start_offset, index_interval=interval, now_ms=now_ms
            )
        )
        end, producers = log_start_offset, Producers()
        epochs.clear()
    start = max(log_start_offset, segments[0].base_offset)
    active = segments[-1]
    active.load_entries()
    active.load_timestamps()
    active.aborted = aborted_transactions.load_aborted(
        disk, directory, segments, len(segments) - 1, end_offset=end
    )
    snapshots.remove_snapshots(disk, directory, lambda offset: offset > end)
    if producers is None:
        producers = snapshots.rebuild_producers(
            disk, directory, segments, log_start_offset=start, end=end
        )
    epochs.truncate_from_end(end)
    if not checkpoint_validation.epochs_agree(
        epochs, active, last_epoch=last_epoch, log_start=start
    ):
        path = f"{directory}/{leader_epochs.FILE_NAME}"
        logger.warning("leader epochs do not match the log, rebuilding path=%s", path)
        epochs = epochs_from_batches(segments)
        epochs.truncate_from_end(end)
    epochs.truncate_from_start(start)
    log = Log(
        disk,
        directory,
        config,
        segments,
        log_start_offset=start,
        log_end_offset=end,
        recovery_point=end
        if was_clean_shutdown and not written
        else max(start, min(recovery_point, end)),
        epochs=epochs,
        producers=producers,
        topic_id=load_topic_id(disk, directory),
        producer_expiration_ms=producer_expiration_ms,
    )
    log.watermark = checkpoint_validation.usable_high_watermark(
        directory, high_watermark, start, end, was_clean_shutdown=was_clean_shutdown
    )
    log.cleaned_to = checkpoint_validation.usable_cleaned_to(directory, cleaned_to, end)
    log.save_epochs()
    if written:
        log.flush_state.add_files(*written)
        log.flush_state.add_directory()
        log.flush_state.unflushed_since_ms = now_ms
    elif was_clean_shutdown:
        log.saved_end = end
        active.snapshot_size = active.size
    return log


# ---- the unflushed part ---------------------------------------------------------------------------------------


def recover_segments(
    disk: Disk,
    directory: str,
    segments: list[Segment],
    epochs: LeaderEpochs,
    *,
    recovery_point: int,
    log_start_offset: int,
    gaps_below: int,
) -> RecoveryState:
    """Read from the recovery point on. Truncate at an invalid byte, or at a gap between segments above `gaps_below`."""
    first = floor_index(segments, recovery_point)
    base = segments[first].base_offset
    # Later snapshots may contain batches that are lost.
    snapshots.remove_snapshots(disk, directory, lambda offset: offset > base)
    start = max(log_start_offset, segments[0].base_offset)
    state = RecoveryState(
        epochs=epochs,
        producers=snapshots.rebuild_producers(
            disk, directory, segments[:first], log_start_offset=min(start, base), end=base
        ),
        next_offset=base,
        written=[],
    )
    if first > 0 and recovery_point <= base and state.producers.has_seen_markers():
        # The segment was closed after the last flush. Without its transaction index, which may be lost, it would seem
        # to have no aborted transactions.
        state.written += aborted_transactions.restore_aborted(disk, directory, segments, first - 1)
    for at in range(first, len(segments)):
        segment = segments[at]
        expected = state.next_offset
        is_misplaced = segment.base_offset < expected or (
            segment.base_offset > expected and segment.base_offset > gaps_below
        )
        if at > first and (is_misplaced or state.is_truncated):
            logger.warning(
                "removing segments after the end of the valid log log=%s offset=%d",
                directory,
                expected,
            )
            for removed in segments[at:]:
                removed.remove_files()
            del segments[at:]
            state.is_truncated = True
            break
        if at > first:
            state.next_offset = segment.base_offset
            state.last_epoch = leader_epochs.UNDEFINED
            state.written.append(
                snapshots.write_snapshot(disk, directory, segment.base_offset, state.producers)
            )
        recover_segment(segment, state)
        if segment is not segments[-1]:
            state.written += segment.write_indexes()
            segment.free_entries()
        state.written.append(segment.log.path)
    if state.is_truncated:
        # Otherwise the removed bytes could reappear after a power loss, below a newer recovery point.
        disk.sync_now([segments[-1].log], [directory])
    return state


def recover_segment(segment: Segment, state: RecoveryState) -> None:
    reject_old_format(segment)
    segment.begin_rebuild()
    segment.disk.remove(segment.path + transaction_index.SUFFIX)
    segment.aborted = transaction_index.NO_ENTRIES
    valid = 0
    for position, header, batch in segment.checked_batches(state.next_offset):
        segment.index_batch(position, header)
        if header.partition_leader_epoch > state.epochs.latest:
            state.epochs.assign(header.partition_leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            aborted = apply_batch(state.producers, header, batch)
            if aborted is not None:
                segment.add_aborted(aborted)
        state.next_offset = header.next_offset
        state.last_epoch = header.partition_leader_epoch
        valid = position + header.size
        if snapshots.is_due(valid - segment.snapshot_size, state.producers):
            directory = parent(segment.path)
            state.written.append(
                snapshots.write_snapshot(
                    segment.disk, directory, state.next_offset, state.producers
                )
            )
            segment.snapshot_size = valid
    if valid < segment.size:
        logger.warning(
            "truncating invalid bytes path=%s position=%d bytes=%d next_offset=%d",
            *(segment.log.path, valid, segment.size - valid, state.next_offset),
        )
        segment.log.truncate(valid)
        segment.size = valid
        state.is_truncated = True
    segment.unchecked_to = 0


def reject_old_format(segment: Segment) -> None:
    """Raise StorageError if the segment has messages of format 0 or 1: they must not be truncated as invalid bytes.

    They begin with int64 offset, int32 size, crc32 of the rest, int8 magic.
    """
    head = segment.log.read(0, OLD_HEAD.size)
    if len(head) < OLD_HEAD.size:
        return
    offset, size, checksum, magic = OLD_HEAD.unpack(head)
    if magic not in (0, 1) or offset < segment.base_offset or not 0 < size <= segment.size - 12:
        return
    if crc32(segment.log.read(16, size - 4)) == checksum:
        raise StorageError(
            segment.log.path,
            f"messages of format {magic} are not supported: rewrite the topic with Kafka 3 first",
        )


def find_valid_end(segment: Segment) -> tuple[int, int] | None:
    """Return the log end offset after a clean shutdown, and the epoch of the last batch or -1.

    None if the file does not end with a complete batch with a valid checksum.
    """
    try:
        segment.load_entries()
        last = segment.last_batch()
        if last is None:
            return segment.base_offset, leader_epochs.UNDEFINED
        position, header = last
        batch = segment.log.read(position, header.size)
        if crc_is_valid(memoryview(batch), 0, header):
            return header.next_offset, header.partition_leader_epoch
    except CorruptBatch as error:
        logger.warning(
            "log has a clean-shutdown mark but does not end with a valid batch error=%s", error
        )
    return None


# ---- files ----------------------------------------------------------------------------------------------------


def find_segments(
    disk: Disk, directory: str, config: TopicConfig, now_ms: int
) -> Iterator[Segment]:
    for name in disk.list(directory):
        base = base_offset_of(name)
        if name.endswith(".log") and base is not None:
            path = f"{directory}/{name.removesuffix('.log')}"
            interval = config.index_interval_bytes
            segment = Segment(disk, path, base, index_interval=interval, now_ms=now_ms)
            segment.unchecked_to = segment.size
            yield segment


def base_offset_of(name: str) -> int | None:
    stem = name.partition(".")[0]
    return int(stem) if len(stem) == 20 and stem.isdecimal() else None


def finish_interrupted_compaction(disk: Disk, directory: str) -> None:
    """Remove `.deleted`, `.cleaned` and `.tmp` files. A complete `.swap` segment replaces those in its range."""
    names = disk.list(directory)
    cleaned = [base_offset_of(name) for name in names if name.endswith(CLEANED)]
    oldest_cleaned = min((base for base in cleaned if base is not None), default=None)
    swaps: list[str] = []
    for name in names:
        if name.endswith((DELETED, CLEANED, TEMPORARY)):
            disk.remove(f"{directory}/{name}")
        elif name.endswith(SWAP):
            base = base_offset_of(name)
            # The compaction was not finished if an output at or before this one is still `.cleaned`.
            if base is None or (oldest_cleaned is not None and base >= oldest_cleaned):
                disk.remove(f"{directory}/{name}")
            else:
                swaps.append(name)
    if swaps:
        finish_swap(disk, directory, swaps)


def finish_swap(disk: Disk, directory: str, swaps: list[str]) -> None:
    """Complete a replacement: remove segments whose base offset is in the range of the swap files, and rename those."""
    low: int | None = None
    high = 0
    for name in swaps:
        base = base_offset_of(name)
        if name.endswith(".log" + SWAP) and base is not None:
            path = f"{directory}/{name}"
            segment = Segment(disk, path, base, log=disk.open(path))
            low = base if low is None else min(low, base)
            for _, header in segment.headers():
                high = max(high, header.next_offset)
            segment.close()
    if low is not None:
        for name in disk.list(directory):
            base = base_offset_of(name)
            if not name.endswith(SWAP) and base is not None and low <= base < high:
                disk.remove(f"{directory}/{name}")
        # If a removed segment reappeared beside its replacement, the log would be truncated there.
        disk.sync_now([], [directory])
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def drop_deleted(segments: list[Segment], log_start_offset: int) -> None:
    """Remove segments that end at or before the log start offset: they were deleted, but not yet purged."""
    while len(segments) > 1 and segments[1].base_offset <= log_start_offset:
        segments.pop(0).remove_files()


def drop_orphan_indexes(disk: Disk, directory: str) -> None:
    names = disk.list(directory)
    logs = {name for name in names if name.endswith(".log")}
    for name in names:
        if name.endswith(INDEX_SUFFIXES) and f"{name.partition('.')[0]}.log" not in logs:
            logger.warning("index without a log file, removing it path=%s/%s", directory, name)
            disk.remove(f"{directory}/{name}")


def load_epochs(disk: Disk, directory: str) -> tuple[LeaderEpochs, bool]:
    """Return the leader epochs, and whether they are known: False if the file is missing, empty or corrupt."""
    path = f"{directory}/{leader_epochs.FILE_NAME}"
    if disk.exists(path):
        try:
            epochs = leader_epochs.decode_epochs(read_head(disk, path, EPOCHS_MAX))
            return epochs, bool(epochs.epochs)
        except ValueError as error:
            logger.warning(
                "leader epochs are unusable, rebuilding path=%s reason=%s", path, reason(error)
            )
    return LeaderEpochs(), False


def epochs_from_batches(segments: list[Segment]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for segment in segments:
        try:
            for _, header in segment.headers():
                if header.partition_leader_epoch > epochs.latest:
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
        except CorruptBatch:
            continue  # Recovery truncates the rest of the segment, or a read reports it.
    return epochs


def load_topic_id(disk: Disk, directory: str) -> UUID | None:
    path = f"{directory}/{PARTITION_METADATA}"
    if not disk.exists(path):
        return None
    return decode_partition_metadata(read_head(disk, path, PROPERTIES_MAX))
