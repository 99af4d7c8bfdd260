"""The log directories of one broker, and every log in them.

    <log dir>/.lock                      held while the broker runs
              meta.properties            owner of the directory (checkpoints.py)
              *-offset-checkpoint        checkpoints.py
              .kafka_cleanshutdown       written last on a clean shutdown, removed first on a start
              .barnabas_blank            exists while logs of a replaced disk are still missing
              orders-0/  orders-1/       one log each (log.py)
              orders-2.<32 hex>-delete/  a deleted log, removed after its delay
              orders-3.<32 hex>-future/  the copy of a log that moves to this directory (future_logs.py)

A directory that fails goes offline with all its logs; the others stay online (`offline` has the errors). A start fails
only if no directory is usable, or if one is locked by another process or belongs to another broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from barnabas.config.topic import TopicConfig
from barnabas.errors import OutOfSpace, StorageError
from barnabas.model import TopicPartition
from barnabas.storage import checkpoints
from barnabas.storage.checkpoint_validation import PERHAPS_CLEANED
from barnabas.storage.compaction import NEVER_CLEANED
from barnabas.storage.files import parent
from barnabas.storage.future_logs import (
    FUTURE,
    NAME_MAX,
    can_replace,
    future_name,
    is_newer,
    is_replaced,
    mark_replaced,
    parse_future_name,
    relocate,
    take_over,
)
from barnabas.storage.log import Log
from barnabas.storage.producers import EXPIRATION_MS
from barnabas.storage.recovery import open_log
from barnabas.world.ports import DirectoryLock, Disk

logger = logging.getLogger(__name__)

DELETE = "-delete"
STRAY = "-stray"
PREFERRED_MAX = 10_000
"""Limit of the directories that AlterReplicaLogDirs chose for partitions without a log. The oldest are forgotten."""
CLEAN_MARK = b'{"version":0,"brokerEpoch":-1}'


def inner_log_start(log: Log) -> int | None:
    """Return the log start offset, or None if the log starts with its first segment, whose file name has the offset."""
    start = log.log_start_offset
    return start if start > log.segments[0].base_offset else None


def cleaned_offset(log: Log) -> int | None:
    """Return the offset also if the topic is no longer compacted: recovery must accept missing offsets below it."""
    return log.cleaned_to if log.cleaned_to != NEVER_CLEANED else None


CHECKPOINTED: dict[str, Callable[[Log], int | None]] = {
    # The stored value may be too old, never too new. With an older value recovery reads more than necessary.
    checkpoints.RECOVERY_POINT: lambda log: log.recovery_point,
    checkpoints.HIGH_WATERMARK: lambda log: log.watermark,
    checkpoints.LOG_START: inner_log_start,
    checkpoints.CLEANED_TO: cleaned_offset,
}
"""Checkpoint file → function that returns the offset of a log in it, or None for no line."""


class LogDirInfo(Struct, frozen=True, kw_only=True):
    """One log directory for DescribeLogDirs. `error` is set if it is offline. Sizes are in bytes, -1 if unknown."""

    path: str
    error: StorageError | None
    total_bytes: int
    usable_bytes: int
    sizes: dict[TopicPartition, int]
    future_sizes: dict[TopicPartition, int]


class CheckpointContent(NamedTuple):
    directory: str
    path: str
    offsets: dict[TopicPartition, int]


class LogManager:
    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        *,
        random: Random,
        producer_expiration_ms: int = EXPIRATION_MS,
    ) -> None:
        self.disk = disk
        self.directories = tuple(directories)
        self.random = random
        self.producer_expiration_ms = producer_expiration_ms
        self.logs: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}
        """Future logs, each in another directory than the current log of its partition."""
        self.retired: dict[str, Log] = {}
        """Logs that were replaced by a future log, by directory. They stay open until the directory is removed."""
        self.outdated: dict[str, None] = {}
        """Directories from which logs have moved. Their lines in the checkpoints must not apply to later logs."""
        self.preferred: dict[TopicPartition, str] = {}
        """Directory in which the log of a partition is to be created."""
        self.offline: dict[str, StorageError] = {}
        self.full: dict[str, None] = {}
        """Directories whose last write failed because the disk was full."""
        self.on_offline: Callable[[list[TopicPartition], StorageError], None] | None = None
        """Called with the partitions of a directory that goes offline."""
        self.pending_removals: list[tuple[int, str]] = []
        """Pairs (due_ms, directory of a deleted log). The directory may be removed at `due_ms` or later."""
        self.blank: dict[str, None] = {}
        """Directories that were empty at the start: new ones, or ones on a replaced disk."""
        self.locks: dict[str, DirectoryLock] = {}
        # One function for all logs of a directory: there may be thousands of them.
        self.on_truncated: dict[str, Callable[[], None]] = {
            directory: partial(self.save_after_truncation, directory)
            for directory in self.directories
        }

    def use_producer_expiration(self, expiration_ms: int) -> None:
        """Change the time after which idle producers expire, for all logs."""
        if expiration_ms != self.producer_expiration_ms:
            self.producer_expiration_ms = expiration_ms
            for log in self.logs.values():
                log.producer_expiration_ms = expiration_ms

    # ---- loading ----------------------------------------------------------------------------------------------

    def lock_used(self) -> None:
        """Lock the directories that have a lock file from an earlier run. Creates nothing."""
        for directory in self.directories:
            if self.disk.exists(f"{directory}/{checkpoints.LOCK}"):
                self.lock(directory)

    def load_all(
        self,
        broker_id: int,
        cluster_id: str,
        config_of: Callable[[str], TopicConfig],
        now_ms: int,
    ) -> None:
        """Lock all directories and load every log in them. `config_of` returns the settings of a topic.

        The caller must call `release` if this raises.
        """
        for directory in self.directories:
            self.claim(directory, broker_id=broker_id, cluster_id=cluster_id)
        for directory in self.directories:
            if directory not in self.offline:
                try:
                    self.load(directory, config_of, now_ms)
                except StorageError as error:
                    self.mark_offline(directory, error)
        if self.is_all_offline:
            raise next(iter(self.offline.values()))
        for partition, future in list(self.futures.items()):
            log = self.logs.get(partition)
            if log is not None and not can_replace(future, log):
                self.delete_future(partition, now_ms)

    def claim(self, directory: str, *, broker_id: int, cluster_id: str) -> None:
        """Create and lock a directory, or take it offline. Raises StorageError if another broker uses or owns it."""
        try:
            if not self.disk.exists(directory):
                self.disk.make_directory(directory)
                self.disk.sync_now([], [parent(directory) or "/"])
            elif not self.disk.is_directory(directory):
                raise StorageError(directory, "is not a directory; set log.dirs to another path")
        except StorageError as error:
            self.mark_offline(directory, error)
            return
        self.lock(directory)
        is_ours = self.disk.exists(f"{directory}/{checkpoints.META_PROPERTIES}")
        if not is_ours or self.disk.exists(f"{directory}/{checkpoints.BLANK}"):
            self.blank[directory] = None
        checkpoints.check_meta_properties(
            self.disk, directory, broker_id=broker_id, cluster_id=cluster_id
        )

    def lock(self, directory: str) -> None:
        if directory not in self.locks:
            self.locks[directory] = self.disk.lock(f"{directory}/{checkpoints.LOCK}")

    def mark_blank_directories(self) -> None:
        """Mark the blank directories, so that the next start treats them as blank although they have files."""
        for directory in self.blank:
            self.disk.replace_bytes(f"{directory}/{checkpoints.BLANK}", b"")

    def unmark_blank_directories(self) -> None:
        for directory in self.blank:
            if self.disk.exists(mark := f"{directory}/{checkpoints.BLANK}"):
                self.disk.remove(mark)
        self.blank.clear()

    def load(self, directory: str, config_of: Callable[[str], TopicConfig], now_ms: int) -> None:
        disk = self.disk
        mark = f"{directory}/{checkpoints.CLEAN_SHUTDOWN}"
        clean = disk.exists(mark)
        if clean:
            # Removed on disk before anything is written: from here on, a shutdown may not be clean.
            disk.remove(mark)
            disk.sync_now([], [directory])
        recovery_points, high_watermarks, log_starts, cleaned = (
            checkpoints.read_offsets(disk, f"{directory}/{name}") for name in CHECKPOINTED
        )
        never_cleaned = NEVER_CLEANED if cleaned.problem is None else PERHAPS_CLEANED
        for name in disk.list(directory):
            path = f"{directory}/{name}"
            if not disk.is_directory(path):
                continue
            if name.endswith(DELETE):
                self.pending_removals.append((now_ms, path))
                continue
            is_future = name.endswith(FUTURE)
            partition = parse_future_name(name) if is_future else parse_directory_name(name)
            if partition is None:
                logger.warning("ignoring directory that is not a log path=%s", path)
                continue
            log = open_log(
                disk,
                path,
                config_of(partition.topic),
                was_clean_shutdown=clean,
                recovery_point=recovery_points.offsets.get(partition, 0),
                log_start_offset=log_starts.offsets.get(partition, 0),
                high_watermark=high_watermarks.offsets.get(partition, 0),
                cleaned_to=cleaned.offsets.get(partition, never_cleaned),
                now_ms=now_ms,
                producer_expiration_ms=self.producer_expiration_ms,
            )
            self.add_loaded(partition, log, now_ms, is_future=is_future)
        count = len(self.logs_in(directory))
        logger.info("loaded log directory path=%s logs=%d clean=%s", directory, count, clean)

    def add_loaded(
        self, partition: TopicPartition, log: Log, now_ms: int, *, is_future: bool
    ) -> None:
        """Add a log that was found on disk. Of two logs of one partition the newer one is used.

        The older log is deleted if a move replaced it. Otherwise an operator copied it, and it is renamed to *-stray.
        """
        logs = self.futures if is_future else self.logs
        other = logs.get(partition)
        if other is not None:
            if other.topic_id != log.topic_id and not is_future:
                log.close(clean=False)
                path = other.directory
                raise StorageError(log.directory, f"a log of {partition} is also in {path}")
            log, extra = (log, other) if is_newer(log, other) else (other, log)
            logger.warning(
                "two logs of one partition, using the newer one partition=%s used=%s other=%s",
                *(partition, log.directory, extra.directory),
            )
            if is_future or is_replaced(extra):
                path = self.rename_directory(partition, extra, DELETE)
                self.pending_removals.append((now_ms, path))
            else:
                self.rename_directory(partition, extra, STRAY)
        self.add_log(partition, log, logs)

    def add_log(
        self, partition: TopicPartition, log: Log, logs: dict[TopicPartition, Log] | None = None
    ) -> None:
        log.on_truncated = self.on_truncated[parent(log.directory)]
        (self.logs if logs is None else logs)[partition] = log

    # ---- logs -------------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        return self.logs.get(partition)

    def create_log(
        self, partition: TopicPartition, topic_id: UUID | None, config: TopicConfig, now_ms: int = 0
    ) -> Log:
        """Return the log of this partition.

        A new log is created in its preferred directory, or else in the directory with the fewest logs.
        """
        log = self.logs.get(partition)
        if log is not None:
            return log
        directory = self.preferred.pop(partition, None) or self.next_directory()
        self.update_outdated(directory)
        with self.guard(directory, silent=False):
            log = Log.create(
                self.disk,
                f"{directory}/{partition}",
                config,
                topic_id=topic_id,
                now_ms=now_ms,
                producer_expiration_ms=self.producer_expiration_ms,
            )
        self.add_log(partition, log)
        return log

    def next_directory(self) -> str:
        online = [path for path in self.directories if path not in self.offline]
        if not online:
            raise StorageError(self.directories[0], "no log directory is online")
        directory = online[0]
        if len(online) > 1:
            counts = dict.fromkeys(online, 0)
            for other in (*self.logs.values(), *self.futures.values()):
                counts[parent(other.directory)] += 1
            directory = min(online, key=lambda path: counts[path])
        return directory

    def prefer(self, partition: TopicPartition, directory: str) -> None:
        """Create the log of this partition in `directory`, if the controller assigns the partition to this broker."""
        if partition not in self.logs:
            self.preferred.pop(partition, None)
            self.preferred[partition] = directory
            if len(self.preferred) > PREFERRED_MAX:
                del self.preferred[next(iter(self.preferred))]

    def delete_log(self, partition: TopicPartition, now_ms: int) -> None:
        """Rename the directories of a log and its future log now, and remove them after file.delete.delay.ms."""
        try:
            log = self.logs.pop(partition, None)
            if log is not None:
                path = self.rename_directory(partition, log, DELETE)
                self.pending_removals.append((now_ms + log.config.file_delete_delay_ms, path))
        finally:
            self.delete_future(partition, now_ms)

    def rename_to_stray(self, partition: TopicPartition) -> None:
        """Rename the directory of a log whose topic is deleted, or has another id, to *-stray. The broker then ignores
        it; the operator may inspect or remove it."""
        log = self.logs.pop(partition, None)
        if log is not None:
            self.rename_directory(partition, log, STRAY)
        self.delete_future(partition, now_ms=0)

    def rename_directory(self, partition: TopicPartition, log: Log, suffix: str) -> str:
        """Close a log that is no longer in use, and append a random number and `suffix` to its directory name."""
        log.close(clean=False)
        path = self.renamed_path(partition, log, suffix)
        with self.guard(parent(log.directory), silent=False):
            self.disk.rename(log.directory, path)
        logger.info("renamed log from=%s to=%s", log.directory, path)
        return path

    def renamed_path(self, partition: TopicPartition, log: Log, suffix: str) -> str:
        tail = f"-{partition.partition}.{self.random.getrandbits(128):032x}{suffix}"
        return f"{parent(log.directory)}/{partition.topic[: NAME_MAX - len(tail)]}{tail}"

    # ---- future logs ------------------------------------------------------------------------------------------

    def create_future(self, partition: TopicPartition, directory: str, now_ms: int) -> Log:
        """Create an empty future log of an existing log in another directory. Stops a compaction of the log."""
        log = self.logs[partition]
        self.update_outdated(directory)
        with self.guard(directory, silent=False):
            future = Log.create(
                self.disk,
                f"{directory}/{future_name(partition, self.random.getrandbits(128))}",
                log.config,
                topic_id=log.topic_id,
                now_ms=now_ms,
                start_offset=log.log_start_offset,
                producer_expiration_ms=self.producer_expiration_ms,
            )
        self.add_log(partition, future, self.futures)
        log.revision += 1
        return future

    def delete_future(self, partition: TopicPartition, now_ms: int) -> None:
        future = self.futures.pop(partition, None)
        if future is not None:
            path = self.rename_directory(partition, future, DELETE)
            self.pending_removals.append((now_ms + future.config.file_delete_delay_ms, path))

    def replace_with_future(self, partition: TopicPartition, now_ms: int) -> Log:
        """Replace a log by its future log, which must have the same records. Return the new log.

        Raises StorageError if the target directory fails; the log is then unchanged. If the source directory fails, it
        goes offline without this log.
        """
        log, future = self.logs[partition], self.futures[partition]
        source, target = parent(log.directory), parent(future.directory)
        with self.guard(target, silent=False):
            take_over(future, log)
            if future.recovery_point < log.recovery_point:
                # Produce requests were answered because these records are on disk.
                flush = future.begin_flush()
                self.disk.sync_now(flush.files, flush.directories)
                future.end_flush(flush)
            for name in (checkpoints.LOG_START, checkpoints.CLEANED_TO):
                if CHECKPOINTED[name](future) is not None:
                    self.checkpoint(name, (target,), sync=True)
            mark_replaced(log)
            relocate(future, f"{target}/{partition}")
            self.disk.sync_now([], [target])
        del self.futures[partition]
        self.add_log(partition, future)
        future.producers = log.producers
        try:
            with self.guard(source):
                relocate(log, self.renamed_path(partition, log, DELETE))
                self.retired[log.directory] = log
                due_ms = now_ms + log.config.file_delete_delay_ms
                self.pending_removals.append((due_ms, log.directory))
        finally:
            if log.directory not in self.retired:
                log.close(clean=False)
        self.outdated[source] = None
        return future

    def update_outdated(self, directory: str) -> None:
        """Write the checkpoints of a directory before a log is created in it, if they are outdated."""
        if self.outdated.pop(directory, self) is None:
            for name in CHECKPOINTED:
                self.checkpoint(name, (directory,))

    def describe(self) -> list[LogDirInfo]:
        infos = []
        for path in self.directories:
            total, usable = -1, -1
            if path not in self.offline:
                try:
                    total, usable = self.disk.space(path)
                except StorageError as error:
                    self.mark_offline(path, error)
            infos.append(
                LogDirInfo(
                    path=path,
                    error=self.offline.get(path),
                    total_bytes=total,
                    usable_bytes=usable,
                    sizes=sizes_in(path, self.logs),
                    future_sizes=sizes_in(path, self.futures),
                )
            )
        return infos

    def logs_in(self, directory: str) -> list[tuple[TopicPartition, Log]]:
        """Return the logs in a directory, including future logs. No partition has two logs in one directory."""
        if self.directories == (directory,):
            return list(self.logs.items())
        return [*filter_directory(directory, self.logs), *filter_directory(directory, self.futures)]

    @property
    def is_all_offline(self) -> bool:
        return len(self.offline) == len(self.directories)

    # ---- periodic work ------------------------------------------------------------------------------------------

    def purge(self, now_ms: int) -> Iterator[None]:
        """Remove the files of deleted segments whose delay is over. Yields after each log, so that others can run."""
        logs = (*self.logs.items(), *self.futures.items())
        for tp, log in [(tp, log) for tp, log in logs if log.segments.deleted]:
            if log in (self.logs.get(tp), self.futures.get(tp)):
                with self.guard(parent(log.directory)):
                    log.purge(now_ms)
                yield

    def pop_due_removals(self, now_ms: int) -> Iterator[str]:
        """Yield the directories of deleted logs whose delay is over. The caller must remove each of them."""
        for due in [each for each in self.pending_removals if each[0] <= now_ms]:
            self.pending_removals.remove(due)
            retired = self.retired.pop(due[1], None)
            if retired is not None:
                retired.close(clean=False)
            yield due[1]

    def checkpoint_contents(
        self, name: str, directories: Collection[str] | None = None
    ) -> Iterator[CheckpointContent]:
        """Yield the content of checkpoint file `name` for each online directory, or only for those in `directories`."""
        offset_of = CHECKPOINTED[name]
        for directory in self.directories:
            if directory not in self.offline and (directories is None or directory in directories):
                offsets = {
                    tp: offset
                    for tp, log in self.logs_in(directory)
                    if (offset := offset_of(log)) is not None
                }
                yield CheckpointContent(directory, f"{directory}/{name}", offsets)

    def checkpoint(
        self, name: str, directories: Collection[str] | None = None, *, sync: bool = False
    ) -> None:
        for each in self.checkpoint_contents(name, directories):
            # A caller that sets `sync` relies on the file, so errors are raised.
            with self.guard(each.directory, silent=not sync):
                data = checkpoints.encode_offsets(each.offsets)
                self.disk.replace_bytes(each.path, data, sync=sync)

    def save_after_truncation(self, directory: str) -> None:
        """Write the checkpoints of a directory after the recovery point of one of its logs was lowered."""
        self.checkpoint(checkpoints.RECOVERY_POINT, (directory,), sync=True)
        if any(log.cleaned_to != NEVER_CLEANED for _, log in self.logs_in(directory)):
            self.checkpoint(checkpoints.CLEANED_TO, (directory,))

    # ---- failure and shutdown -----------------------------------------------------------------------------------

    @contextmanager
    def guard(self, directory: str, *, silent: bool = True) -> Iterator[None]:
        """Take the directory offline if the body raises StorageError, and reraise it unless `silent`.

        A full disk does not take it offline: its logs are readable, and disk space may become free later.
        """
        try:
            yield
        except OutOfSpace as error:
            if directory not in self.full:
                self.full[directory] = None
                logger.error("log directory is full path=%s error=%s", directory, error)
            if not silent:
                raise
        except StorageError as error:
            self.mark_offline(directory, error)
            if not silent:
                raise
        else:
            self.full.pop(directory, None)

    def mark_offline(self, directory: str, error: StorageError) -> None:
        if directory in self.offline:
            return
        logger.error("log directory is offline path=%s error=%s", directory, error)
        self.offline[directory] = error
        self.preferred = {tp: path for tp, path in self.preferred.items() if path != directory}
        closed = self.close_logs(directory)
        if self.on_offline is not None:
            self.on_offline(closed, error)

    def close_logs(self, directory: str) -> list[TopicPartition]:
        """Close the logs and the future logs in a directory. Return the partitions of the logs."""
        closed = [partition for partition, _ in filter_directory(directory, self.logs)]
        for logs in (self.logs, self.futures):
            for partition, log in filter_directory(directory, logs):
                del logs[partition]
                log.close(clean=False)
        return closed

    def shutdown(self) -> None:
        """Close every log cleanly, and write the clean-shutdown mark into each directory without an error."""
        for directory in self.directories:
            if directory not in self.offline:
                with self.guard(directory):
                    self.stop(directory)
        self.release()

    def stop(self, directory: str) -> None:
        for _, log in self.logs_in(directory):
            log.close(clean=True)
        for name in CHECKPOINTED:
            self.checkpoint(name, (directory,), sync=True)
        if directory not in self.offline:
            self.disk.replace_bytes(f"{directory}/{checkpoints.CLEAN_SHUTDOWN}", CLEAN_MARK)

    def release(self) -> None:
        """Close files and release locks without writing anything, as the end of the process would."""
        for directory in self.directories:
            self.close_logs(directory)
        for log in self.retired.values():
            log.close(clean=False)
        self.retired.clear()
        for lock in self.locks.values():
            lock.release()
        self.locks.clear()


def parse_directory_name(name: str) -> TopicPartition | None:
    """Return partition 7 of topic orders-eu for `orders-eu-7`. None if this is not the name of a log's directory."""
    topic, dash, partition = name.rpartition("-")
    if not topic or not dash or not partition.isdecimal():
        return None
    return TopicPartition(topic, int(partition))


def filter_directory(
    directory: str, logs: Mapping[TopicPartition, Log]
) -> list[tuple[TopicPartition, Log]]:
    return [(tp, log) for tp, log in logs.items() if parent(log.directory) == directory]


def sizes_in(directory: str, logs: Mapping[TopicPartition, Log]) -> dict[TopicPartition, int]:
    return {tp: log.size_bytes for tp, log in filter_directory(directory, logs)}
