"""ListPartitionReassignments: the reassignments of partitions that are in progress."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16, Int32


class ListPartitionReassignmentsTopic(NamedTuple):
    name: str
    partition_indexes: tuple[Int32, ...]


class ListPartitionReassignmentsRequest(ApiMessage, frozen=True, kw_only=True):
    """`topics=None` requests all reassignments in progress."""

    timeout_ms: Int32 = 60_000
    topics: tuple[ListPartitionReassignmentsTopic, ...] | None = None


class OngoingPartitionReassignment(NamedTuple):
    """`replicas` are all current replicas, including those being added and removed."""

    partition_index: Int32
    replicas: tuple[Int32, ...]
    adding_replicas: tuple[Int32, ...]
    removing_replicas: tuple[Int32, ...]


class OngoingTopicReassignment(NamedTuple):
    name: str
    partitions: tuple[OngoingPartitionReassignment, ...]


class ListPartitionReassignmentsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    topics: tuple[OngoingTopicReassignment, ...] = ()
