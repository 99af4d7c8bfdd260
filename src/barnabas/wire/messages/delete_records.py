"""DeleteRecords: moves the start offset of a log up."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from msgspec import Struct

from barnabas.wire.apis import ApiKey
from barnabas.wire.codec import Int16, Int32, Int64


class DeleteRecordsPartition(NamedTuple):
    partition_index: Int32
    offset: Int64


class DeleteRecordsTopic(NamedTuple):
    name: str
    partitions: tuple[DeleteRecordsPartition, ...]


class DeleteRecordsRequest(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = ApiKey.DELETE_RECORDS
    VERSIONS: ClassVar[range] = range(3)
    FLEXIBLE_SINCE: ClassVar[int] = 2

    topics: tuple[DeleteRecordsTopic, ...]
    timeout_ms: Int32


class DeleteRecordsPartitionResult(NamedTuple):
    partition_index: Int32
    low_watermark: Int64 = -1
    error_code: Int16 = 0


class DeleteRecordsTopicResult(NamedTuple):
    name: str
    partitions: tuple[DeleteRecordsPartitionResult, ...]


class DeleteRecordsResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = ApiKey.DELETE_RECORDS
    VERSIONS: ClassVar[range] = range(3)
    FLEXIBLE_SINCE: ClassVar[int] = 2

    throttle_time_ms: Int32 = 0
    topics: tuple[DeleteRecordsTopicResult, ...] = ()
