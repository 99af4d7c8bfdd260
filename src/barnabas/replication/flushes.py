"""Fsyncs of logs that flush.messages or flush.ms requires. Each log has one at a time; waiting calls share the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.metrics.histogram import add_seconds, new_buckets
from barnabas.replication.partition import Partition
from barnabas.storage.flush_state import Flush
from barnabas.tasks import Tasks
from barnabas.world.ports import Disk


class Flushes:
    def __init__(
        self, disk: Disk, tasks: Tasks, on_failed: Callable[[Partition, StorageError], None]
    ) -> None:
        """`on_failed` is called when the log of a partition cannot be fsynced."""
        self.disk = disk
        self.tasks = tasks
        self.on_failed = on_failed
        self.times = new_buckets()

    def flush(self, partition: Partition) -> asyncio.Future[None]:
        """Return a future that resolves when all records up to the current end are durable.

        Calls during a running fsync share the next one.
        """
        if partition.flush_next is None:
            partition.flush_next = asyncio.get_running_loop().create_future()
            if not partition.flush_running:
                partition.flush_running = True
                self.tasks.start("flush", self.run(partition))
        return partition.flush_next

    async def run(self, partition: Partition) -> None:
        """Flush until no call of `flush` is waiting."""
        try:
            while (future := partition.flush_next) is not None:
                partition.flush_next = None
                try:
                    flush = await self.sync_log(partition)
                except StorageError as error:
                    # After a failed fsync the disk content is unknown, even if the cause is a full disk.
                    self.on_failed(partition, StorageError(error.path, error.why))
                    future.set_exception(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
                    future.exception()  # avoids an asyncio warning: with acks=0 nothing awaits it
                    continue
                except asyncio.CancelledError:
                    future.cancel()
                    raise
                partition.finish_flush(flush.up_to_offset)
                if not future.done():
                    future.set_result(None)
        finally:
            partition.flush_running = False

    async def sync_log(self, partition: Partition) -> Flush:
        """Fsync the log. If a move replaces the log meanwhile, fsync the new one."""
        log = partition.log
        flush = log.begin_flush()
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self.disk.sync(flush.files, flush.directories)
        except StorageError:
            if partition.log is log:
                raise
        add_seconds(self.times, loop.time() - began)
        log.end_flush(flush)
        return flush if partition.log is log else await self.sync_log(partition)
