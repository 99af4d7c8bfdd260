"""ConsumerGroupDescribe: describes groups of the new consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Int16, Int32
from barnabas.wire.messages.metadata import NO_OPERATIONS


class ConsumerGroupDescribeRequest(ApiMessage, frozen=True, kw_only=True):
    group_ids: tuple[str, ...]
    include_authorized_operations: Bool = False


class MemberTopicPartitions(NamedTuple):
    topic_id: UUID
    topic_name: str
    partitions: tuple[Int32, ...]


class MemberAssignment(NamedTuple):
    topic_partitions: tuple[MemberTopicPartitions, ...] = ()


class ConsumerGroupMember(NamedTuple):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    assignment: MemberAssignment = MemberAssignment()
    target_assignment: MemberAssignment = MemberAssignment()


class DescribedConsumerGroup(NamedTuple):
    error_code: Int16
    error_message: str | None
    group_id: str
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: tuple[ConsumerGroupMember, ...] = ()
    authorized_operations: Int32 = NO_OPERATIONS


class ConsumerGroupDescribeResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    groups: tuple[DescribedConsumerGroup, ...] = ()
