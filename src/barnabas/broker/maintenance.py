"""Periodic tasks of a broker: flushes, checkpoints, retention, compaction, expiration of producers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from barnabas.broker.log_cleaner import LogCleaner
from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.checkpoints import HIGH_WATERMARK, LOG_START, RECOVERY_POINT, encode_offsets
from barnabas.storage.files import parent
from barnabas.storage.log_manager import LogManager
from barnabas.tasks import Tasks, Turns, in_chunks, in_thread
from barnabas.world.ports import Clock

logger = logging.getLogger("barnabas.maintenance")

FLUSH_CHECK_MS = 1000
SNAPSHOT_CHECK_MS = 5000
PURGE_MS = 1000
FLUSH_CHECKS_PER_TURN = 2000

Work = Callable[[], Coroutine[Any, Any, None]]


def start_maintenance(tasks: Tasks, replicas: ReplicaManager) -> LogCleaner:
    """Start all periodic tasks. Returns the cleaner, whose settings can change."""
    config, logs, clock = replicas.config, replicas.logs, replicas.clock
    delay_ms = config.log_initial_task_delay_ms
    run = partial(run_every, tasks)
    run("flush", FLUSH_CHECK_MS, FLUSH_CHECK_MS, lambda: flush_due(replicas))
    period_ms = config.replica_high_watermark_checkpoint_interval_ms
    run("checkpoint-hw", period_ms, period_ms, lambda: checkpoint(logs, HIGH_WATERMARK))
    period_ms = config.log_flush_offset_checkpoint_interval_ms
    run("checkpoint-recovery", delay_ms, period_ms, lambda: checkpoint(logs, RECOVERY_POINT))
    period_ms = config.log_flush_start_offset_checkpoint_interval_ms
    run("checkpoint-start", delay_ms, period_ms, lambda: checkpoint(logs, LOG_START))
    period_ms = config.log_retention_check_interval_ms
    run("retention", delay_ms, period_ms, lambda: apply_retention(replicas, clock))
    period_ms = config.producer_id_expiration_check_interval_ms
    run("expire", delay_ms, period_ms, lambda: expire_producers(replicas))
    run("snapshot", SNAPSHOT_CHECK_MS, SNAPSHOT_CHECK_MS, lambda: save_producers(replicas))
    run("purge", PURGE_MS, PURGE_MS, lambda: purge(logs, clock))
    cleaner = LogCleaner(config, replicas, clock)
    cleaner.start(tasks)
    return cleaner


def run_every(tasks: Tasks, name: str, delay_ms: int, period_ms: int, work: Work) -> None:
    """Start a task that runs `work` periodically. Errors are logged, and the task continues."""

    async def repeat() -> None:
        await asyncio.sleep(delay_ms / 1000)
        while True:
            try:
                await work()
            except StorageError as error:
                logger.error("%s failed error=%s", name, error)
            except Exception:
                logger.exception("%s failed", name)
            await asyncio.sleep(period_ms / 1000)

    tasks.start(name, repeat())


async def checkpoint(logs: LogManager, name: str) -> None:
    """Write the checkpoints in a thread: while the disk is busy, renaming a file can take tens of milliseconds."""
    for directory, path, offsets in logs.checkpoint_contents(name):
        replace = logs.disk.prepare_replace(path)
        with logs.guard(directory):
            await in_thread(write_offsets, replace, offsets)


def write_offsets(replace: Callable[[bytes], None], offsets: Mapping[TopicPartition, int]) -> None:
    replace(encode_offsets(offsets))


async def flush_due(replicas: ReplicaManager) -> None:
    """Fsync the logs that are due by their flush settings or after a segment roll. The fsyncs run in threads."""
    now_ms = replicas.clock.now_ms()
    async for chunk in in_chunks(tuple(replicas.partitions.values()), FLUSH_CHECKS_PER_TURN):
        for partition in chunk:
            if not partition.is_offline and partition.log.is_flush_due(now_ms):
                replicas.flush(partition)


async def purge(logs: LogManager, clock: Clock) -> None:
    """Remove the files of deleted segments and logs after `file.delete.delay.ms`."""
    now_ms = clock.now_ms()
    turns = Turns()
    for _ in logs.purge(now_ms):
        await turns.yield_if_due()
    for path in logs.pop_due_removals(now_ms):
        with logs.guard(parent(path)):
            await in_thread(logs.disk.remove_tree, path)


async def apply_retention(replicas: ReplicaManager, clock: Clock) -> None:
    now_ms = clock.now_ms()

    def delete_old_segments(partition: Partition) -> None:
        removed = partition.log.delete_old_segments(now_ms)
        if removed:
            logger.info("deleted old segments partition=%s segments=%d", partition, removed)
            partition.notify()

    await for_each_log(replicas, delete_old_segments)


async def save_producers(replicas: ReplicaManager) -> None:
    await for_each_log(replicas, lambda partition: partition.log.save_producers_if_due())


async def for_each_log(replicas: ReplicaManager, do: Callable[[Partition], None]) -> None:
    """Call `do` for each partition with a usable log. A disk error takes its log directory offline."""
    turns = Turns()
    for partition in list(replicas.partitions.values()):
        await turns.yield_if_due()
        if partition.is_offline or not replicas.holds(partition):
            continue
        try:
            do(partition)
        except StorageError as error:
            replicas.fail(partition, error)


async def expire_producers(replicas: ReplicaManager) -> None:
    """Expire idle producers, by monotonic time: a jump of the wall clock must not expire them."""
    monotonic_ms = round(asyncio.get_running_loop().time() * 1000)
    turns = Turns()
    for partition in list(replicas.partitions.values()):
        await turns.yield_if_due()
        partition.log.expire_producers(monotonic_ms)
