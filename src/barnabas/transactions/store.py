"""Appends transaction state to `__transaction_state`.

The hash of a transactional id determines its partition, and all brokers compute the same one. The leader of this
partition is the coordinator of the transactional id. An append is complete when all in-sync replicas have it, so that
the next leader can load it (loading.py).

An append to each follower costs a round trip. So a record that a further one follows at once is deferred, and both are
written in one batch.

    led        partitions that this broker leads and has loaded, with the leader epoch: the coordinator epoch of markers
    loading    partitions that this broker leads and is loading
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from barnabas.batch.records import Record, build_batch
from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.groups.store import ACKS_ALL, partition_of, translate_error
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.topic_names import TRANSACTION_STATE
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.log import AppendInfo
from barnabas.world.ports import Clock

TRANSACTION_ERROR_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Error code of a failed append → error code of the request that caused it."""

DEFER_SECONDS = 0.005
DEFER_RETRY_SECONDS = 1.0


class TransactionStore:
    def __init__(
        self, config: BrokerConfig, replicas: ReplicaManager, metadata: MetadataCache, clock: Clock
    ) -> None:
        self.config = config
        self.replicas = replicas
        self.metadata = metadata
        self.clock = clock
        self.led: dict[int, int] = {}
        self.loading: dict[int, None] = {}
        self.deferred: dict[int, list[tuple[bytes, bytes | None]]] = {}
        """Records that are written at the start of the next batch, by partition."""

    # ---- partitions

    def partition_for(self, transactional_id: str) -> int:
        return partition_of(transactional_id, self.partition_count)

    @property
    def partition_count(self) -> int:
        """Number of partitions of `__transaction_state`, or the configured number while the topic does not exist."""
        topic = self.metadata.topics.get(TRANSACTION_STATE)
        if topic is None:
            return self.config.transaction_state_log_num_partitions
        return len(topic.partitions)

    def is_led(self, partition: int) -> bool:
        """Return whether this broker is the coordinator of the transactional ids in `partition`.

        False from the end of a registry session until the next LeaderAndIsr request, as for groups.
        """
        return partition in self.led and (
            self.replicas.is_known_to_controller
            or not self.replicas.find(TRANSACTION_STATE, partition).followers
        )

    # ---- appending

    async def append(
        self, partition: int, records: Sequence[tuple[bytes, bytes | None]], timeout_s: float
    ) -> None:
        """Append the records as one batch, and wait until all in-sync replicas have it.

        Raises ApiError with a code for the client. After a timeout the records stay in the log.
        """
        try:
            waits = self.replication_waits(*self.append_batch(partition, records))
            if waits:
                async with asyncio.timeout(timeout_s):
                    for wait in waits:
                        await wait
        except ApiError as error:
            raise translate_error(error, TRANSACTION_ERROR_CODES) from error
        except TimeoutError:
            why = f"{TRANSACTION_STATE}-{partition}: not replicated within {timeout_s:g} s"
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why) from None

    def append_unacknowledged(
        self, partition: int, records: Sequence[tuple[bytes, bytes | None]]
    ) -> ErrorCode:
        """Append the records as one batch, and do not wait for other replicas. Return NONE, or the error code."""
        try:
            self.append_batch(partition, records)
        except ApiError as error:
            return translate_error(error, TRANSACTION_ERROR_CODES).code
        return ErrorCode.NONE

    def append_with_next(self, partition: int, record: tuple[bytes, bytes | None]) -> None:
        """Append a record together with the next ones, or alone soon."""
        self.deferred.setdefault(partition, []).append(record)
        asyncio.get_running_loop().call_later(DEFER_SECONDS, self.append_deferred, partition)

    def append_deferred(self, partition: int) -> None:
        """Append the deferred records that no other append has taken. Retry while too few replicas are in sync."""
        if partition in self.deferred:
            code = self.append_unacknowledged(partition, ())
            if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                loop = asyncio.get_running_loop()
                loop.call_later(DEFER_RETRY_SECONDS, self.append_deferred, partition)

    def drop_deferred(self, partition: int) -> None:
        """Forget the deferred records of a partition that this broker no longer leads."""
        self.deferred.pop(partition, None)

    def append_batch(
        self, index: int, records: Sequence[tuple[bytes, bytes | None]]
    ) -> tuple[Partition, AppendInfo]:
        """Append the records as one batch. Raises ApiError with the code that a produce request would get."""
        partition = self.replicas.find(TRANSACTION_STATE, index)
        records = [*self.deferred.get(index, ()), *records]
        now_ms = self.clock.now_ms()
        built = build_batch(
            [Record(at, now_ms, key, value) for at, (key, value) in enumerate(records)]
        )
        batch = memoryview(bytearray(built))
        try:
            batch, header = partition.log.validator.validate(batch, now_ms)
            info = partition.append(batch, header, acks=ACKS_ALL, now_ms=now_ms)
        except StorageError as error:
            self.replicas.fail(partition, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self.deferred.pop(index, None)
        return partition, info

    def replication_waits(self, partition: Partition, info: AppendInfo) -> list[Awaitable[None]]:
        waits: list[Awaitable[None]] = []
        if partition.waits_for_flush:
            waits.append(asyncio.shield(self.replicas.flush(partition)))
        if partition.log.watermark <= info.last_offset:
            waits.append(partition.promise(info.last_offset + 1))
        return waits
