"""DescribeLogDirs: the log directories of a broker and the size of each log in them."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Int16, Int32, Int64, Since


class DescribableLogDirTopic(NamedTuple):
    topic: str
    partitions: tuple[Int32, ...]


class DescribeLogDirsRequest(ApiMessage, frozen=True, kw_only=True):
    """`topics=None` requests all topics."""

    topics: tuple[DescribableLogDirTopic, ...] | None


class DescribeLogDirsPartition(NamedTuple):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(NamedTuple):
    name: str
    partitions: tuple[DescribeLogDirsPartition, ...]


class DescribeLogDirsResult(NamedTuple):
    error_code: Int16
    log_dir: str
    topics: tuple[DescribeLogDirsTopic, ...] = ()
    total_bytes: Annotated[Int64, Since(4)] = -1
    usable_bytes: Annotated[Int64, Since(4)] = -1


class DescribeLogDirsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(3)] = 0
    results: tuple[DescribeLogDirsResult, ...] = ()
