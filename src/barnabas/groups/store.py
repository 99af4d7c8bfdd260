"""Appends group state to `__consumer_offsets`.

The hash of a group id determines its partition; all brokers and clients compute the same one. The leader of this
partition is the coordinator of the group. An append is complete when all in-sync replicas have it
(`offsets.commit.required.acks`). The next leader then loads it (loading.py).

    led        the partition is led here, and the coordinator has loaded its groups
    loading    the partition is led here, and its groups are being loaded
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import NamedTuple

from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.groups.records import KeyValue
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.wire.compression import Compression
from barnabas.wire.java_hash import java_string_hash
from barnabas.wire.records import Record, build_batch, read_header
from barnabas.world.ports import Clock

INT_MIN = -(2**31)
ACKS_ALL = -1
ACKS_LEADER = 1

COMMIT_ERROR_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""Error codes of a produce request to the error codes of an offset commit."""
GROUP_ERROR_CODES = COMMIT_ERROR_CODES | {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
}
"""Error codes of a produce request to the error codes of a rebalance."""


class AppendResult(NamedTuple):
    """Result of an append. `waits` is empty if it is complete at once, as on a leader without followers."""

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
            if config.offsets_commit_required_acks in (0, ACKS_LEADER)
            else ACKS_ALL
        )
        self.compression = Compression(config.offsets_topic_compression_codec)

    # ---- partitions

    def partition_for(self, group_id: str) -> int:
        return partition_of(group_id, self.partition_count)

    @property
    def partition_count(self) -> int:
        """Number of partitions of `__consumer_offsets`, or the configured number while the topic does not exist."""
        topic = self.metadata.topics.get(CONSUMER_OFFSETS)
        return self.config.offsets_topic_num_partitions if topic is None else len(topic.partitions)

    def is_led(self, partition: int) -> bool:
        """Return whether this broker is the coordinator of the groups in `partition`.

        False after this broker lost its registration, until a controller confirms it. A new leader may exist by then,
        and the offsets here would be stale. Without followers no other broker can be the leader.
        """
        return partition in self.led and (
            self.replicas.is_recognised
            or not self.replicas.find(CONSUMER_OFFSETS, partition).followers
        )

    def is_loading(self, partition: int) -> bool:
        return partition in self.loading

    # ---- appending

    def append(self, group_id: str, records: Sequence[KeyValue]) -> Coroutine[None, None, int]:
        """Append group metadata, and return a coroutine that waits for the replicas and returns the first offset.

        The records are in the log when this returns, so appends are in the order of the calls. Raises ApiError with the
        error code of a rebalance.
        """
        try:
            return self.wait_replicated(self.begin_append(group_id, records))
        except ApiError as error:
            raise translate_error(error, GROUP_ERROR_CODES) from error

    async def wait_replicated(self, appended: AppendResult) -> int:
        try:
            await self.wait_for(appended)
        except ApiError as error:
            raise translate_error(error, GROUP_ERROR_CODES) from error
        return appended.first_offset

    async def wait_for(self, appended: AppendResult) -> None:
        """Wait until the replicas have the records.

        Raises ApiError with REQUEST_TIMED_OUT after offsets.commit.timeout.ms; the records stay in the log.
        """
        timeout_s = self.config.offsets_commit_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                for wait in appended.waits:
                    await wait
        except TimeoutError:
            why = f"not replicated within offsets.commit.timeout.ms, {timeout_s:g} s"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, why) from None

    def begin_append(
        self, group_id: str, records: Sequence[KeyValue], *, acks: int | None = None
    ) -> AppendResult:
        """Append without waiting for replicas. Raises ApiError with the error code of a produce request."""
        acks = self.acks if acks is None else acks
        partition = self.replicas.find(CONSUMER_OFFSETS, self.partition_for(group_id))
        now_ms = self.clock.now_ms()
        batch = memoryview(bytearray(self.batch_of(records, now_ms)))
        try:
            info = partition.append(batch, read_header(batch), acks=acks, now_ms=now_ms)
        except StorageError as error:
            self.replicas.fail(partition, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return AppendResult(
            info.first_offset, self.replication_waits(partition, info.last_offset, acks)
        )

    def batch_of(self, records: Sequence[KeyValue], now_ms: int) -> bytes:
        return build_batch(
            [Record(at, now_ms, key, value) for at, (key, value) in enumerate(records)],
            compression=self.compression,
        )

    def replication_waits(
        self, partition: Partition, last_offset: int, acks: int
    ) -> tuple[Awaitable[None], ...]:
        waits: tuple[Awaitable[None], ...] = ()
        if partition.is_held:
            waits = (asyncio.shield(self.replicas.flush(partition)),)
        if acks == ACKS_ALL and partition.log.watermark <= last_offset:
            waits = (*waits, partition.promise(last_offset + 1))
        return waits


def translate_error(error: ApiError, codes: Mapping[ErrorCode, ErrorCode]) -> ApiError:
    """Return the error with its code replaced according to `codes`."""
    return ApiError(codes.get(error.code, error.code), error.message)


def partition_of(group_id: str, partitions: int) -> int:
    """Return the partition of a group, out of `partitions`. Equal to Kafka's GroupMetadataManager.partitionFor."""
    value = java_string_hash(group_id)
    return 0 if value == INT_MIN else abs(value) % partitions
