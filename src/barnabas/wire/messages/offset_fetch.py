"""OffsetFetch: the committed offsets of consumer groups."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Essential, Int16, Int32, Int64, NullableSince, Since, Until

NO_OFFSET = -1
"""The offset of a partition without a committed offset."""


class OffsetFetchRequestTopic(NamedTuple):
    name: str
    partition_indexes: tuple[Int32, ...]


class OffsetFetchRequestGroup(NamedTuple):
    """`topics=None` requests all committed offsets of the group.

    Members of the new consumer protocol (KIP-848) send their id and epoch.
    """

    group_id: str
    member_id: Annotated[str | None, Since(9)] = None
    member_epoch: Annotated[Int32, Since(9)] = -1
    topics: tuple[OffsetFetchRequestTopic, ...] | None = None


class OffsetFetchRequest(ApiMessage, frozen=True, kw_only=True):
    """One group up to version 7, several from version 8 on."""

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


class OffsetFetchResponse(ApiMessage, frozen=True, kw_only=True):
    """Versions 0 and 1 have no error code for the group: each partition has the error."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: Annotated[tuple[OffsetFetchResponseTopic, ...], Until(7), Essential] = ()
    error_code: Annotated[Int16, Since(2), Until(7)] = 0
    groups: Annotated[tuple[OffsetFetchResponseGroup, ...], Since(8), Essential] = ()
