"""DescribeCluster: the brokers, the controller and the cluster id."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.describe_cluster import (
    BROKER_ENDPOINTS,
    CONTROLLER_ENDPOINTS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.wire.messages.metadata import NO_OPERATIONS


def handle(
    context: BrokerContext,
    request: DescribeClusterRequest,
    header: RequestHeader,
    connection: Connection,
) -> DescribeClusterResponse:
    cache = context.metadata
    if request.endpoint_type != BROKER_ENDPOINTS:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        why = f"unknown endpoint type {request.endpoint_type}"
        if request.endpoint_type == CONTROLLER_ENDPOINTS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            why = "this is a broker endpoint, not a controller endpoint"
        return DescribeClusterResponse(error_code=code, error_message=why, cluster_id="")
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
        cluster_authorized_operations=context.security.access.cluster_operations(connection)
        if request.include_cluster_authorized_operations
        else NO_OPERATIONS,
    )
