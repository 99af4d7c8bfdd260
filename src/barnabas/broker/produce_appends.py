"""The appends of one Produce request, and its response. Compiled; the handler has the parts that wait."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from barnabas.batch.header import BatchHeader
from barnabas.batch.validation import (
    BadRequest,
    drop_partial_batch,
    has_only_partial_batch,
)
from barnabas.broker.connection import CloseConnection, Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.control_plane import is_history_producer
from barnabas.broker.handlers.current_leader import find_endpoints, find_leader
from barnabas.broker.transaction_verification import Verified
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.metadata.cache import INTERNAL_TOPICS
from barnabas.model import NO_TIMESTAMP, TopicPartition
from barnabas.replication.partition import Partition
from barnabas.security.acl.model import Operation
from barnabas.storage.log import AppendInfo
from barnabas.storage.producers import Verification
from barnabas.wire.codec import Records
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.current_leader import NodeEndpoint
from barnabas.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceResponse,
)

# With these errors the response has no log start offset.
WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

PRODUCE: Final = 0
ACKS: Final = (1, -1, 0)
ONE_BATCH_SINCE: Final = 3  # in older versions a partial batch is ignored
CURRENT_LEADER_SINCE: Final = 10
Waits = list[tuple[int, int, asyncio.Future[None]]]
"""Position of the topic, position of the partition in the topic, and the future to wait for."""


class ProduceResult(NamedTuple):
    topics: tuple[TopicProduceResponse, ...]
    node_endpoints: tuple[NodeEndpoint, ...] = ()
    throttle_time_ms: int = 0


class Produce:
    """One Produce request in progress."""

    def __init__(
        self,
        context: BrokerContext,
        request: ProduceRequest,
        header: RequestHeader,
        connection: Connection,
    ) -> None:
        self.context = context
        self.request = request
        self.version = header.api_version
        self.client_id = header.client_id
        self.connection = connection
        self.topics: list[list[PartitionProduceResponse]] = []
        """Responses so far, by topic. Batches are appended for the last topic."""
        self.waits: Waits = []
        self.failed = False
        """Whether a batch was not appended, or not acknowledged in time."""
        self.throttle_ms = 0
        self.verified: Verified | None = None
        """Results of the verification of its transactional batches. None if none is required."""
        self.verification: Verification | None = None
        """Result for the batch that is being appended."""

    def append(self, name: str, index: int, records: Records | None) -> None:
        """Append the batch of one partition, and add its response. Raises LargeBatch before any change."""
        context, acks = self.context, self.request.acks
        partition = context.replicas.partitions.get((name, index))
        try:
            self.require_may_write(name)
            if partition is None:
                raise context.replicas.missing_partition_error(name, index)
            if acks not in ACKS:
                raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks} is not -1, 0 or 1")
            if name in INTERNAL_TOPICS and not is_history_producer(name, self.client_id):
                why = f"only brokers write to {name}"
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
            if self.verified is not None:
                self.verification = self.verified.require(TopicPartition(name, index), self.version)
            info = self.append_records(partition, records)
        except (ApiError, StorageError) as error:
            self.add_error(index, error, partition)
        else:
            self.add_success(index, info, partition)

    def require_may_write(self, topic: str) -> None:
        """Raise ApiError unless the principal may write to the topic. A broker may publish its state changes."""
        access = self.context.security.access
        if access.decider is None:
            return
        if is_history_producer(topic, self.client_id):
            is_allowed = access.is_broker(self.connection)
        else:
            is_allowed = access.allows_topic(self.connection, Operation.WRITE, topic)
        if not is_allowed:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def append_records(self, partition: Partition, records: Records | None) -> AppendInfo:
        batch = drop_partial_batch(memoryview(records or b""))
        if self.version < ONE_BATCH_SINCE and has_only_partial_batch(batch):
            return AppendInfo(-1, -1, NO_TIMESTAMP, partition.log.log_start_offset)
        now_ms = self.context.clock.now_ms()
        batch, header = partition.log.validator.validate(
            batch, now_ms, produce_version=self.version, if_small=True
        )
        return self.append_valid(partition, batch, header, now_ms)

    def append_valid(
        self, partition: Partition, batch: memoryview, header: BatchHeader, now_ms: int
    ) -> AppendInfo:
        if header.is_transactional and not self.may_use_transactional_id():
            raise BadRequest(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "a transactional batch needs a transactional id in its request, and write permission for it",
            )
        return partition.append(
            batch,
            header,
            acks=self.request.acks,
            now_ms=now_ms,
            verification=self.verification,
        )

    def may_use_transactional_id(self) -> bool:
        transactional_id = self.request.transactional_id
        return (
            transactional_id is not None
            and self.context.security.access.allows_transactional_id(
                self.connection, Operation.WRITE, transactional_id
            )
        )

    def add_success(self, index: int, info: AppendInfo, partition: Partition) -> None:
        """Add the response of an appended batch, and what it waits for: an fsync, other replicas, or nothing."""
        topic, position = len(self.topics) - 1, len(self.topics[-1])
        acks = self.request.acks
        if partition.waits_for_flush:
            flushed = self.context.replicas.flush(partition)
            if acks != 0:
                self.waits.append((topic, position, asyncio.shield(flushed)))
        if acks == -1 and partition.log.high_watermark <= info.last_offset:
            self.waits.append((topic, position, partition.promise(info.last_offset + 1)))
        self.topics[-1].append(
            PartitionProduceResponse(
                index, 0, info.first_offset, info.log_append_time, info.log_start_offset
            )
        )

    def add_error(
        self, index: int, error: ApiError | StorageError, partition: Partition | None
    ) -> None:
        response = build_error_response(self.context, index, error, partition)
        self.count_failed(len(self.topics) - 1, response.error_code)
        self.topics[-1].append(response)

    def fail_response(self, topic: int, position: int, code: ErrorCode, message: str = "") -> None:
        """Change the response of a batch that was appended but not acknowledged by enough replicas."""
        self.count_failed(topic, code)
        response = self.topics[topic][position]
        self.topics[topic][position] = response._replace(
            error_code=code, error_message=message or None
        )

    def count_failed(self, topic: int, code: int) -> None:
        self.failed = True
        self.context.metrics.count_error(PRODUCE, code)
        self.context.replicas.traffic.find(self.request.topic_data[topic].name).failed_produces += 1

    def respond(self) -> ProduceResult | None:
        """Return the result, or None with acks=0, which gets no response. A failure then closes the connection."""
        if self.request.acks == 0:
            if self.failed:
                failed = summarize_errors(self.request, self.topics)
                raise CloseConnection(f"produce with acks=0 failed: {failed}")
            return None
        endpoints = (
            self.add_leaders() if self.failed and self.version >= CURRENT_LEADER_SINCE else ()
        )
        topics = [
            TopicProduceResponse(topic.name, tuple(responses))
            for topic, responses in zip(self.request.topic_data, self.topics, strict=True)
        ]
        return ProduceResult(tuple(topics), endpoints, self.throttle_ms)

    def charge_quota(self) -> None:
        """Count the bytes and the time of the request against the quotas of its client."""
        quotas = self.context.client_quotas
        if quotas.is_active:
            self.throttle_ms = quotas.charge_produce(
                self.connection, self.client_id, acks=self.request.acks
            )

    def add_leaders(self) -> tuple[NodeEndpoint, ...]:
        """Add the current leader to each response that needs it, and return the addresses of these leaders."""
        leaders = []
        for topic, responses in zip(self.request.topic_data, self.topics, strict=True):
            for position, response in enumerate(responses):
                if response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    leader = find_leader(self.context, topic.name, response.index)
                    leaders.append(leader)
                    responses[position] = response._replace(current_leader=leader)
        return (
            find_endpoints(self.context, leaders, self.connection.listener_name) if leaders else ()
        )


def build_error_response(
    context: BrokerContext, index: int, error: ApiError | StorageError, partition: Partition | None
) -> PartitionProduceResponse:
    if isinstance(error, StorageError):
        if partition is not None:
            context.replicas.fail(partition, error)
        error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    log_start = -1
    has_log_start = error.code not in WITHOUT_LOG_START and not isinstance(error, BadRequest)
    if partition is not None and has_log_start:
        log_start = partition.log.log_start_offset
    return PartitionProduceResponse(
        index,
        error.code,
        log_start_offset=log_start,
        record_errors=tuple(
            BatchIndexAndErrorMessage(batch_index, error.message)
            for batch_index in error.record_indexes
        ),
        error_message=error.message or None,
    )


def summarize_errors(request: ProduceRequest, topics: list[list[PartitionProduceResponse]]) -> str:
    return ", ".join(
        f"{topic.name}-{response.index}: {ErrorCode(response.error_code).name}"
        for topic, responses in zip(request.topic_data, topics, strict=True)
        for response in responses
        if response.error_code
    )
