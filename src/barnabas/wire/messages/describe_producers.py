"""DescribeProducers: the idempotent producers of partitions, as one replica knows them."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16, Int32, Int64


class DescribeProducersTopic(NamedTuple):
    name: str
    partition_indexes: tuple[Int32, ...]


class DescribeProducersRequest(ApiMessage, frozen=True, kw_only=True):
    topics: tuple[DescribeProducersTopic, ...]


class DescribedProducer(NamedTuple):
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = -1
    current_txn_start_offset: Int64 = -1


class DescribeProducersPartitionResult(NamedTuple):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: str | None = None
    active_producers: tuple[DescribedProducer, ...] = ()


class DescribeProducersTopicResult(NamedTuple):
    name: str
    partitions: tuple[DescribeProducersPartitionResult, ...]


class DescribeProducersResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[DescribeProducersTopicResult, ...] = ()
