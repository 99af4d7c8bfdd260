"""ListOffsets: the log start offset, the high watermark, or the first offset at or after a timestamp."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int8, Int16, Int32, Int64, Since, Until

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5


class ListOffsetsPartition(NamedTuple):
    partition_index: Int32
    current_leader_epoch: Annotated[Int32, Since(4)] = -1
    timestamp: Int64 = 0
    max_num_offsets: Annotated[Int32, Until(0), Essential] = 1


class ListOffsetsTopic(NamedTuple):
    name: str
    partitions: tuple[ListOffsetsPartition, ...]


class ListOffsetsRequest(ApiMessage, frozen=True, kw_only=True):
    replica_id: Int32 = -1
    isolation_level: Annotated[Int8, Since(2), Essential] = 0
    topics: tuple[ListOffsetsTopic, ...]


class ListOffsetsPartitionResponse(NamedTuple):
    """Version 0 has a list of offsets, later versions have one offset."""

    partition_index: Int32
    error_code: Int16 = 0
    old_style_offsets: Annotated[tuple[Int64, ...], Until(0), Essential] = ()
    timestamp: Annotated[Int64, Since(1), Essential] = -1
    offset: Annotated[Int64, Since(1), Essential] = -1
    leader_epoch: Annotated[Int32, Since(4)] = -1


class ListOffsetsTopicResponse(NamedTuple):
    name: str
    partitions: tuple[ListOffsetsPartitionResponse, ...]


class ListOffsetsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: tuple[ListOffsetsTopicResponse, ...] = ()
