"""Metadata: the brokers, the topics and the leader of each partition.

A request for all topics is `topics=()` in version 0 and `topics=None` from version 1 on.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple
from uuid import UUID

from barnabas.model import ZERO_ID
from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Essential, Int16, Int32, NullableSince, Since, Until

NO_OPERATIONS = -(2**31)
"""Value of authorized operations that were not requested."""
# Bit sets of all operations on a cluster and on a topic. All are authorized.
CLUSTER_OPERATIONS = 0b1_1111_1010_0000
TOPIC_OPERATIONS = 0b1101_1111_1000


class MetadataRequestTopic(NamedTuple):
    topic_id: Annotated[UUID, Since(10)] = ZERO_ID
    name: Annotated[str | None, NullableSince(10)] = None


class MetadataRequest(ApiMessage, frozen=True, kw_only=True):
    topics: Annotated[tuple[MetadataRequestTopic, ...] | None, NullableSince(1)]
    allow_auto_topic_creation: Annotated[Bool, Since(4), Essential] = True
    include_cluster_authorized_operations: Annotated[Bool, Since(8), Until(10), Essential] = False
    include_topic_authorized_operations: Annotated[Bool, Since(8), Essential] = False


class MetadataResponseBroker(NamedTuple):
    node_id: Int32
    host: str
    port: Int32
    rack: Annotated[str | None, Since(1)] = None


class MetadataResponsePartition(NamedTuple):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Annotated[Int32, Since(7)] = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    offline_replicas: Annotated[tuple[Int32, ...], Since(5)] = ()


class MetadataResponseTopic(NamedTuple):
    error_code: Int16
    name: Annotated[str | None, NullableSince(12)]
    topic_id: Annotated[UUID, Since(10)] = ZERO_ID
    is_internal: Annotated[Bool, Since(1)] = False
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: Annotated[Int32, Since(8)] = NO_OPERATIONS


class MetadataResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: Annotated[str | None, Since(2)] = None
    controller_id: Annotated[Int32, Since(1)] = -1
    topics: tuple[MetadataResponseTopic, ...] = ()
    cluster_authorized_operations: Annotated[Int32, Since(8), Until(10)] = NO_OPERATIONS
