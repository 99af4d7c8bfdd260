"""Background compaction: cleans the log with the largest dirty ratio, then the next one, and sleeps if there is none.

    choose a log ─► read and write step by step, in a thread ─► replace segments on the event loop ─► … ─► checkpoint

No other operation waits for a cleaning. If the log is truncated, deleted, taken offline or no longer compacted, the
cleaner notices it before the next step and discards its output. Appends, DeleteRecords and a change of leader do not
touch the segments of a cleaning. Retention may delete such a segment, which `put_in_place` detects. A log that moves
to another log directory is not cleaned until the move ends.

A step runs in a thread because it waits for the disk. It is short because threads share the GIL: while the step
computes, the event loop waits. After each step the cleaner sleeps about as long as the step took, or longer to keep
log.cleaner.io.max.bytes.per.second.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random

from barnabas.config import BrokerConfig
from barnabas.errors import CorruptBatch, OutOfSpace, StorageError
from barnabas.model import TopicPartition
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.retry import Backoff
from barnabas.storage.checkpoints import CLEANED_TO
from barnabas.storage.cleaner import Cleaning, Limits, Replacement, collect_facts, put_in_place
from barnabas.storage.compaction import CleanableRange, find_cleanable
from barnabas.storage.files import parent
from barnabas.storage.log import Log
from barnabas.tasks import Tasks, Turns, in_thread
from barnabas.world.ports import Clock

logger = logging.getLogger("barnabas.cleaner")

BACKOFF_SECONDS_MIN = 0.01
FAILURE_BACKOFF_SECONDS_MAX = 60.0
BUFFER_BYTES_MIN = 4096
SLEEP_SECONDS_MAX = 1.0


class LogCleaner:
    """Compacts the logs of a broker in `log.cleaner.threads` background tasks."""

    def __init__(self, config: BrokerConfig, replicas: ReplicaManager, clock: Clock) -> None:
        self.config = config
        self.replicas = replicas
        self.clock = clock
        self.tasks: Tasks | None = None
        self.running: set[int] = set()
        """Numbers of the running tasks, from 0."""
        self.failed_logs: dict[TopicPartition, tuple[Log, int]] = {}
        """Logs with a corrupt batch, and their revision. They are skipped until a repair or truncation changes it."""
        self.bytes_read = 0
        self.last_seconds = self.last_kept_percent = 0.0
        """Of the last cleaning."""
        self.postponed: list[Log] = []
        """Logs whose cleaning failed for an unknown reason. They are tried again when no other log is dirty."""

    @property
    def limits(self) -> Limits:
        config = self.config
        share = config.log_cleaner_dedupe_buffer_size // max(config.log_cleaner_threads, 1)
        return Limits(
            map_bytes=int(share * config.log_cleaner_io_buffer_load_factor),
            buffer_bytes=max(config.log_cleaner_io_buffer_size, BUFFER_BYTES_MIN),
        )

    def start(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self.start_missing(tasks)

    def reconfigure(self, _: BrokerConfig, config: BrokerConfig) -> None:
        """Use new limits from the next step on. Superfluous tasks end when their cleaning is done."""
        self.config = config
        if self.tasks is not None:
            self.start_missing(self.tasks)

    def start_missing(self, tasks: Tasks) -> None:
        if self.config.log_cleaner_enable:
            for number in range(self.config.log_cleaner_threads):
                if number not in self.running:
                    self.running.add(number)
                    tasks.start(f"log-cleaner-{number}", self.run_numbered(number))

    async def run_numbered(self, number: int) -> None:
        try:
            await self.run(number)
        finally:
            self.running.discard(number)

    @property
    def pause_s(self) -> float:
        return max(self.config.log_cleaner_backoff_ms / 1000, BACKOFF_SECONDS_MIN)

    async def run(self, number: int = 0) -> None:
        """Clean logs until cancelled, or until log.cleaner.threads is not larger than `number`."""
        pause_s = self.pause_s
        backoff = Backoff(pause_s, max(pause_s, FAILURE_BACKOFF_SECONDS_MAX), random=Random(0))
        while number < self.config.log_cleaner_threads:
            try:
                has_cleaned = await self.clean_dirtiest()
                await self.delete_old_segments()
            except Exception:
                logger.exception("cleaning failed")
                await backoff.wait()
            else:
                if has_cleaned:
                    backoff.reset()
                else:
                    self.postponed.clear()
                    await asyncio.sleep(self.pause_s)

    async def clean_dirtiest(self) -> bool:
        """Clean the log with the largest dirty ratio. Return whether a log was cleaned."""
        best = await self.find_dirtiest()
        if best is None:
            return False
        partition, cleanable = best
        log = partition.log
        log.is_being_rewritten = True
        try:
            return await self.clean(partition, log, cleanable)
        except Exception:
            self.postponed.append(log)  # so that it does not block the cleaning of other logs
            raise
        finally:
            log.is_being_rewritten = False

    async def find_dirtiest(self) -> tuple[Partition, CleanableRange] | None:
        best: tuple[Partition, CleanableRange] | None = None
        now_ms = self.clock.now_ms()
        turns = Turns()
        for partition in list(self.replicas.partitions.values()):
            await turns.yield_if_due()
            if not self.may_clean(partition):
                continue
            try:
                cleanable = find_cleanable(
                    collect_facts(partition.log), partition.log.config, now_ms
                )
            except StorageError as error:
                self.handle_error(partition, partition.log, error)
                continue
            if cleanable.is_worth_it(partition.log.config) and (
                best is None or cleanable.dirty_ratio > best[1].dirty_ratio
            ):
                best = partition, cleanable
        if best is not None and not self.may_clean(best[0]):
            return None  # changed meanwhile: another task cleans or repairs it, or it is offline
        return best

    def may_clean(self, partition: Partition) -> bool:
        log = partition.log
        return (
            log.config.compacts
            and not log.is_being_rewritten
            and log not in self.postponed
            and topic_partition(partition) not in self.replicas.logs.futures
            and self.log_of(partition) is log
            and self.failed_logs.get(topic_partition(partition)) != (log, log.revision)
        )

    def log_of(self, partition: Partition) -> Log | None:
        """Return the log of a partition that is on this broker and not offline, else None."""
        if partition.is_offline or not self.replicas.holds(partition):
            return None
        return self.replicas.logs.get(topic_partition(partition))

    async def clean(self, partition: Partition, log: Log, cleanable: CleanableRange) -> bool:
        """Clean a range of the log. Return False if cleaning failed, was stopped, or made no progress."""
        cleaning = Cleaning(log, cleanable, self.limits, now_ms=self.clock.now_ms())
        steps = cleaning.steps()
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            while True:
                step_began = loop.time()
                # A step is a Replacement, or the number of bytes that were processed.
                step = await in_thread(next, steps, None)
                if not cleaning.applies_to(self.log_of(partition)):
                    logger.info("cleaning stopped, the log has changed partition=%s", partition)
                    return False
                if step is None:
                    break
                if isinstance(step, Replacement):
                    if not put_in_place(log, step, self.clock.now_ms()):
                        logger.info(
                            "cleaning stopped, segments were deleted partition=%s", partition
                        )
                        return False
                    continue
                await asyncio.sleep(self.sleep_after(step, loop.time() - step_began))
            log.cleaned_to = cleaning.cleaned_to
            self.replicas.logs.checkpoint(CLEANED_TO, (parent(log.directory),))
        except StorageError as error:
            if cleaning.applies_to(self.log_of(partition)):
                self.handle_error(partition, log, error)
            return False
        finally:
            steps.close()
            cleaning.discard_output()
        stats = cleaning.stats
        self.bytes_read += stats.bytes_read
        self.last_seconds = loop.time() - began
        self.last_kept_percent = 100 * stats.bytes_kept / max(stats.bytes_read, 1)
        logger.info(
            "cleaned partition=%s offsets=%d..%d bytes=%d->%d records=%d->%d seconds=%.1f",
            partition,
            cleanable.first_dirty,
            cleaning.cleaned_to,
            stats.bytes_read,
            stats.bytes_kept,
            stats.records_read,
            stats.records_kept,
            self.last_seconds,
        )
        return cleaning.cleaned_to > cleanable.first_dirty

    def sleep_after(self, size: int, took: float) -> float:
        """Return the seconds to sleep after a step of `size` bytes that took `took` seconds.

        As long as the step took, or longer to keep log.cleaner.io.max.bytes.per.second. At most SLEEP_SECONDS_MAX, or
        the time that the bytes need at that rate.
        """
        duration_min = size / max(self.config.log_cleaner_io_max_bytes_per_second, 1.0)
        return min(max(took, duration_min - took), max(SLEEP_SECONDS_MAX, duration_min))

    def handle_error(self, partition: Partition, log: Log, error: StorageError) -> None:
        if isinstance(error, OutOfSpace):
            logger.warning("no disk space to clean partition=%s error=%s", partition, error)
            return
        if isinstance(error, CorruptBatch):
            self.failed_logs[topic_partition(partition)] = (log, log.revision)
        self.replicas.fail(partition, error)

    async def delete_old_segments(self) -> None:
        """Apply retention to compacted logs, except logs being rewritten: a deleted segment would stop a cleaning."""
        turns = Turns()
        now_ms = self.clock.now_ms()
        for partition in list(self.replicas.partitions.values()):
            await turns.yield_if_due()
            log = partition.log
            if log.config.compacts and not log.is_being_rewritten and self.log_of(partition):
                try:
                    if log.delete_old_segments(now_ms):
                        partition.notify()
                except StorageError as error:
                    self.replicas.fail(partition, error)


def topic_partition(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.index)
