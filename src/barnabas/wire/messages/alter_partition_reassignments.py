"""AlterPartitionReassignments: moves partitions to other brokers, or cancels such a move."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16, Int32


class ReassignablePartition(NamedTuple):
    """`replicas=None` cancels a reassignment in progress."""

    partition_index: Int32
    replicas: tuple[Int32, ...] | None


class ReassignableTopic(NamedTuple):
    name: str
    partitions: tuple[ReassignablePartition, ...]


class AlterPartitionReassignmentsRequest(ApiMessage, frozen=True, kw_only=True):
    timeout_ms: Int32 = 60_000
    topics: tuple[ReassignableTopic, ...]


class ReassignablePartitionResponse(NamedTuple):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: str | None = None


class ReassignableTopicResponse(NamedTuple):
    name: str
    partitions: tuple[ReassignablePartitionResponse, ...]


class AlterPartitionReassignmentsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    responses: tuple[ReassignableTopicResponse, ...] = ()
