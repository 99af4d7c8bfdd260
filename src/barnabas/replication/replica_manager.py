"""Which partitions live on this broker, and the background care of their logs."""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from barnabas.config import TopicConfig
from barnabas.errors import ApiError, CorruptBatch, ErrorCode, OutOfSpace, StorageError
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition, ZnodeVersion
from barnabas.replication.partition import Partition
from barnabas.storage.log import Log, parent
from barnabas.storage.log_manager import LogManager
from barnabas.world.ports import Clock, Disk

logger = logging.getLogger("barnabas.replicas")


class ReplicaManager:
    """The partitions of this broker by (topic, index)."""

    def __init__(self, broker_id: BrokerId, logs: LogManager, disk: Disk, clock: Clock) -> None:
        self.broker_id = broker_id
        self.logs = logs
        self.disk = disk
        self.clock = clock
        self.partitions: dict[tuple[str, int], Partition] = {}
        logs.on_offline = self.take_offline

    def find(self, topic: str, index: int) -> Partition:
        partition = self.partitions.get((topic, index))
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    # ---- becoming, ceasing

    def lead(
        self,
        tp: TopicPartition,
        topic_id: UUID,
        config: TopicConfig,
        *,
        leader_epoch: LeaderEpoch,
        replicas: tuple[BrokerId, ...],
        isr: tuple[BrokerId, ...],
        partition_epoch: ZnodeVersion,
    ) -> Partition:
        """Create the log if it is missing and become its leader."""
        partition = self.partitions.get(tp)
        if partition is None:
            log = self.log_of(tp, topic_id, config)
            log.use_config(config)
            partition = Partition(tp.topic, tp.partition, topic_id, self.broker_id, log)
            self.partitions[tp] = partition
        partition.lead(
            leader_epoch=leader_epoch, replicas=replicas, isr=isr, partition_epoch=partition_epoch
        )
        return partition

    def log_of(self, tp: TopicPartition, topic_id: UUID, config: TopicConfig) -> Log:
        """The log of this very topic. One of a former topic of that name is never served; it is kept for somebody to
        look at, as when the power went before its deletion was on the disk."""
        log = self.logs.get(tp)
        if log is not None and log.topic_id not in (None, topic_id):
            logger.warning("setting aside partition=%s of former topic id=%s", tp, log.topic_id)
            self.logs.set_aside(tp)
            log = None
        if log is None:
            return self.logs.create_log(tp, topic_id, config, self.clock.now_ms())
        if log.topic_id is None:
            log.assign_topic_id(topic_id)
        return log

    def stop(self, tp: TopicPartition, *, delete: bool) -> None:
        partition = self.partitions.pop(tp, None)
        if partition is not None:
            partition.leader = BrokerId(-1)
            partition.break_promises(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if delete and self.logs.get(tp) is not None:
            self.logs.delete_log(tp, self.clock.now_ms())

    # ---- durability

    def flush(self, partition: Partition) -> asyncio.Future[None]:
        """Durable up to the present end when the future resolves. Calls that come while a sync is under way share
        the next one."""
        if partition.flush_next is None:
            partition.flush_next = asyncio.get_running_loop().create_future()
            if not partition.flush_running:
                partition.flush_running = True
                task = asyncio.get_running_loop().create_task(self.run_flushes(partition))
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return partition.flush_next

    async def run_flushes(self, partition: Partition) -> None:
        try:
            while (future := partition.flush_next) is not None:
                partition.flush_next = None
                try:
                    flush = partition.log.begin_flush()
                    await self.disk.sync(flush.files, flush.directories)
                except StorageError as error:
                    # A topic deleted meanwhile has its files closed: that is no fault of the disk.
                    if self.partitions.get((partition.topic, partition.index)) is partition:
                        # After a failed fsync nobody knows what is on the disk, whatever the reason.
                        self.fail(partition, StorageError(error.path, error.why))
                    future.set_exception(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
                    future.exception()  # nobody may be waiting for it (acks=0)
                    continue
                partition.log.end_flush(flush)
                partition.flushed(flush.up_to_offset)
                if not future.done():
                    future.set_result(None)
        finally:
            partition.flush_running = False

    def fail(self, partition: Partition, error: StorageError) -> None:
        """The disk broke: take every partition of that log directory offline. One that is full took nothing and may
        have room again, and one broken batch is no broken disk."""
        if isinstance(error, CorruptBatch):
            logger.error("corrupt batch partition=%s error=%s", partition, error)
        elif not isinstance(error, OutOfSpace):
            self.logs.mark_offline(parent(partition.log.directory), error)

    def take_offline(self, gone: list[TopicPartition], error: StorageError) -> None:
        for tp in gone:
            partition = self.partitions.get(tp)
            if partition is not None:
                partition.is_offline = True
                partition.break_promises(ErrorCode.KAFKA_STORAGE_ERROR)
