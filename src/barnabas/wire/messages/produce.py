"""Produce: record batches to append to the logs of partitions."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int16, Int32, Int64, Records, Since, Tag
from barnabas.wire.messages.current_leader import LEADER_UNKNOWN, LeaderIdAndEpoch, NodeEndpoint


class PartitionProduceData(NamedTuple):
    index: Int32  # type: ignore[assignment]  # hides tuple.index, which is not used
    records: Records | None


class TopicProduceData(NamedTuple):
    name: str
    partition_data: tuple[PartitionProduceData, ...]


class ProduceRequest(ApiMessage, frozen=True, kw_only=True):
    transactional_id: Annotated[str | None, Since(3), Essential] = None
    acks: Int16
    timeout_ms: Int32
    topic_data: tuple[TopicProduceData, ...]


class BatchIndexAndErrorMessage(NamedTuple):
    batch_index: Int32
    batch_index_error_message: str | None = None


class PartitionProduceResponse(NamedTuple):
    index: Int32  # type: ignore[assignment]  # hides tuple.index, which is not used
    error_code: Int16 = 0
    base_offset: Int64 = -1
    log_append_time_ms: Annotated[Int64, Since(2)] = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    record_errors: Annotated[tuple[BatchIndexAndErrorMessage, ...], Since(8)] = ()
    error_message: Annotated[str | None, Since(8)] = None
    current_leader: Annotated[LeaderIdAndEpoch, Since(10), Tag(0)] = LEADER_UNKNOWN


class TopicProduceResponse(NamedTuple):
    name: str
    partition_responses: tuple[PartitionProduceResponse, ...]


class ProduceResponse(ApiMessage, frozen=True, kw_only=True):
    responses: tuple[TopicProduceResponse, ...] = ()
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], Since(10), Tag(0)] = ()
