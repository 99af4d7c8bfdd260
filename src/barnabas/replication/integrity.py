"""Detection of damaged batches before they are sent, and repair from another replica.

    fetch of bytes that were not checked since the start ─► check them and some bytes ahead ─► continue the fetch
    background scrub ─► check the rest slowly, once after a start and then every week
    damaged batch ─► log an error ─► copy the segment from the leader, or from another replica

Until the repair, or without another replica, a fetch of the damaged batch gets an error. All other batches are served.
This applies to leaders and followers. The copy replaces the old segment as a compacted segment does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from random import Random
from typing import Protocol

from barnabas.client.connection import BrokerConnection
from barnabas.config import BrokerConfig
from barnabas.errors import CorruptBatch, ErrorCode, RemoteWireError, StorageError, reason
from barnabas.metadata.cache import MetadataCache
from barnabas.model import BrokerId
from barnabas.replication.partition import Partition
from barnabas.retry import Backoff
from barnabas.storage import checking
from barnabas.storage.cleaner import put_in_place
from barnabas.storage.log import Log
from barnabas.storage.repair import Repair
from barnabas.storage.segment import Segment
from barnabas.tasks import Tasks, in_thread
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.world.ports import Clock, Network

logger = logging.getLogger("barnabas.integrity")

WEEK_SECONDS = 7 * 86_400.0
SCRUB_PAUSE_SECONDS = 60.0
RETRY_SECONDS = (2.0, 30.0)
FETCH_BYTES = 1 << 20
FETCH_WAIT_MS = 500
EMPTY_RESPONSES_MAX = 10
TIMEOUT_SECONDS = 30.0


class IntegrityReplicaManager(Protocol):
    """The part of ReplicaManager that `Integrity` uses."""

    partitions: dict[tuple[str, int], Partition]
    metadata: MetadataCache
    config: BrokerConfig
    clock: Clock

    def holds(self, partition: Partition) -> bool: ...

    def fail(self, partition: Partition, error: StorageError) -> None: ...


class Integrity:
    def __init__(
        self, replica_manager: IntegrityReplicaManager, network: Network, tasks: Tasks
    ) -> None:
        self.replica_manager = replica_manager
        self.network = network
        self.tasks = tasks
        self.in_progress: dict[Segment, None] = {}
        """Segments that are being checked."""
        self.damaged: dict[Segment, None] = {}
        """Segments with a damaged batch, which was logged."""

    # ---- checking

    def check_before_fetch(self, partition: Partition, segment: Segment, position: int) -> None:
        """Check the segment from `position` in the background, then notify fetches that wait for the partition."""
        if segment not in self.in_progress:
            self.in_progress[segment] = None
            self.tasks.start("check-segment", self.check_and_notify(partition, segment, position))

    async def check_and_notify(self, partition: Partition, segment: Segment, position: int) -> None:
        """Check part of a segment, which must be in `in_progress`, then notify waiting fetches."""
        try:
            await self.check(partition, segment, position)
        finally:
            del self.in_progress[segment]
        partition.notify()
        partition.notify_end()

    async def check(self, partition: Partition, segment: Segment, position: int) -> None:
        """Check bytes from `position` in a thread. The result is ignored if the log was truncated or repaired."""
        log = partition.log
        revision, end_offset = log.revision, segment_end_offset(log, segment)
        try:
            result = await in_thread(
                lambda: checking.verify_batches(
                    log.disk.for_thread(), segment, position, end_offset=end_offset
                )
            )
        except StorageError as error:
            if self.has_segment(partition, segment):
                self.replica_manager.fail(partition, error)
            return
        if not self.has_segment(partition, segment) or log.revision != revision:
            return
        checking.record_check(segment, result)
        if result.fault != checking.NO_FAULT:
            fault = CorruptBatch(segment.log.path, "the checksum does not match", result.fault)
            self.report_segment(partition, segment, fault)

    def has_segment(self, partition: Partition, segment: Segment) -> bool:
        return (
            not partition.is_offline
            and self.replica_manager.holds(partition)
            and segment in partition.log.segments
        )

    async def scrub(self, bytes_per_second: int) -> None:
        """Check all segments after a start and then every week, until cancelled. A rate of 0 disables it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while bytes_per_second > 0:
            for partition in list(self.replica_manager.partitions.values()):
                for segment in list(partition.log.segments):
                    await self.scrub_segment(partition, segment, bytes_per_second)
            await asyncio.sleep(SCRUB_PAUSE_SECONDS)
            if loop.time() - began > WEEK_SECONDS:
                began = loop.time()
                for partition in self.replica_manager.partitions.values():
                    mark_unchecked(partition.log)

    async def scrub_segment(self, partition: Partition, segment: Segment, rate: int) -> None:
        while (start := checking.next_to_check(segment)) is not None:
            if segment in self.in_progress or not self.has_segment(partition, segment):
                return
            self.in_progress[segment] = None
            await self.check_and_notify(partition, segment, start)
            await asyncio.sleep(checking.AHEAD_BYTES / rate)

    # ---- repairing

    def report_batch(self, partition: Partition, error: CorruptBatch) -> None:
        for segment in partition.log.segments:
            if segment.log.path == error.path:
                self.report_segment(partition, segment, error)

    def report_segment(self, partition: Partition, segment: Segment, error: CorruptBatch) -> None:
        """Log the damage once, and start a repair if there is another replica."""
        if segment in self.damaged:
            return
        self.damaged[segment] = None
        others = [broker for broker in partition.replicas if broker != partition.broker_id]
        if not others:
            logger.error(
                "damaged batch and no other replica to copy it from: fetches of this batch fail, others work; to "
                "skip it, reset consumer offsets past it or delete records up to the next batch partition=%s error=%s",
                *(partition, error),
            )
            return
        logger.error(
            "damaged batch, copying its segment from brokers=%s partition=%s error=%s",
            *(others, partition, error),
        )
        self.tasks.start("repair", self.repair(partition, segment))

    async def repair(self, partition: Partition, segment: Segment) -> None:
        """Retry until the segment is repaired or no longer in the log."""
        backoff = Backoff(*RETRY_SECONDS, random=Random(partition.broker_id))
        while self.has_segment(partition, segment):
            if segment is partition.log.segments.active:
                partition.log.roll(self.replica_manager.clock.now_ms())
            for broker in self.sources(partition):
                try:
                    if await self.copy_segment(partition, segment, broker):
                        del self.damaged[segment]
                        return
                except (ConnectionError, TimeoutError, RemoteWireError) as error:
                    if backoff.failures == 0:
                        logger.warning(
                            "cannot copy segment from broker=%d partition=%s reason=%s",
                            *(broker, partition, reason(error)),
                        )
                except StorageError as error:
                    self.replica_manager.fail(partition, error)
            await backoff.wait()
        self.damaged.pop(segment, None)

    def sources(self, partition: Partition) -> Iterator[BrokerId]:
        """Yield the live replicas to copy from. The leader is first, since it has all committed records."""
        others = [broker for broker in partition.replicas if broker != partition.broker_id]
        for broker in sorted(others, key=lambda broker: broker != partition.leader):
            if self.replica_manager.metadata.is_alive(broker):
                yield broker

    async def copy_segment(self, partition: Partition, segment: Segment, broker: BrokerId) -> bool:
        """Replace the segment by a copy from `broker`. Return False if this is not possible now.

        Only committed segments are copied. Raises StorageError, ConnectionError, TimeoutError or RemoteWireError.
        """
        log = partition.log
        is_possible = (
            segment_end_offset(log, segment) <= log.high_watermark and not log.is_being_rewritten
        )
        if not self.has_segment(partition, segment) or not is_possible:
            return False
        endpoint = self.replica_manager.metadata.endpoint_of(
            broker, self.replica_manager.config.inter_broker_listener
        )
        if endpoint is None:
            raise ConnectionError(f"broker {broker} has no known address")
        repair = Repair(log, segment, now_ms=self.replica_manager.clock.now_ms())
        log.is_being_rewritten = True
        connection: BrokerConnection | None = None
        try:
            connection = await BrokerConnection.open(
                self.network,
                endpoint.host,
                endpoint.port,
                client_id=f"broker-{partition.broker_id}-repair",
                timeout_s=TIMEOUT_SECONDS,
            )
            await fetch_segment(connection, partition, repair)
            replacement = await in_thread(repair.finish)
            if not repair.is_applicable or not self.has_segment(partition, segment):
                return False
            if not put_in_place(log, replacement, self.replica_manager.clock.now_ms()):
                return False
            log.revision += 1  # operations that failed because of this segment may be retried
        finally:
            log.is_being_rewritten = False
            repair.discard()
            if connection is not None:
                connection.close("done")
        logger.info(
            "repaired segment partition=%s offsets=%d..%d broker=%d",
            *(partition, segment.base_offset, repair.end_offset, broker),
        )
        partition.notify()
        partition.notify_end()
        return True


async def fetch_segment(connection: BrokerConnection, partition: Partition, repair: Repair) -> None:
    """Fetch the records of the segment as a consumer, which may read from any replica.

    Raises ConnectionError if the replica returns an error or no records.
    """
    empty_responses = 0
    while not repair.is_complete:
        query = FetchPartition(
            partition=partition.index,
            fetch_offset=repair.next_offset,
            partition_max_bytes=FETCH_BYTES,
        )
        response = await connection.exchange(
            FetchRequest(
                max_wait_ms=FETCH_WAIT_MS,
                min_bytes=1,
                topics=(FetchTopic(topic_id=partition.topic_id, partitions=(query,)),),
            ),
            FetchResponse,
            timeout_s=TIMEOUT_SECONDS,
        )
        parts = [data for topic in response.responses for data in topic.partitions]
        code = response.error_code or (parts[0].error_code if parts else 0)
        if code:
            raise ConnectionError(f"fetch failed with {ErrorCode(code).name}")
        if not parts or not parts[0].records:
            empty_responses += 1  # the replica may be checking its own copy first
            if empty_responses > EMPTY_RESPONSES_MAX:
                raise ConnectionError(f"no records at offset {repair.next_offset}")
            continue
        await in_thread(repair.add_batches, memoryview(parts[0].records))


def segment_end_offset(log: Log, segment: Segment) -> int:
    """Return the offset after the last record of `segment`, or the log end offset if it is no longer in the log."""
    if segment not in log.segments:
        return log.log_end_offset
    return log.next_segment_offset(segment.base_offset)


def mark_unchecked(log: Log) -> None:
    """Let the scrub check all closed segments again."""
    for segment in log.segments[:-1]:
        segment.unchecked_to = segment.size
        segment.checked_from = segment.checked_to = 0
