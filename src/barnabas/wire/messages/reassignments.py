"""Moving partitions to other brokers: AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from msgspec import Struct

from barnabas.wire.codec import Int16, Int32


class ReassignablePartition(NamedTuple):
    """`replicas=None` cancels a move that is under way."""

    partition_index: Int32
    replicas: tuple[Int32, ...] | None


class ReassignableTopic(NamedTuple):
    name: str
    partitions: tuple[ReassignablePartition, ...]


class AlterPartitionReassignmentsRequest(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 45
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int] = 0

    timeout_ms: Int32 = 60_000
    topics: tuple[ReassignableTopic, ...]


class ReassignablePartitionResponse(NamedTuple):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: str | None = None


class ReassignableTopicResponse(NamedTuple):
    name: str
    partitions: tuple[ReassignablePartitionResponse, ...]


class AlterPartitionReassignmentsResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 45
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int] = 0

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    responses: tuple[ReassignableTopicResponse, ...] = ()


class ListPartitionReassignmentsTopic(NamedTuple):
    name: str
    partition_indexes: tuple[Int32, ...]


class ListPartitionReassignmentsRequest(Struct, frozen=True, kw_only=True):
    """`topics=None` asks for every move that is under way."""

    API_KEY: ClassVar[int] = 46
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int] = 0

    timeout_ms: Int32 = 60_000
    topics: tuple[ListPartitionReassignmentsTopic, ...] | None = None


class OngoingPartitionReassignment(NamedTuple):
    """`replicas` are all that have the partition now, those that come and those that go among them."""

    partition_index: Int32
    replicas: tuple[Int32, ...]
    adding_replicas: tuple[Int32, ...]
    removing_replicas: tuple[Int32, ...]


class OngoingTopicReassignment(NamedTuple):
    name: str
    partitions: tuple[OngoingPartitionReassignment, ...]


class ListPartitionReassignmentsResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 46
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int] = 0

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    topics: tuple[OngoingTopicReassignment, ...] = ()
