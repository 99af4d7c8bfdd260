"""Where groups write down what they are to remember: the partition of `__consumer_offsets` that is theirs.

A group belongs to the partition that the hash of its name says, the same in every broker and every client, and to the
broker that leads this partition: its coordinator. What was appended counts when all replicas in sync have it
(`offsets.commit.required.acks`), and then it outlives this broker: whoever leads next reads it (loading.py).

    led        the partition is led here, and all that stands in it is known to the coordinator
    loading    it is led here, and being read
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.groups.records import KeyValue
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.wire.compression import Compression
from barnabas.wire.records import Record, build_batch, read_header
from barnabas.world.ports import Clock

INT_MIN = -(2**31)
HASHES = 10_000
ALL_IN_SYNC = -1
LEADER_ALONE = 1

OF_COMMITS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""What a client of the coordinator is told where a producer would have been told this."""
OF_GROUPS = OF_COMMITS | {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
}
"""The same for who waits for the end of a rebalance."""


class Appended(NamedTuple):
    """`waits` is empty if nothing is left to wait for: a leader without followers has all it needs at once."""

    first_offset: int
    waits: tuple[Awaitable[None], ...]


class GroupStore:
    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        clock: Clock,
    ) -> None:
        self.config = config
        self.replicas = replicas
        self.metadata = metadata
        self.clock = clock
        self.led: dict[int, None] = {}
        self.loading: dict[int, None] = {}
        self.acks = (
            config.offsets_commit_required_acks
            if config.offsets_commit_required_acks in (0, LEADER_ALONE)
            else ALL_IN_SYNC
        )
        self.compression = Compression(config.offsets_topic_compression_codec)

    # ---- whose groups these are

    def partition_for(self, group_id: str) -> int:
        return partition_of(group_id, self.partition_count)

    @property
    def partition_count(self) -> int:
        """Of the topic as it is; before there is one, of the one that would be created."""
        topic = self.metadata.topics.get(CONSUMER_OFFSETS)
        return self.config.offsets_topic_num_partitions if topic is None else len(topic.partitions)

    def is_led(self, partition: int) -> bool:
        """And nobody can have taken it over. One that is no longer registered, and to whom no controller has spoken
        since, would tell offsets of yesterday."""
        return partition in self.led and (
            self.replicas.is_recognised
            or not self.replicas.find(CONSUMER_OFFSETS, partition).followers
        )

    def is_loading(self, partition: int) -> bool:
        return partition in self.loading

    # ---- appending

    def append(self, group_id: str, records: Sequence[KeyValue]) -> Coroutine[None, None, int]:
        """What a group remembers of itself: in the log when this returns, so that what is decided later stands after
        it; copied when what it returns has been awaited, which gives the offset of the first record."""
        try:
            return self.copied(self.begin_append(group_id, records))
        except ApiError as error:
            raise translated(error, OF_GROUPS) from error

    async def copied(self, appended: Appended) -> int:
        try:
            await self.wait_for(appended)
        except ApiError as error:
            raise translated(error, OF_GROUPS) from error
        return appended.first_offset

    async def wait_for(self, appended: Appended) -> None:
        """Until the replicas have it. What was appended stays in the log, also if that takes too long."""
        timeout_s = self.config.offsets_commit_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                for wait in appended.waits:
                    await wait
        except TimeoutError:
            why = f"not copied within offsets.commit.timeout.ms, {timeout_s:g} s"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, why) from None

    def begin_append(
        self, group_id: str, records: Sequence[KeyValue], *, acks: int | None = None
    ) -> Appended:
        """Append at once, in the order of the calls; ApiError as a producer would get it."""
        acks = self.acks if acks is None else acks
        partition = self.replicas.find(CONSUMER_OFFSETS, self.partition_for(group_id))
        now_ms = self.clock.now_ms()
        batch = memoryview(bytearray(self.batch_of(records, now_ms)))
        try:
            info = partition.append(batch, read_header(batch), acks=acks, now_ms=now_ms)
        except StorageError as error:
            self.replicas.fail(partition, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return Appended(info.first_offset, self.waits_of(partition, info.last_offset, acks))

    def batch_of(self, records: Sequence[KeyValue], now_ms: int) -> bytes:
        return build_batch(
            [Record(at, now_ms, key, value) for at, (key, value) in enumerate(records)],
            compression=self.compression,
        )

    def waits_of(
        self, partition: Partition, last_offset: int, acks: int
    ) -> tuple[Awaitable[None], ...]:
        waits: tuple[Awaitable[None], ...] = ()
        if partition.is_held:
            waits = (asyncio.shield(self.replicas.flush(partition)),)
        if acks == ALL_IN_SYNC and partition.log.watermark <= last_offset:
            waits = (*waits, partition.promise(last_offset + 1))
        return waits


def translated(error: ApiError, codes: Mapping[ErrorCode, ErrorCode]) -> ApiError:
    return ApiError(codes.get(error.code, error.code), error.message)


def partition_of(group_id: str, partitions: int) -> int:
    found = java_hash(group_id)
    return 0 if found == INT_MIN else abs(found) % partitions


@lru_cache(HASHES)
def java_hash(text: str) -> int:
    """As Java's String.hashCode, over UTF-16 units: clients of every language ask the same broker by it."""
    found = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] << 8) + units[at + 1]) & 0xFFFFFFFF
    return found - 2**32 if found >= 2**31 else found
