"""The cluster and its disks: DescribeCluster, DescribeLogDirs."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

from msgspec import Struct

from barnabas.wire.codec import Bool, Essential, Int8, Int16, Int32, Int64, Since
from barnabas.wire.messages.metadata import NO_OPERATIONS

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2


class DescribeClusterRequest(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 60
    VERSIONS: ClassVar[range] = range(2)
    FLEXIBLE_SINCE: ClassVar[int] = 0

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, Since(1), Essential] = BROKER_ENDPOINTS


class DescribeClusterBroker(NamedTuple):
    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = None


class DescribeClusterResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 60
    VERSIONS: ClassVar[range] = range(2)
    FLEXIBLE_SINCE: ClassVar[int] = 0

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Annotated[Int8, Since(1), Essential] = BROKER_ENDPOINTS
    cluster_id: str
    controller_id: Int32 = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: Int32 = NO_OPERATIONS


class DescribableLogDirTopic(NamedTuple):
    topic: str
    partitions: tuple[Int32, ...]


class DescribeLogDirsRequest(Struct, frozen=True, kw_only=True):
    """`topics=None` asks for all of them."""

    API_KEY: ClassVar[int] = 35
    VERSIONS: ClassVar[range] = range(5)
    FLEXIBLE_SINCE: ClassVar[int] = 2

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


class DescribeLogDirsResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 35
    VERSIONS: ClassVar[range] = range(5)
    FLEXIBLE_SINCE: ClassVar[int] = 2

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(3)] = 0
    results: tuple[DescribeLogDirsResult, ...] = ()
