"""DescribeCluster and DescribeLogDirs."""

from __future__ import annotations

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.parts import BrokerParts
from barnabas.errors import ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.cluster import (
    BROKER_ENDPOINTS,
    CONTROLLER_ENDPOINTS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas.wire.messages.metadata import CLUSTER_OPERATIONS, NO_OPERATIONS


def describe_cluster(
    parts: BrokerParts,
    request: DescribeClusterRequest,
    header: RequestHeader,
    connection: Connection,
) -> DescribeClusterResponse:
    cache = parts.metadata
    if request.endpoint_type != BROKER_ENDPOINTS:
        code, why = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "unknown endpoint type"
        if request.endpoint_type == CONTROLLER_ENDPOINTS:
            code, why = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker, not a controller"
        return DescribeClusterResponse(
            error_code=code,
            error_message=why,
            cluster_id="",
        )
    brokers = []
    for broker in cache.brokers.values():
        endpoint = cache.endpoint(broker, connection.listener_name)
        if endpoint is not None:
            brokers.append(
                DescribeClusterBroker(
                    broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
    return DescribeClusterResponse(
        cluster_id=cache.cluster_id,
        controller_id=cache.controller_id,
        brokers=tuple(brokers),
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NO_OPERATIONS,
    )


def describe_log_dirs(
    parts: BrokerParts, request: DescribeLogDirsRequest, header: RequestHeader, _: Connection
) -> Work[DescribeLogDirsResponse]:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = set()
        for topic in request.topics:
            wanted.update((topic.topic, index) for index in topic.partitions)
            yield None
    results = []
    for directory in parts.replicas.logs.describe():
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        for tp, size in directory.sizes.items():
            if wanted is None or tp in wanted:
                topics.setdefault(tp.topic, []).append(
                    DescribeLogDirsPartition(partition_index=tp.partition, partition_size=size)
                )
            yield None
        failed = directory.error is not None
        results.append(
            DescribeLogDirsResult(
                error_code=ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NONE,
                log_dir=directory.path,
                topics=tuple(
                    DescribeLogDirsTopic(name=name, partitions=tuple(partitions))
                    for name, partitions in topics.items()
                ),
                total_bytes=directory.total_bytes,
                usable_bytes=directory.usable_bytes,
            )
        )
    return DescribeLogDirsResponse(results=tuple(results))
