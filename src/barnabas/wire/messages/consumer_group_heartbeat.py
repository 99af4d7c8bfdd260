"""ConsumerGroupHeartbeat: joins and keeps membership in a group of the new consumer protocol (KIP-848).

Version 1 is of Kafka 4. Clients based on librdkafka require it.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple
from uuid import UUID

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16, Int32, Since


class HeartbeatTopicPartitions(NamedTuple):
    topic_id: UUID
    partitions: tuple[Int32, ...]


class ConsumerGroupHeartbeatRequest(ApiMessage, frozen=True, kw_only=True):
    """A nullable field is null if it has not changed since the last heartbeat."""

    group_id: str
    member_id: str
    member_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: Annotated[str | None, Since(1)] = None
    server_assignor: str | None = None
    topic_partitions: tuple[HeartbeatTopicPartitions, ...] | None = None


class HeartbeatAssignment(NamedTuple):
    topic_partitions: tuple[HeartbeatTopicPartitions, ...]


class ConsumerGroupHeartbeatResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: HeartbeatAssignment | None = None
