"""Builders for group requests, from members and from other clients.

The broker chooses member ids, so a member's request is written as `by(step, …)`: the step whose response contained the
id, and a function of that id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from barnabas.wire.codec import Message
from barnabas.wire.consumer_protocol import ConsumerSubscription, encode_subscription
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from interop.scenarios.step import RequestContext

TOPIC = "counted"
OTHER_TOPIC = "also-counted"
LONG_MS = 300_000
"""Longer than a script takes: no member times out."""
MANY_GROUPS_SINCE = 8
LEAVE_TOGETHER_SINCE = 3


def alone(number: int) -> str:
    """A group id. Consecutive numbers are in consecutive partitions of `__consumer_offsets`."""
    return f"alone-{number}"


def subscribed(*topics: str) -> bytes:
    return encode_subscription(ConsumerSubscription(topics))


RANGE = ("range", subscribed(TOPIC))
STICKY = ("sticky", subscribed(TOPIC))
RequestBuilder = Callable[[RequestContext], Message]


def by(step: str, asks: Callable[[str], Message]) -> RequestBuilder:
    return lambda context: asks(context.answer(step).member_id)


# ---- members


def join(
    group: str,
    member: str = "",
    *,
    instance: str | None = None,
    session_ms: int = LONG_MS,
    kind: str = "consumer",
    protocols: Sequence[tuple[str, bytes]] = (RANGE,),
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=LONG_MS,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=tuple(JoinGroupRequestProtocol(*each) for each in protocols),
    )


def sync(
    group: str,
    generation: int,
    member: str,
    assignments: Mapping[str, bytes] | None = None,
    *,
    instance: str | None = None,
    kind: str | None = "consumer",
    protocol: str | None = "range",
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocol_name=protocol,
        assignments=tuple(
            SyncGroupRequestAssignment(*each) for each in (assignments or {}).items()
        ),
    )


def heartbeat(
    group: str, generation: int, member: str, instance: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
    )


def leave(group: str, *members: MemberIdentity, version: int = 5) -> LeaveGroupRequest:
    if version < LEAVE_TOGETHER_SINCE:
        (only,) = members
        return LeaveGroupRequest(group_id=group, member_id=only.member_id)
    return LeaveGroupRequest(group_id=group, members=members)


# ---- offsets

Offsets = Mapping[str, Mapping[int, int]]


def commit(
    group: str,
    offsets: Offsets,
    *,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    note: str | None = "",
    retention_ms: int = -1,
    timestamp: int = -1,
    epoch: int = -1,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        retention_time_ms=retention_ms,
        topics=tuple(
            OffsetCommitRequestTopic(
                topic,
                tuple(
                    OffsetCommitRequestPartition(index, offset, epoch, timestamp, note)
                    for index, offset in partitions.items()
                ),
            )
            for topic, partitions in offsets.items()
        ),
    )


Partitions = Mapping[str, Sequence[int]]


def committed(
    *groups: str, of: Partitions | None = None, version: int = 9, stable: bool = False
) -> OffsetFetchRequest:
    """Committed offsets of the named partitions, or of all."""
    topics = (
        None
        if of is None
        else tuple(OffsetFetchRequestTopic(topic, tuple(indexes)) for topic, indexes in of.items())
    )
    if version < MANY_GROUPS_SINCE:
        (group,) = groups
        return OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable)
    return OffsetFetchRequest(
        groups=tuple(OffsetFetchRequestGroup(group, topics=topics) for group in groups),
        require_stable=stable,
    )


def forget(group: str, of: Partitions) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=tuple(
            OffsetDeleteRequestTopic(
                topic, tuple(OffsetDeleteRequestPartition(index) for index in indexes)
            )
            for topic, indexes in of.items()
        ),
    )


# ---- administration


def describe_groups(*groups: str, operations: bool = False) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=groups, include_authorized_operations=operations)


def list_groups(*, states: Sequence[str] = (), types: Sequence[str] = ()) -> ListGroupsRequest:
    return ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))


def delete_groups(*groups: str) -> DeleteGroupsRequest:
    return DeleteGroupsRequest(groups_names=groups)
