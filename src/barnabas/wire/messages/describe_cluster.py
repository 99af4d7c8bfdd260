"""DescribeCluster: the brokers, the controller and the cluster id."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Essential, Int8, Int16, Int32, Since
from barnabas.wire.messages.metadata import NO_OPERATIONS

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2


class DescribeClusterRequest(ApiMessage, frozen=True, kw_only=True):
    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, Since(1), Essential] = BROKER_ENDPOINTS


class DescribeClusterBroker(NamedTuple):
    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = None


class DescribeClusterResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Annotated[Int8, Since(1), Essential] = BROKER_ENDPOINTS
    cluster_id: str
    controller_id: Int32 = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: Int32 = NO_OPERATIONS
