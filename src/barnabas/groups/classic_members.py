"""Members of the classic protocol in a group of the new consumer protocol, during a migration.

    JoinGroup    ≈ heartbeat: updates the subscription and reports owned partitions; the member epoch is the generation
    SyncGroup    gets the assignment, which the broker has computed; no member is the group leader
    Heartbeat    REBALANCE_IN_PROGRESS until the member has rejoined

As in consumer_events.py, nothing here changes the group. A rejected request raises ApiError.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from msgspec.structs import replace

from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.groups.consumer_events import (
    ConsumerTransition,
    EnsureTimer,
    check_group_size,
    check_static_member,
    current_subscription,
    remove_consumer_members,
    replace_static_member,
    unknown_member,
    update_member,
)
from barnabas.groups.consumer_group import ConsumerGroup, ConsumerMember, MemberState
from barnabas.groups.consumer_records import (
    NO_PARTITIONS,
    Assignment,
    ClassicMetadata,
    SupportedProtocol,
)
from barnabas.groups.group import AssignmentProtocol
from barnabas.groups.group_changes import NO_REASON
from barnabas.groups.group_events import JoinEvent, SyncEvent
from barnabas.groups.group_transition import Timer, TimerKind, session_timer
from barnabas.groups.heartbeat_checks import TOPICS_MAX, too_many_topics
from barnabas.wire.codec import VERSION
from barnabas.wire.consumer_protocol import (
    LATEST_VERSION,
    PROTOCOL_TYPE,
    ConsumerAssignment,
    ConsumerSubscription,
    TopicPartitions,
    decode_subscription,
    encode_assignment,
)
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupResponse

# ---- joining


def handle_classic_join(transition: ConsumerTransition, event: JoinEvent) -> JoinGroupResponse:
    member_id = event.member_id or event.new_member_id
    check_group_size(transition, event.member_id)
    if not supports_classic_protocols(transition.group, event.protocol_type, event.protocols):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"member {member_id!r} has no protocol in common with the other members",
        )
    if not event.member_id and event.requires_member_id:
        return JoinGroupResponse(
            error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id, protocol_name=None
        )
    subscription = read_subscription(event.protocols)
    member = find_or_create_classic_member(transition, event, member_id)
    updated = replace(
        member,
        instance_id=member.instance_id if event.instance_id is None else event.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        subscribed_topics=frozenset(subscription.topics),
        client_id=event.client_id,
        client_host=event.client_host,
        classic=to_classic_metadata(event.session_timeout_ms, event.protocols),
    )
    owned = to_owned_partitions(transition, subscription)
    updated = update_member(transition, member, updated, owned)
    transition.cancel_timer(Timer(TimerKind.JOIN, member_id))
    transition.set_timer(session_timer(member_id), event.session_timeout_ms)
    transition.set_timer(Timer(TimerKind.SYNC, member_id), event.rebalance_timeout_ms)
    return JoinGroupResponse(
        generation_id=updated.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=event.protocols[0].name,
        member_id=member_id,
    )


def supports_classic_protocols(
    group: ConsumerGroup, protocol_type: str, protocols: tuple[AssignmentProtocol, ...]
) -> bool:
    """Return whether all members of the classic protocol support one of the protocols."""
    if protocol_type != PROTOCOL_TYPE:
        return False
    common = {each.name for each in protocols}
    if not common:
        return False
    for member in group.members.values():
        if member.classic is not None:
            common &= {each.name for each in member.classic.supported_protocols}
    return bool(common)


def read_subscription(protocols: tuple[AssignmentProtocol, ...]) -> ConsumerSubscription:
    try:
        subscription = decode_subscription(protocols[0].metadata)
    except RemoteWireError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"invalid subscription: {error}") from error
    if len(subscription.topics) > TOPICS_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, too_many_topics(len(subscription.topics)))
    return subscription


def find_or_create_classic_member(
    transition: ConsumerTransition, event: JoinEvent, member_id: str
) -> ConsumerMember:
    group = transition.group
    if event.instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id=member_id)
    static = group.static_member(event.instance_id)
    if event.member_id:
        return check_static_member(static, event.instance_id, member_id)
    if static is None:
        return ConsumerMember(member_id=member_id)
    return replace_static_member(transition, static, member_id)


def to_classic_metadata(
    session_timeout_ms: int, protocols: tuple[AssignmentProtocol, ...]
) -> ClassicMetadata:
    return ClassicMetadata(
        session_timeout_ms, tuple(SupportedProtocol(*each) for each in protocols)
    )


def to_owned_partitions(
    transition: ConsumerTransition, subscription: ConsumerSubscription
) -> Assignment:
    """Return the owned partitions by topic id. Topics that do not exist are ignored."""
    owned: dict[UUID, frozenset[int]] = {}
    for name, partitions in subscription.owned_partitions:
        topic = transition.find_topic(name)
        if topic is not None and partitions:
            owned[topic.topic_id] = frozenset(partitions)
    return owned


# ---- syncing and heartbeats


def handle_classic_sync(transition: ConsumerTransition, event: SyncEvent) -> SyncGroupResponse:
    group = transition.group
    member, classic = find_classic_member(
        group, event.member_id, event.instance_id, event.generation
    )
    protocol = classic.supported_protocols[0]
    if event.protocol_type not in (None, PROTOCOL_TYPE) or event.protocol not in (
        None,
        protocol.name,
    ):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the group has protocol type {PROTOCOL_TYPE!r} and protocol {protocol.name!r}",
        )
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        wait_for_rejoin(transition, member)
        return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    transition.cancel_timer(Timer(TimerKind.SYNC, member.member_id))
    transition.set_timer(session_timer(member.member_id), classic.session_timeout_ms)
    return SyncGroupResponse(
        protocol_type=event.protocol_type,
        protocol_name=event.protocol,
        assignment=encode_classic_assignment(group, member.assigned, protocol.metadata),
    )


def handle_classic_heartbeat(
    transition: ConsumerTransition, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    group = transition.group
    member, classic = find_classic_member(group, member_id, instance_id, generation)
    transition.set_timer(session_timer(member_id), classic.session_timeout_ms)
    if (
        member.epoch < group.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (
            member.state is MemberState.UNRELEASED_PARTITIONS
            and not waits_for_other_members(group, member)
        )
        # Kafka checks the topics only in requests of the new protocol, and a group may have no such member left.
        or current_subscription(transition) != group.subscription
    ):
        wait_for_rejoin(transition, member)
        return ErrorCode.REBALANCE_IN_PROGRESS
    transition.has_checked_topics = True
    return ErrorCode.NONE


def find_classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMetadata]:
    member = group.members.get(member_id)
    if instance_id is not None:
        member = check_static_member(group.static_member(instance_id), instance_id, member_id)
    if member is None or member.classic is None:
        raise unknown_member(member_id)
    if generation != member.epoch:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION, f"member {member_id!r} is in generation {member.epoch}"
        )
    return member, member.classic


def wait_for_rejoin(transition: ConsumerTransition, member: ConsumerMember) -> None:
    timer = Timer(TimerKind.JOIN, member.member_id)
    transition.timers.append(EnsureTimer(timer, member.rebalance_timeout_ms))


def waits_for_other_members(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether another member still owns a partition of the member's target."""
    target = group.targets.get(member.member_id, NO_PARTITIONS)
    return any(
        partition not in member.assigned.get(topic_id, frozenset())
        and (topic_id, partition) in group.owners
        for topic_id, partitions in target.items()
        for partition in partitions
    )


def encode_classic_assignment(
    group: ConsumerGroup, assignment: Assignment, metadata: bytes
) -> bytes:
    """Encode the assignment in the version that the member used for its subscription."""
    names = {topic.topic_id: name for name, topic in group.subscription.items()}
    (version,) = VERSION.unpack_from(metadata)
    topics = tuple(
        TopicPartitions(name, tuple(sorted(partitions)))
        for name, partitions in sorted(
            (names[topic_id], partitions)
            for topic_id, partitions in assignment.items()
            if topic_id in names
        )
    )
    return encode_assignment(ConsumerAssignment(topics), min(version, LATEST_VERSION))


# ---- leaving


def handle_classic_leave(
    transition: ConsumerTransition, members: Iterable[MemberIdentity]
) -> list[ErrorCode]:
    """Remove members. Return one error code per member."""
    codes: list[ErrorCode] = []
    reasons: dict[str, str] = {}
    for each in members:
        try:
            member = find_leaving_member(transition.group, each)
        except ApiError as error:
            codes.append(error.code)
        else:
            codes.append(ErrorCode.NONE)
            reasons[member.member_id] = f"it left: {each.reason or NO_REASON}"
    if reasons:
        remove_consumer_members(transition, reasons)
    return codes


def find_leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    member = group.members.get(member_id)
    if instance_id is not None:
        static = group.static_member(instance_id)
        # Admin clients send only the instance id.
        expected = member_id or (static.member_id if static is not None else "")
        member = check_static_member(static, instance_id, expected)
    if member is None or member.classic is None:
        raise unknown_member(member_id)
    return member
