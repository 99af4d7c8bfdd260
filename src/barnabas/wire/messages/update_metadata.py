"""UpdateMetadata: the controller sends a broker the contents of its metadata cache.

Partitions are a flat list with topic names up to version 4, and grouped by topic from version 5 on. A broker has one
address in version 0, one per security protocol in versions 1 and 2, and one per listener from version 3 on.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple
from uuid import UUID

from barnabas.model import ZERO_ID
from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Essential, Int8, Int16, Int32, Int64, Since, Tag, Until
from barnabas.wire.messages.control_plane import UNKNOWN_BROKER_EPOCH


class UpdateMetadataPartitionState(NamedTuple):
    topic_name: Annotated[str, Until(4)] = ""
    partition_index: Int32 = 0
    controller_epoch: Int32 = 0
    leader: Int32 = -1
    leader_epoch: Int32 = -1
    isr: tuple[Int32, ...] = ()
    zk_version: Int32 = 0
    replicas: tuple[Int32, ...] = ()
    offline_replicas: Annotated[tuple[Int32, ...], Since(4)] = ()


class UpdateMetadataTopicState(NamedTuple):
    topic_name: str
    topic_id: Annotated[UUID, Since(7)] = ZERO_ID
    partition_states: tuple[UpdateMetadataPartitionState, ...] = ()


class UpdateMetadataEndpoint(NamedTuple):
    port: Int32
    host: str
    listener: Annotated[str, Since(3)] = ""
    security_protocol: Int16 = 0


class UpdateMetadataBroker(NamedTuple):
    id: Int32
    v0_host: Annotated[str, Until(0)] = ""
    v0_port: Annotated[Int32, Until(0)] = 0
    endpoints: Annotated[tuple[UpdateMetadataEndpoint, ...], Since(1)] = ()
    rack: Annotated[str | None, Since(2)] = None


class UpdateMetadataRequest(ApiMessage, frozen=True, kw_only=True):
    controller_id: Int32
    is_kraft_controller: Annotated[Bool, Since(8), Essential] = False
    type: Annotated[Int8, Since(8), Tag(0), Essential] = 0
    """See LeaderAndIsrRequest.type."""
    controller_epoch: Int32
    broker_epoch: Annotated[Int64, Since(5)] = UNKNOWN_BROKER_EPOCH
    ungrouped_partition_states: Annotated[
        tuple[UpdateMetadataPartitionState, ...], Until(4), Essential
    ] = ()
    topic_states: Annotated[tuple[UpdateMetadataTopicState, ...], Since(5), Essential] = ()
    live_brokers: tuple[UpdateMetadataBroker, ...] = ()


class UpdateMetadataResponse(ApiMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
