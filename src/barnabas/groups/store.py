"""Appends group state to `__consumer_offsets`.

The hash of a group id determines its partition, and all brokers compute the same one. The leader of this partition is
the coordinator of the group. By default, an append is complete when all in-sync replicas have it
(`offsets.commit.required.acks`), so that the next leader can load it (loading.py).

    led        partitions that this broker leads, and whose groups the coordinator has loaded, with the leader epoch
    loading    partitions that this broker leads, and whose groups are being loaded
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import NamedTuple

from barnabas.batch.compression import Compression
from barnabas.batch.header import BatchHeader
from barnabas.batch.records import Record, build_batch
from barnabas.batch.validation import too_large_error
from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.groups.records import KeyValue
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.model import TopicPartition
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.producers import Verification
from barnabas.wire.java_hash import java_string_hash
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
"""Error code of a failed append → error code of the offset commit."""
GROUP_ERROR_CODES = COMMIT_ERROR_CODES | {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
}
"""Error code of a failed append → error code of JoinGroup, SyncGroup or DeleteGroups."""


class AppendResult(NamedTuple):
    """Result of an append. `waits` is empty if the append is already complete, as on a leader without followers."""

    first_offset: int
    waits: list[Awaitable[None]]


class GroupStore:
    def __init__(
        self, config: BrokerConfig, replicas: ReplicaManager, metadata: MetadataCache, clock: Clock
    ) -> None:
        self.config = config
        self.replicas = replicas
        self.metadata = metadata
        self.clock = clock
        self.led: dict[int, int] = {}
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

        False from the end of a registry session until the next LeaderAndIsr request. Another broker may lead by then,
        and the offsets in this broker would be stale. Without followers no other broker can be the leader.
        """
        return partition in self.led and (
            self.replicas.is_known_to_controller
            or not self.replicas.find(CONSUMER_OFFSETS, partition).followers
        )

    def coordinator_epoch(self, group_id: str) -> int:
        """Return the leader epoch of the group's partition, or -1 if this broker does not have it any more."""
        partition = self.replicas.partitions.get(
            TopicPartition(CONSUMER_OFFSETS, self.partition_for(group_id))
        )
        return -1 if partition is None else partition.leader_epoch

    # ---- appending

    def begin_append(
        self, group_id: str, records: Sequence[KeyValue], *, acks: int | None = None
    ) -> AppendResult:
        """Append without waiting for replicas. Raises ApiError with the error code that a produce request would get."""
        acks = self.acks if acks is None else acks
        partition = self.replicas.find(CONSUMER_OFFSETS, self.partition_for(group_id))
        now_ms = self.clock.now_ms()
        built = build_batch(
            [Record(at, now_ms, key, value) for at, (key, value) in enumerate(records)],
            compression=self.compression,
        )
        batch = memoryview(bytearray(built))
        batch, header = partition.log.validator.validate(batch, now_ms)
        return self.append_batch(partition, batch, header, acks, now_ms)

    def begin_append_in_transaction(
        self,
        group_id: str,
        records: Sequence[KeyValue],
        *,
        producer_id: int,
        producer_epoch: int,
        verification: Verification | None,
    ) -> AppendResult:
        """Append as part of a transaction, as `begin_append` does. As in Kafka, each batch has sequence number 0."""
        now_ms = self.clock.now_ms()
        built = build_batch(
            [Record(at, now_ms, key, value) for at, (key, value) in enumerate(records)],
            compression=self.compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        batch = memoryview(bytearray(built))
        partition = self.replicas.find(CONSUMER_OFFSETS, self.partition_for(group_id))
        if len(batch) > partition.log.validator.max_batch_bytes:
            raise too_large_error(len(batch), partition.log.config)
        return self.append_batch(
            partition, batch, BatchHeader(batch), self.acks, now_ms, verification
        )

    def append_batch(
        self,
        partition: Partition,
        batch: memoryview,
        header: BatchHeader,
        acks: int,
        now_ms: int,
        verification: Verification | None = None,
    ) -> AppendResult:
        try:
            info = partition.append(
                batch,
                header,
                acks=acks,
                now_ms=now_ms,
                verification=verification,
                checks_sequence=False,
            )
        except StorageError as error:
            self.replicas.fail(partition, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        waits: list[Awaitable[None]] = []
        if partition.waits_for_flush:
            waits.append(asyncio.shield(self.replicas.flush(partition)))
        if acks == ACKS_ALL and partition.log.watermark <= info.last_offset:
            waits.append(partition.promise(info.last_offset + 1))
        return AppendResult(info.first_offset, waits)

    def begin_wait(self, group_id: str, end_offset: int) -> AppendResult:
        """Return what is left to wait for after an earlier append up to `end_offset`. Raises ApiError."""
        partition = self.replicas.find(CONSUMER_OFFSETS, self.partition_for(group_id))
        waits: list[Awaitable[None]] = []
        if self.acks == ACKS_ALL and partition.log.watermark < end_offset:
            waits.append(partition.promise(end_offset))
        return AppendResult(end_offset, waits)

    async def wait_for(self, appended: AppendResult) -> None:
        """Wait until the append is complete.

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


def translate_error(error: ApiError, codes: Mapping[ErrorCode, ErrorCode]) -> ApiError:
    """Return the error with its code replaced according to `codes`."""
    return ApiError(codes.get(error.code, error.code), error.message)


def partition_of(group_id: str, partitions: int) -> int:
    """Return the partition of a group, from 0 to `partitions` - 1, as in Kafka's GroupMetadataManager.partitionFor."""
    value = java_string_hash(group_id)
    return 0 if value == INT_MIN else abs(value) % partitions
