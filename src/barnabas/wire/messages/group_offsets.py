"""How far a group has read: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

from msgspec import Struct

from barnabas.wire.codec import Bool, Essential, Int16, Int32, Int64, NullableSince, Since, Until

NO_OFFSET = -1
"""What OffsetFetch answers for a partition without a committed offset."""


class OffsetCommitRequestPartition(NamedTuple):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, Since(6)] = -1
    commit_timestamp: Annotated[Int64, Since(1), Until(1)] = -1
    committed_metadata: str | None = ""


class OffsetCommitRequestTopic(NamedTuple):
    name: str
    partitions: tuple[OffsetCommitRequestPartition, ...]


class OffsetCommitRequest(Struct, frozen=True, kw_only=True):
    """A generation below 0 and no member id: someone outside of the group commits, which an empty group allows."""

    API_KEY: ClassVar[int] = 8
    VERSIONS: ClassVar[range] = range(10)
    FLEXIBLE_SINCE: ClassVar[int] = 8

    group_id: str
    generation_id_or_member_epoch: Annotated[Int32, Since(1)] = -1
    member_id: Annotated[str, Since(1)] = ""
    group_instance_id: Annotated[str | None, Since(7), Essential] = None
    retention_time_ms: Annotated[Int64, Since(2), Until(4)] = -1
    topics: tuple[OffsetCommitRequestTopic, ...]


class OffsetCommitResponsePartition(NamedTuple):
    partition_index: Int32
    error_code: Int16 = 0


class OffsetCommitResponseTopic(NamedTuple):
    name: str
    partitions: tuple[OffsetCommitResponsePartition, ...]


class OffsetCommitResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 8
    VERSIONS: ClassVar[range] = range(10)
    FLEXIBLE_SINCE: ClassVar[int] = 8

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: tuple[OffsetCommitResponseTopic, ...] = ()


class OffsetFetchRequestTopic(NamedTuple):
    name: str
    partition_indexes: tuple[Int32, ...]


class OffsetFetchRequestGroup(NamedTuple):
    """`topics=None` asks for every partition the group has an offset of. Member and epoch belong to the newer group
    protocol, which is not spoken here."""

    group_id: str
    member_id: Annotated[str | None, Since(9)] = None
    member_epoch: Annotated[Int32, Since(9)] = -1
    topics: tuple[OffsetFetchRequestTopic, ...] | None = None


class OffsetFetchRequest(Struct, frozen=True, kw_only=True):
    """One group up to version 7, many after it."""

    API_KEY: ClassVar[int] = 9
    VERSIONS: ClassVar[range] = range(10)
    FLEXIBLE_SINCE: ClassVar[int] = 6

    group_id: Annotated[str, Until(7), Essential] = ""
    topics: Annotated[
        tuple[OffsetFetchRequestTopic, ...] | None, Until(7), NullableSince(2), Essential
    ] = ()
    groups: Annotated[tuple[OffsetFetchRequestGroup, ...], Since(8), Essential] = ()
    require_stable: Annotated[Bool, Since(7), Essential] = False


class OffsetFetchResponsePartition(NamedTuple):
    partition_index: Int32
    committed_offset: Int64 = NO_OFFSET
    committed_leader_epoch: Annotated[Int32, Since(5)] = -1
    metadata: str | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(NamedTuple):
    name: str
    partitions: tuple[OffsetFetchResponsePartition, ...]


class OffsetFetchResponseGroup(NamedTuple):
    group_id: str
    topics: tuple[OffsetFetchResponseTopic, ...] = ()
    error_code: Int16 = 0


class OffsetFetchResponse(Struct, frozen=True, kw_only=True):
    """Versions 0 and 1 have no error for the group as a whole: it stands with every partition."""

    API_KEY: ClassVar[int] = 9
    VERSIONS: ClassVar[range] = range(10)
    FLEXIBLE_SINCE: ClassVar[int] = 6

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: Annotated[tuple[OffsetFetchResponseTopic, ...], Until(7), Essential] = ()
    error_code: Annotated[Int16, Since(2), Until(7)] = 0
    groups: Annotated[tuple[OffsetFetchResponseGroup, ...], Since(8), Essential] = ()


class OffsetDeleteRequestPartition(NamedTuple):
    partition_index: Int32


class OffsetDeleteRequestTopic(NamedTuple):
    name: str
    partitions: tuple[OffsetDeleteRequestPartition, ...]


class OffsetDeleteRequest(Struct, frozen=True, kw_only=True):
    """Its one version is not flexible."""

    API_KEY: ClassVar[int] = 47
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int] = 1

    group_id: str
    topics: tuple[OffsetDeleteRequestTopic, ...]


class OffsetDeleteResponsePartition(NamedTuple):
    partition_index: Int32
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(NamedTuple):
    name: str
    partitions: tuple[OffsetDeleteResponsePartition, ...]


class OffsetDeleteResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 47
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int] = 1

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()
