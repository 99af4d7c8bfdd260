"""Moves of replicas between the log directories of this broker (AlterReplicaLogDirs).

    create an empty future log ─► copy the log ─► copy new records ─► … ─► caught up: the future log replaces the log

The mover is like a follower on the same broker. It copies from the log start offset on, up to the log end offset. It
truncates the future log where its leader epochs differ from those of the log, and follows the log start offset. So
appends, truncations, retention and DeleteRecords continue during a move. Only compaction is paused for the log.

One partition moves at a time, in the order of the names. After a restart a move continues when the controller has sent
LeaderAndIsr. `replica.alter.log.dirs.io.max.bytes.per.second` limits the rate of all moves together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import NamedTuple, Protocol

from barnabas.errors import ApiError, CorruptBatch, ErrorCode, OutOfSpace, StorageError
from barnabas.model import TopicPartition
from barnabas.replication.follower import truncation_offset
from barnabas.replication.partition import Partition
from barnabas.replication.quota import ReplicationQuota
from barnabas.retry import Backoff
from barnabas.storage.checkpoints import encode_offsets
from barnabas.storage.epochs import UNDEFINED
from barnabas.storage.files import parent
from barnabas.storage.future_logs import can_replace, follow_offsets, has_future_name
from barnabas.storage.log import Log
from barnabas.storage.log_manager import CHECKPOINTED, LogManager
from barnabas.tasks import Tasks, in_thread
from barnabas.world.ports import Clock, Disk, FileSlice

logger = logging.getLogger("barnabas.moves")

COPY_BYTES = 512 * 1024
SMALL_BYTES = 64 * 1024
"""Up to this size, new records are read on the event loop: they are in the page cache. So no append can intervene, and
the future log catches up even if records arrive all the time."""
POLL_SECONDS = 0.1
"""Longest sleep while moves are delayed or throttled. A move may be added or cancelled meanwhile."""
RETRY_SECONDS = (0.2, 30.0)


class Truncate(NamedTuple):
    """The future log differs from the log from this offset on."""

    offset: int


class StartOver(NamedTuple):
    """The future log has no offset in common with the log, which starts at this offset."""

    offset: int


class Copy(NamedTuple):
    """The future log needs the records from this offset on."""

    offset: int


class CaughtUp(NamedTuple):
    """Both logs have the same records."""


MoveStep = Truncate | StartOver | Copy | CaughtUp


def next_step(current: Log, future: Log) -> MoveStep:
    """Return what the future log needs next to become a copy of the current log."""
    start, end = current.log_start_offset, future.log_end_offset
    if end < start or future.log_start_offset > start:
        return StartOver(start)
    common_end = find_common_end(current, future)
    if common_end < end:
        return Truncate(common_end)
    return Copy(end) if end < current.log_end_offset else CaughtUp()


def find_common_end(current: Log, future: Log) -> int:
    """Return the offset up to which the future log agrees with the current log, as far as leader epochs show it."""
    latest = min(future.epochs.latest, current.epochs.latest)
    if latest == UNDEFINED:
        return min(future.log_end_offset, current.log_end_offset)
    epoch, end = current.epochs.end_offset_for(latest, current.log_end_offset)
    return truncation_offset(
        future.epochs, future.log_end_offset, leader_epoch=epoch, leader_end=end
    )


class Move:
    """The move of one partition."""

    def __init__(self, tp: TopicPartition, began: float) -> None:
        self.tp = tp
        self.began = began
        self.not_before = began
        """Loop time of the next step."""
        self.is_flushed = False
        """The records that the future log had when it caught up for the first time are on disk."""
        self.backoff = Backoff(*RETRY_SECONDS, random=Random(str(tp)))


class MoveReplicaManager(Protocol):
    """The part of ReplicaManager that `LogDirMoves` uses."""

    partitions: dict[tuple[str, int], Partition]
    offline: dict[tuple[str, int], None]
    logs: LogManager
    clock: Clock
    disk: Disk
    move_quota: ReplicationQuota | None

    def missing_partition_error(self, topic: str, index: int) -> ApiError: ...

    def fail(self, partition: Partition, error: StorageError) -> None: ...


class LogDirMoves:
    """The moves of one broker. They run in one background task, which ends when there are none."""

    def __init__(self, replica_manager: MoveReplicaManager, tasks: Tasks) -> None:
        self.replica_manager = replica_manager
        self.tasks = tasks
        self.moves: dict[TopicPartition, Move] = {}
        self.is_running = False

    # ---- requests

    def alter(self, tp: TopicPartition, directory: str) -> ErrorCode:
        """Begin to move a replica to `directory`. If it is there already, cancel its move. Checks in Kafka's order."""
        try:
            self.begin_move(tp, directory)
        except ApiError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return ErrorCode.REPLICA_NOT_AVAILABLE
            return error.code
        except StorageError as error:
            logger.error("cannot move partition=%s directory=%s error=%s", tp, directory, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def begin_move(self, tp: TopicPartition, directory: str) -> None:
        logs = self.replica_manager.logs
        if not has_future_name(tp):
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic name is too long")
        if directory not in logs.directories:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{directory} is not in log.dirs")
        if directory in logs.offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} is offline")
        partition = self.replica_manager.partitions.get(tp)
        if tp in self.replica_manager.offline or (partition is not None and partition.is_offline):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is offline")
        future = logs.futures.get(tp)
        if partition is not None and future is not None and parent(future.directory) != directory:
            self.cancel(tp)
        logs.prefer(tp, directory)
        if partition is None:
            raise self.replica_manager.missing_partition_error(*tp)
        if parent(partition.log.directory) == directory or tp in logs.futures:
            return
        if logs.offline:
            # A future log of this partition may be in the failed directory.
            raise next(iter(logs.offline.values()))
        logs.create_future(tp, directory, self.replica_manager.clock.now_ms())
        logger.info("moving partition=%s from=%s to=%s", tp, partition.log.directory, directory)
        self.add(tp)

    def cancel(self, tp: TopicPartition) -> None:
        logger.info("move cancelled partition=%s", tp)
        self.remove((tp,))
        self.replica_manager.logs.delete_future(tp, self.replica_manager.clock.now_ms())

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Continue the moves of partitions that the controller assigned to this broker again."""
        logs = self.replica_manager.logs
        if not logs.futures:
            return
        for tp in partitions:
            future, partition = logs.futures.get(tp), self.replica_manager.partitions.get(tp)
            if future is None or partition is None or partition.is_offline or tp in self.moves:
                continue
            if can_replace(future, partition.log):
                logger.info(
                    "move resumed partition=%s to=%s offset=%d",
                    *(tp, parent(future.directory), future.log_end_offset),
                )
                self.add(tp)
            else:
                self.cancel(tp)

    def add(self, tp: TopicPartition) -> None:
        self.moves[tp] = Move(tp, asyncio.get_running_loop().time())
        if not self.is_running:
            self.is_running = True
            self.tasks.start("log-dir-moves", self.run())

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop moves. Their future logs stay. Nothing is appended to these logs after this call."""
        for tp in partitions:
            self.moves.pop(tp, None)

    # ---- the task

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            move: Move | None = None
            while self.moves:
                move = self.select(move, loop.time())
                if move is None:
                    await asyncio.sleep(POLL_SECONDS)
                else:
                    await self.advance(move)
                    await asyncio.sleep(0)
                if not self.moves:
                    await self.update_checkpoints()
        finally:
            self.is_running = False

    def select(self, move: Move | None, now: float) -> Move | None:
        """Return the move for the next step: the same one until it ends or is delayed, then the first by name."""
        if move is not None and self.moves.get(move.tp) is move and move.not_before <= now:
            return move
        ready = [tp for tp, move in self.moves.items() if move.not_before <= now]
        return self.moves[min(ready)] if ready else None

    async def update_checkpoints(self) -> None:
        """Remove moved logs from the checkpoints of their former directories, when the last move has ended."""
        logs = self.replica_manager.logs
        outdated, logs.outdated = logs.outdated, {}
        for name in CHECKPOINTED:
            for directory, path, offsets in logs.checkpoint_contents(name, outdated):
                replace = logs.disk.prepare_replace(path)
                with logs.guard(directory):
                    await in_thread(replace_offsets, replace, offsets)

    async def advance(self, move: Move) -> None:
        """Do one step of a move. After a failure the move is delayed, and others continue."""
        partition = self.replica_manager.partitions.get(move.tp)
        future = self.replica_manager.logs.futures.get(move.tp)
        if partition is None or partition.is_offline or future is None:
            self.moves.pop(move.tp, None)
            return
        try:
            await self.do_step(move, partition, future)
        except OutOfSpace as error:
            self.delay(move, error)
        except StorageError as error:
            self.delay(move, error)
            if self.is_current(move, partition, partition.log, future):
                self.replica_manager.fail(partition, error)
        except ApiError as error:
            self.delay(move, error)
        except Exception as error:
            logger.exception("cannot move partition=%s", move.tp)
            self.delay(move, error)

    def delay(self, move: Move, error: Exception) -> None:
        logger.error("move delayed partition=%s error=%s", move.tp, error)
        move.not_before = asyncio.get_running_loop().time() + move.backoff.next_s()

    def is_current(self, move: Move, partition: Partition, current: Log, future: Log) -> bool:
        """Return whether the move was neither cancelled nor replaced, and its logs are still in use."""
        manager = self.replica_manager
        return (
            self.moves.get(move.tp) is move
            and manager.partitions.get(move.tp) is partition
            and partition.log is current
            and not partition.is_offline
            and manager.logs.futures.get(move.tp) is future
        )

    async def do_step(self, move: Move, partition: Partition, future: Log) -> None:
        current, logs = partition.log, self.replica_manager.logs
        target, now_ms = parent(future.directory), self.replica_manager.clock.now_ms()
        if future.config is not current.config:
            future.use_config(current.config)
        step = next_step(current, future)
        match step:
            case Truncate(offset):
                move.is_flushed = False
                with logs.guard(target, silent=False):
                    truncate_or_clear(future, offset, now_ms, log_start=current.log_start_offset)
            case StartOver(offset):
                move.is_flushed = False
                with logs.guard(target, silent=False):
                    future.truncate_fully_and_start_at(offset, now_ms=now_ms)
            case Copy(offset):
                await self.copy(move, partition, future, offset)
            case CaughtUp() if not move.is_flushed:
                move.is_flushed = await self.flush(move, partition, future)
            case CaughtUp():
                self.finish(move, partition)

    async def copy(self, move: Move, partition: Partition, future: Log, offset: int) -> None:
        """Copy the next batches. Does nothing if the log was truncated, replaced or deleted during the read."""
        current, quota = partition.log, self.replica_manager.move_quota
        max_bytes = COPY_BYTES
        if quota is not None:
            wait_ms = quota.wait_ms()
            if wait_ms > 0:
                await asyncio.sleep(min(wait_ms / 1000, POLL_SECONDS))
                return
            max_bytes = max(min(COPY_BYTES, quota.bytes_per_second), 1)
        read = current.read(offset, max_bytes, current.log_end_offset)
        if not read.slices:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no records at offset {offset}")
        (part,) = read.slices
        path, revision = part.file.path, current.revision
        try:
            if part.size <= SMALL_BYTES and part.file is current.segments.active.log:
                data = part.file.read(part.position, part.size)
            else:
                data = await in_thread(read_file_slice, self.replica_manager.disk, part, path)
        except StorageError:
            if part.file.path != path or not has_file(current, part):
                return
            raise
        if current.revision != revision or not self.is_current(move, partition, current, future):
            return
        now_ms = self.replica_manager.clock.now_ms()
        try:
            with self.replica_manager.logs.guard(parent(future.directory), silent=False):
                size = future.append_as_follower(memoryview(data), now_ms).size
                follow_offsets(future, current, now_ms)
        except ApiError as error:
            if error.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            raise CorruptBatch(path, str(error), part.position) from error
        move.backoff.reset()
        if quota is not None:
            quota.record(size)
        if move.is_flushed and future.log_end_offset == current.log_end_offset:
            self.finish(move, partition)
        elif future.recovery_point < future.segments.active.base_offset:
            await self.flush(move, partition, future)

    async def flush(self, move: Move, partition: Partition, future: Log) -> bool:
        """Fsync the future log. Return False if the move has ended meanwhile."""
        current, logs = partition.log, self.replica_manager.logs
        flush = future.begin_flush()
        try:
            await self.replica_manager.disk.sync(flush.files, flush.directories)
        except StorageError as error:
            if self.is_current(move, partition, current, future):
                logs.mark_offline(parent(future.directory), error)
            return False
        future.end_flush(flush)
        return self.is_current(move, partition, current, future)

    def finish(self, move: Move, partition: Partition) -> None:
        """Replace the log by its future log. No await: nothing is appended meanwhile."""
        before = partition.log.directory
        follow_offsets(
            self.replica_manager.logs.futures[move.tp],
            partition.log,
            self.replica_manager.clock.now_ms(),
        )
        partition.log = self.replica_manager.logs.replace_with_future(
            move.tp, self.replica_manager.clock.now_ms()
        )
        self.moves.pop(move.tp, None)
        logger.info(
            "moved partition=%s from=%s to=%s bytes=%d seconds=%.1f",
            move.tp,
            parent(before),
            parent(partition.log.directory),
            partition.log.size_bytes,
            asyncio.get_running_loop().time() - move.began,
        )


def truncate_or_clear(future: Log, offset: int, now_ms: int, *, log_start: int) -> None:
    """Truncate a future log. If it is damaged, remove all its records: it is only a copy."""
    try:
        future.truncate_to(offset, now_ms)
    except CorruptBatch:
        future.truncate_fully_and_start_at(log_start, now_ms=now_ms)


def has_file(log: Log, part: FileSlice) -> bool:
    return any(segment.log is part.file for segment in log.segments)


def replace_offsets(
    replace: Callable[[bytes], None], offsets: Mapping[TopicPartition, int]
) -> None:
    """Encode and write a checkpoint, in a thread."""
    replace(encode_offsets(offsets))


def read_file_slice(disk: Disk, part: FileSlice, path: str) -> bytes:
    """Read part of a file, in a thread."""
    file = disk.for_thread().open(path)
    try:
        return file.read(part.position, part.size)
    finally:
        file.close()
