"""Compaction in the background: the dirtiest log is cleaned, then the next, and when there is none it rests.

    choose (pure) ─► read and write elsewhere, a step at a time ─► put in place on the loop ─► … ─► checkpoint

Nothing waits for a cleaning and nothing is stopped for one. A log that is cut, deleted, taken offline or no longer
compacted while it is being cleaned is noticed before the next step: then what was written is thrown away. Appends,
retention, DeleteRecords and a change of leader touch other parts of a log than a cleaning does, or make a segment go
that it wanted to replace, which `put_in_place` sees.

A step is done in a thread for the sake of the disk, and is short for the sake of the loop: threads share Python's lock,
so while one computes, the loop waits. After each step the cleaner rests as long as the step took.
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
from barnabas.storage.cleaner import Cleaning, Limits, Replacement, facts_of, put_in_place
from barnabas.storage.compaction import Cleanable, cleanable
from barnabas.storage.log import Log
from barnabas.storage.paths import parent
from barnabas.tasks import Tasks, Turns, in_thread
from barnabas.world.ports import Clock

logger = logging.getLogger("barnabas.cleaner")

BACKOFF_SECONDS_MIN = 0.01
FAILED_SECONDS_MAX = 60.0
BUFFER_BYTES_MIN = 4096
REST_SECONDS_MAX = 1.0


class LogCleaner:
    def __init__(self, config: BrokerConfig, replicas: ReplicaManager, clock: Clock) -> None:
        self.config = config
        self.replicas = replicas
        self.clock = clock
        self.given_up: dict[TopicPartition, tuple[Log, int]] = {}
        """Logs with a damaged segment, and how often each had been cut by then: until it is mended, or a restart."""

    @property
    def limits(self) -> Limits:
        config = self.config
        share = config.log_cleaner_dedupe_buffer_size // max(config.log_cleaner_threads, 1)
        return Limits(
            map_bytes=int(share * config.log_cleaner_io_buffer_load_factor),
            buffer_bytes=max(config.log_cleaner_io_buffer_size, BUFFER_BYTES_MIN),
        )

    def start(self, tasks: Tasks) -> None:
        if self.config.log_cleaner_enable:
            for number in range(self.config.log_cleaner_threads):
                tasks.start(f"log-cleaner-{number}", self.run())

    async def run(self) -> None:
        rest = max(self.config.log_cleaner_backoff_ms / 1000, BACKOFF_SECONDS_MIN)
        backoff = Backoff(rest, max(rest, FAILED_SECONDS_MAX), random=Random(0))
        while True:
            try:
                has_cleaned = await self.clean_dirtiest()
                await self.retain()
            except Exception:
                logger.exception("cleaning failed")  # and goes on with the next log
                await backoff.wait()
            else:
                backoff.reset()
                if not has_cleaned:
                    await asyncio.sleep(rest)

    async def clean_dirtiest(self) -> bool:
        """Whether there was anything to clean, and it was."""
        chosen = await self.dirtiest()
        if chosen is None:
            return False
        partition, found = chosen
        log = partition.log
        log.is_rewritten = True
        try:
            return await self.clean(partition, log, found)
        finally:
            log.is_rewritten = False

    async def dirtiest(self) -> tuple[Partition, Cleanable] | None:
        best: tuple[Partition, Cleanable] | None = None
        now_ms = self.clock.now_ms()
        turns = Turns()
        for partition in list(self.replicas.partitions.values()):
            await turns.leave()
            if not self.may_clean(partition):
                continue
            try:
                found = cleanable(facts_of(partition.log), partition.log.config, now_ms)
            except StorageError as error:
                self.give_up(partition, partition.log, error)
                continue
            if found.is_worth_it(partition.log.config) and (
                best is None or found.dirty_ratio > best[1].dirty_ratio
            ):
                best = partition, found
        if best is not None and not self.may_clean(best[0]):
            return None  # somebody else was faster
        return best

    def may_clean(self, partition: Partition) -> bool:
        log = partition.log
        return (
            log.config.compacts
            and not log.is_rewritten
            and self.log_of(partition) is log
            and self.given_up.get(key_of(partition)) != (log, log.cuts)
        )

    def log_of(self, partition: Partition) -> Log | None:
        """As long as it is here and can be written."""
        if partition.is_offline or not self.replicas.holds(partition):
            return None
        return self.replicas.logs.get(key_of(partition))

    async def clean(self, partition: Partition, log: Log, found: Cleanable) -> bool:
        cleaning = Cleaning(log, found, self.limits, now_ms=self.clock.now_ms())
        steps = cleaning.steps()
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            while True:
                step_began = loop.time()
                step = await in_thread(next, steps, None)
                if not cleaning.is_still_of(self.log_of(partition)):
                    logger.info("stopped, the log has changed partition=%s", partition)
                    return False
                if step is None:
                    break
                if isinstance(step, Replacement):
                    if not put_in_place(log, step, self.clock.now_ms()):
                        logger.info("stopped, segments were deleted partition=%s", partition)
                        return False
                    continue
                await asyncio.sleep(self.rest_after(step, loop.time() - step_began))
            log.cleaned_to = cleaning.cleaned_to
            logs = self.replicas.logs
            logs.checkpoint(logs.cleaned((parent(log.directory),)))
        except StorageError as error:
            if cleaning.is_still_of(self.log_of(partition)):
                self.give_up(partition, log, error)
            return False
        finally:
            steps.close()
            cleaning.throw_away()
        tally = cleaning.tally
        logger.info(
            "cleaned partition=%s offsets=%d..%d bytes=%d->%d records=%d->%d seconds=%.1f",
            partition,
            found.first_dirty,
            cleaning.cleaned_to,
            tally.bytes_read,
            tally.bytes_kept,
            tally.records_read,
            tally.records_kept,
            loop.time() - began,
        )
        return cleaning.cleaned_to > found.first_dirty

    def rest_after(self, size: int, took: float) -> float:
        """Seconds. The loop has at least every second slice of time to itself."""
        allowed = size / max(self.config.log_cleaner_io_max_bytes_per_second, 1.0)
        return min(max(took, allowed - took), max(REST_SECONDS_MAX, allowed))

    def give_up(self, partition: Partition, log: Log, error: StorageError) -> None:
        if isinstance(error, OutOfSpace):
            logger.warning("no room to clean partition=%s error=%s", partition, error)
            return
        if isinstance(error, CorruptBatch):
            self.given_up[key_of(partition)] = (log, log.cuts)
        self.replicas.fail(partition, error)

    async def retain(self) -> None:
        """What is compacted and deleted is looked after here, between two cleanings."""
        turns = Turns()
        now_ms = self.clock.now_ms()
        for partition in list(self.replicas.partitions.values()):
            await turns.leave()
            log = partition.log
            if log.config.compacts and not log.is_rewritten and self.log_of(partition):
                try:
                    if log.delete_old_segments(now_ms):
                        partition.notify()
                except StorageError as error:
                    self.replicas.fail(partition, error)


def key_of(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.index)
