"""Damaged bytes are found before they are sent, and fetched anew from another replica.

    a fetch meets bytes that nobody verified since the start ─► they are read through, a little ahead, and it goes on
    the rest is read through slowly in the background ─► once after a start, and again every week
    a batch is not right ─► one line in the log ─► the segment is copied from the leader, or from another replica

Until then, or if nobody else has it, whoever asks for that very batch is told so; everything around it is served.
Leaders and followers do the same. A copy takes the place of the old segment as a compacted one does.
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
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from barnabas.world.ports import Clock, Network

logger = logging.getLogger("barnabas.integrity")

WEEK_SECONDS = 7 * 86_400.0
SCRUB_REST_SECONDS = 60.0
RETRY_SECONDS = (2.0, 30.0)
FETCH_BYTES = 1 << 20
FETCH_WAIT_MS = 500
EMPTY_ANSWERS_MAX = 10
TIMEOUT_SECONDS = 30.0


class Replicas(Protocol):
    """The part of the replica manager that `Integrity` uses."""

    partitions: dict[tuple[str, int], Partition]
    metadata: MetadataCache
    config: BrokerConfig
    clock: Clock

    def holds(self, partition: Partition) -> bool: ...

    def fail(self, partition: Partition, error: StorageError) -> None: ...


class Integrity:
    def __init__(self, replicas: Replicas, network: Network | None, tasks: Tasks) -> None:
        self.replicas = replicas
        self.network = network
        self.tasks = tasks
        self.looking: dict[Segment, None] = {}
        self.damaged: dict[Segment, None] = {}
        """Those that are known to be, and were told of."""

    # ---- looking

    def look_through(self, partition: Partition, segment: Segment, position: int) -> None:
        """Before it is sent. Whoever waits for the partition is told when that was done."""
        if segment not in self.looking:
            self.looking[segment] = None
            self.tasks.start("look-through", self.look_ahead(partition, segment, position))

    async def look_ahead(self, partition: Partition, segment: Segment, position: int) -> None:
        """Check a part of a segment, which is among `looking`, then wake the fetches that wait for it."""
        try:
            await self.check(partition, segment, position)
        finally:
            del self.looking[segment]
        partition.notify()
        partition.notify_end()

    async def check(self, partition: Partition, segment: Segment, position: int) -> None:
        log = partition.log
        cuts, end_offset = log.cuts, end_of(log, segment)
        try:
            found = await in_thread(
                lambda: checking.check(log.disk.aside(), segment, position, end_offset=end_offset)
            )
        except StorageError as error:
            if self.holds(partition, segment):
                self.replicas.fail(partition, error)
            return
        if not self.holds(partition, segment) or log.cuts != cuts:
            return
        checking.note(segment, found)
        if found.fault != checking.NO_FAULT:
            fault = CorruptBatch(segment.log.path, "the checksum does not match", found.fault)
            self.report(partition, segment, fault)

    def holds(self, partition: Partition, segment: Segment) -> bool:
        return (
            not partition.is_offline
            and self.replicas.holds(partition)
            and segment in partition.log.segments
        )

    async def scrub(self, bytes_per_second: int) -> None:
        """Everything once after a start, then again every week: disks forget in silence."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while bytes_per_second > 0:
            for partition in list(self.replicas.partitions.values()):
                for segment in list(partition.log.segments):
                    await self.scrub_segment(partition, segment, bytes_per_second)
            await asyncio.sleep(SCRUB_REST_SECONDS)
            if loop.time() - began > WEEK_SECONDS:
                began = loop.time()
                for partition in self.replicas.partitions.values():
                    forget_what_was_checked(partition.log)

    async def scrub_segment(self, partition: Partition, segment: Segment, rate: int) -> None:
        while (start := checking.next_to_check(segment)) is not None:
            if segment in self.looking or not self.holds(partition, segment):
                return
            self.looking[segment] = None
            await self.look_ahead(partition, segment, start)
            await asyncio.sleep(checking.AHEAD_BYTES / rate)

    # ---- repairing

    def found(self, partition: Partition, error: CorruptBatch) -> None:
        """Somebody met a damaged batch."""
        for segment in partition.log.segments:
            if segment.log.path == error.path:
                self.report(partition, segment, error)

    def report(self, partition: Partition, segment: Segment, error: CorruptBatch) -> None:
        if segment in self.damaged:
            return
        self.damaged[segment] = None
        others = [broker for broker in partition.replicas if broker != partition.broker_id]
        if self.network is None or not others:
            logger.error(
                "damaged batch, and there is no other replica: it is not served any more, what is around it is; to "
                "go on behind it, move consumers there or delete records up to there partition=%s error=%s",
                partition,
                error,
            )
            return
        logger.error(
            "damaged batch, copying the segment from %s partition=%s error=%s",
            others,
            partition,
            error,
        )
        self.tasks.start("repair", self.repair(self.network, partition, segment))

    async def repair(self, network: Network, partition: Partition, segment: Segment) -> None:
        """Again and again, until it is done or the segment is gone."""
        backoff = Backoff(*RETRY_SECONDS, random=Random(partition.broker_id))
        while self.holds(partition, segment):
            if segment is partition.log.segments.active:
                partition.log.roll(self.replicas.clock.now_ms())
            for broker in self.sources(partition):
                try:
                    if await self.copy(network, partition, segment, broker):
                        del self.damaged[segment]
                        return
                except (ConnectionError, TimeoutError, RemoteWireError) as error:
                    if backoff.failures == 0:
                        logger.warning(
                            "no copy from broker=%d partition=%s reason=%s",
                            *(broker, partition, reason(error)),
                        )
                except StorageError as error:
                    self.replicas.fail(partition, error)
            await backoff.wait()
        self.damaged.pop(segment, None)

    def sources(self, partition: Partition) -> Iterator[BrokerId]:
        """The leader first: it has everything that counts."""
        others = [broker for broker in partition.replicas if broker != partition.broker_id]
        for broker in sorted(others, key=lambda broker: broker != partition.leader):
            if self.replicas.metadata.is_alive(broker):
                yield broker

    async def copy(
        self, network: Network, partition: Partition, segment: Segment, broker: BrokerId
    ) -> bool:
        log = partition.log
        is_due = end_of(log, segment) <= log.high_watermark and not log.is_rewritten
        if not self.holds(partition, segment) or not is_due:
            return False
        endpoint = self.replicas.metadata.endpoint_of(
            broker, self.replicas.config.inter_broker_listener
        )
        if endpoint is None:
            raise ConnectionError("it has no known address")
        repair = Repair(log, segment, now_ms=self.replicas.clock.now_ms())
        log.is_rewritten = True
        connection: BrokerConnection | None = None
        try:
            connection = await BrokerConnection.open(
                network,
                endpoint.host,
                endpoint.port,
                client_id=f"broker-{partition.broker_id}-repair",
                timeout_s=TIMEOUT_SECONDS,
            )
            await fetch_all(connection, partition, repair)
            replacement = await in_thread(repair.finish)
            if not repair.is_still_wanted or not self.holds(partition, segment):
                return False
            if not put_in_place(log, replacement, self.replicas.clock.now_ms()):
                return False
            log.cuts += 1  # who gave up on the log because of this segment may try again
        finally:
            log.is_rewritten = False
            repair.throw_away()
            if connection is not None:
                connection.close("done")
        logger.info(
            "repaired partition=%s offsets=%d..%d from=%d",
            partition,
            segment.base_offset,
            repair.end_offset,
            broker,
        )
        partition.notify()
        partition.notify_end()
        return True


async def fetch_all(connection: BrokerConnection, partition: Partition, repair: Repair) -> None:
    """As a consumer would, who may read of any replica what is below its high watermark."""
    empty = 0
    while not repair.is_complete:
        wanted = FetchPartition(
            partition=partition.index,
            fetch_offset=repair.next_offset,
            partition_max_bytes=FETCH_BYTES,
        )
        answer = await connection.exchange(
            FetchRequest(
                max_wait_ms=FETCH_WAIT_MS,
                min_bytes=1,
                topics=(FetchTopic(topic_id=partition.topic_id, partitions=(wanted,)),),
            ),
            FetchResponse,
            timeout_s=TIMEOUT_SECONDS,
        )
        found = [data for topic in answer.responses for data in topic.partitions]
        code = answer.error_code or (found[0].error_code if found else 0)
        if code:
            raise ConnectionError(f"it says {ErrorCode(code).name}")
        if not found or not found[0].records:
            empty += 1  # it may be looking through its own copy first
            if empty > EMPTY_ANSWERS_MAX:
                raise ConnectionError(f"it has nothing at offset {repair.next_offset}")
            continue
        await in_thread(repair.take, memoryview(found[0].records))


def end_of(log: Log, segment: Segment) -> int:
    """Offset after the last record of `segment`; the log end offset if it is no longer in the log."""
    if segment not in log.segments:
        return log.log_end_offset
    return log.next_segment_offset(segment.base_offset)


def forget_what_was_checked(log: Log) -> None:
    for segment in log.segments[:-1]:
        segment.unchecked_to = segment.size
        segment.checked_from = segment.checked_to = 0
