"""Events of a group of the new consumer protocol: heartbeats, members that leave, expired timers.

Each function takes a ConsumerTransition, reads its group and adds records and timers to the transition. It does not
change the group: the coordinator appends the records and then applies them (`ConsumerGroup.apply`). A rejected request
raises ApiError. Checks are in Kafka's order, which determines the error a client gets.

    join           epoch 0: adds the member; a static member takes over the partitions of its previous member id
    heartbeat      epoch > 0: updates the subscription, reports owned partitions, gets its next assignment
    leave          epoch -1; a static member that restarts sends -2 and keeps its partitions
    time-outs      no heartbeat within the session timeout, or partitions not released within the rebalance timeout
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.assignors import ASSIGNORS, AssigneeSpec
from barnabas.groups.consumer_group import (
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    preferred_assignor,
)
from barnabas.groups.consumer_records import (
    NO_PARTITIONS,
    Assignment,
    ConsumerGroupEpochKey,
    ConsumerGroupEpochValue,
    ConsumerKey,
    ConsumerRecord,
    ConsumerValue,
    CurrentAssignmentKey,
    MemberMetadataKey,
    SubscribedTopic,
    SubscriptionKey,
    SubscriptionValue,
    TargetAssignmentKey,
    TargetAssignmentValue,
    TargetEpochKey,
    TargetEpochValue,
    to_topics,
)
from barnabas.groups.group_changes import GroupChange, plain_reason, removal
from barnabas.groups.group_transition import (
    CancelTimer,
    SetTimer,
    Timer,
    TimerKind,
    session_timer,
)
from barnabas.groups.heartbeat_checks import JOIN_EPOCH, NO_TIMEOUT
from barnabas.groups.reconciliation import is_subset, reconcile
from barnabas.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

TOPICS_NAMED_MAX = 3

FindTopic = Callable[[str], SubscribedTopic | None]


class HeartbeatEvent(NamedTuple):
    """A ConsumerGroupHeartbeat request. `new_member_id` is used if the member has no id."""

    request: ConsumerGroupHeartbeatRequest
    new_member_id: str
    client_id: str
    client_host: str


class EnsureTimer(NamedTuple):
    """Start the timer, unless it is running."""

    timer: Timer
    delay_ms: int


class ConsumerTransition(Struct, eq=False):
    """One event of `group`: the records to append and the timers to set. `find_topic` looks up existing topics."""

    group: ConsumerGroup
    config: BrokerConfig
    find_topic: FindTopic
    topics_version: int = 0
    """Grows when a topic changes."""
    has_checked_topics: bool = False
    """With the records of this event, the subscription of the group is that of `topics_version`."""
    records: list[ConsumerRecord] = field(default_factory=list)
    timers: list[SetTimer | EnsureTimer | CancelTimer] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    """Ids of the members that this event removes."""
    log_events: list[tuple[str, str]] = field(default_factory=list)
    """Event and key=value facts of each log line."""
    reason: str = ""
    """Why this event makes the group epoch grow, for the history. Empty if it does not."""
    changes: list[GroupChange] = field(default_factory=list)
    """For the history."""

    def add(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        self.records.append(ConsumerRecord(key, value))

    def add_member(self, member: ConsumerMember) -> None:
        self.add(
            MemberMetadataKey(self.group.group_id, member.member_id),
            member.to_metadata(),
        )

    def add_current_assignment(self, member: ConsumerMember) -> None:
        self.add(
            CurrentAssignmentKey(self.group.group_id, member.member_id),
            member.to_current_assignment(),
        )

    def add_target(self, member_id: str, target: Assignment) -> None:
        self.add(
            TargetAssignmentKey(self.group.group_id, member_id),
            TargetAssignmentValue(to_topics(target)),
        )

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        self.timers.append(SetTimer(timer, delay_ms))

    def cancel_timer(self, timer: Timer) -> None:
        self.timers.append(CancelTimer(timer))


# ---- heartbeats


def handle_consumer_heartbeat(
    transition: ConsumerTransition, event: HeartbeatEvent
) -> ConsumerGroupHeartbeatResponse:
    """Handle a request that heartbeat_checks.py accepted."""
    request = event.request
    if request.member_epoch < 0:
        return handle_consumer_leave(transition, request)
    check_group_size(transition, request.member_id)
    owned = read_owned_partitions(request)
    member_id = request.member_id or event.new_member_id
    member = find_or_create_member(transition, request, member_id, owned)
    names = request.subscribed_topic_names
    updated = replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == NO_TIMEOUT
        else request.rebalance_timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        subscribed_topics=member.subscribed_topics if names is None else frozenset(names),
        client_id=event.client_id,
        client_host=event.client_host,
        classic=None,
    )
    updated = update_member(transition, member, updated, owned)
    transition.set_timer(
        session_timer(member_id), transition.config.group_consumer_session_timeout_ms
    )
    is_full = request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != NO_TIMEOUT and names is not None and owned is not None
    )
    if request.member_epoch == JOIN_EPOCH:
        transition.log_events.append(("member joined", f"member={member_id}"))
    return ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=updated.epoch,
        heartbeat_interval_ms=transition.config.group_consumer_heartbeat_interval_ms,
        assignment=heartbeat_assignment(updated)
        if is_full or updated.assigned != member.assigned
        else None,
    )


def check_group_size(transition: ConsumerTransition, member_id: str) -> None:
    members_max = transition.config.group_consumer_max_size
    members = transition.group.members
    if len(members) >= members_max and member_id not in members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has group.consumer.max.size={members_max}"
        )


def read_owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    if request.topic_partitions is None:
        return None
    owned: defaultdict[UUID, set[int]] = defaultdict(set)
    for topic_id, partitions in request.topic_partitions:
        owned[topic_id].update(partitions)  # a topic may be in the request many times
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def heartbeat_assignment(member: ConsumerMember) -> HeartbeatAssignment:
    return HeartbeatAssignment(
        tuple(HeartbeatTopicPartitions(*each) for each in to_topics(member.assigned))
    )


def find_or_create_member(
    transition: ConsumerTransition,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    owned: Assignment | None,
) -> ConsumerMember:
    """Return the member that sent the request, a new member, or the successor of a static member."""
    group = transition.group
    is_join = request.member_epoch == JOIN_EPOCH
    if request.instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            if not is_join:
                raise unknown_member(member_id)
            return ConsumerMember(member_id=member_id)
        check_member_epoch(member, request.member_epoch, owned)
        return member
    static = group.static_member(request.instance_id)
    if not is_join:
        static = check_static_member(static, request.instance_id, member_id)
        check_member_epoch(static, request.member_epoch, owned)
        return static
    if static is None:
        return group.members.get(member_id) or ConsumerMember(member_id=member_id)
    if static.epoch != STATIC_LEAVE_EPOCH:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"instance id {request.instance_id!r} belongs to member {static.member_id!r}",
        )
    return replace_static_member(transition, static, member_id)


def replace_static_member(
    transition: ConsumerTransition, before: ConsumerMember, member_id: str
) -> ConsumerMember:
    """Give a static member a new member id. It keeps its target assignment and its partitions."""
    after = replace(before, member_id=member_id, epoch=0, previous_epoch=0)
    add_member_tombstones(transition, before.member_id)
    transition.add_member(after)
    transition.add_target(member_id, transition.group.targets.get(before.member_id, NO_PARTITIONS))
    transition.add_current_assignment(after)
    return after


def check_member_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """Accept the current epoch, and the previous one if the member did not get the last response.

    In the second case it reports owned partitions, which must be a part of its assignment.
    """
    if epoch == member.epoch:
        return
    is_repeated = epoch == member.previous_epoch and epoch < member.epoch
    if is_repeated and owned is not None and is_subset(owned, member.assigned):
        return
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member {member.member_id!r} has epoch {member.epoch}, not {epoch}; "
        "it must release all partitions and rejoin",
    )


def check_static_member(
    static: ConsumerMember | None, instance_id: str, member_id: str
) -> ConsumerMember:
    if static is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"instance id {instance_id!r} is unknown")
    if static.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"instance id {instance_id!r} belongs to member {static.member_id!r}",
        )
    return static


def unknown_member(member_id: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id!r} is unknown")


# ---- the steps of each change of a member


def update_member(
    transition: ConsumerTransition,
    before: ConsumerMember,
    updated: ConsumerMember,
    owned: Assignment | None,
) -> ConsumerMember:
    """Store the member if it has changed, bump the group epoch, assign and reconcile as needed.

    Returns the member with its next current assignment.
    """
    group = transition.group
    if updated != before:
        transition.add_member(updated)
    previous_id = previous_member_id(group, updated)
    has_new_names = updated.subscribed_topics != before.subscribed_topics
    if has_new_names or previous_id is not None or updated.member_id not in group.members:
        replaced_ids = {updated.member_id, previous_id or updated.member_id}
        subscription = find_subscription(transition, replaced_ids, updated)
    else:
        subscription = current_subscription(transition)  # most heartbeats
    epoch = group.epoch
    if set_subscription(transition, subscription) or has_new_names:
        epoch += 1
        add_group_epoch(transition, epoch)
        transition.reason = describe_change(group, before, updated, subscription)
    if epoch > group.target_epoch:
        target = assign_targets(transition, previous_id, updated, subscription, epoch)
        target_epoch = epoch
    else:
        target = group.targets.get(previous_id or updated.member_id, NO_PARTITIONS)
        target_epoch = group.target_epoch
    after = reconcile(
        updated,
        target_epoch=target_epoch,
        target=target,
        owned=owned,
        has_owner=group.owners.__contains__,
    )
    if after != updated:
        transition.add_current_assignment(after)
        transition.log_events.append(
            (
                "assignment changed",
                f"member={after.member_id} epoch={after.epoch} state={after.state.name}",
            )
        )
        if after.classic is None:
            schedule_revocation(transition, after)
    return after


def describe_change(
    group: ConsumerGroup,
    before: ConsumerMember,
    updated: ConsumerMember,
    subscription: dict[str, SubscribedTopic],
) -> str:
    """Return why the group epoch grows."""
    if before.epoch == 0 and before.member_id not in group.members:
        host = updated.client_host.removeprefix("/")
        return f"member {updated.member_id} ({updated.client_id} at {host}) joins"
    if updated.subscribed_topics != before.subscribed_topics:
        return f"member {updated.member_id} changed its subscription"
    names = sorted(subscription.keys() | group.subscription.keys())
    changed = [name for name in names if subscription.get(name) != group.subscription.get(name)]
    more = ", …" if len(changed) > TOPICS_NAMED_MAX else ""
    return f"partitions changed: {', '.join(changed[:TOPICS_NAMED_MAX])}{more}"


def schedule_revocation(transition: ConsumerTransition, member: ConsumerMember) -> None:
    timer = rebalance_timer(member.member_id)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        transition.set_timer(timer, member.rebalance_timeout_ms)
    else:
        transition.cancel_timer(timer)


def previous_member_id(group: ConsumerGroup, member: ConsumerMember) -> str | None:
    """Return the member id that a static member replaces in this event, or None."""
    if member.instance_id is None:
        return None
    member_id = group.static_members.get(member.instance_id)
    return None if member_id == member.member_id else member_id


def find_subscription(
    transition: ConsumerTransition, replaced_ids: Collection[str], updated: ConsumerMember | None
) -> dict[str, SubscribedTopic]:
    """Return the existing topics that members subscribe to, after `updated` replaced some members.

    If members leave, `updated` is None.
    """
    group = transition.group
    subscription = dict(current_subscription(transition))
    replaced = [group.members[each] for each in replaced_ids if each in group.members]
    lost = Counter(name for each in replaced for name in each.subscribed_topics)
    for name, count in lost.items():
        if count == group.topic_counts[name]:
            subscription.pop(name, None)
    if updated is not None:
        subscription.update(find_topics(transition, updated.subscribed_topics))
    return subscription


def current_subscription(transition: ConsumerTransition) -> dict[str, SubscribedTopic]:
    """Return the existing topics that members subscribe to. Looks them up only if a topic has changed."""
    group = transition.group
    if group.topics_version == transition.topics_version:
        return group.subscription
    return find_topics(transition, group.topic_counts)


def find_topics(transition: ConsumerTransition, names: Iterable[str]) -> dict[str, SubscribedTopic]:
    find = transition.find_topic
    return {name: topic for name in names if (topic := find(name)) is not None}


def assign_targets(
    transition: ConsumerTransition,
    previous_id: str | None,
    updated: ConsumerMember,
    subscription: dict[str, SubscribedTopic],
    epoch: int,
) -> Assignment:
    """Compute the target assignment of all members. Return that of `updated`."""
    group = transition.group
    members = {**group.members, updated.member_id: updated}
    if previous_id is not None:
        del members[previous_id]
    names = {each.subscribed_topics for each in members.values()}  # most members have the same
    topic_ids = {
        each: frozenset(subscription[name].topic_id for name in each if name in subscription)
        for each in names
    }
    specs = {
        member_id: AssigneeSpec(
            topic_ids[each.subscribed_topics],
            group.targets.get(
                (previous_id if each is updated else None) or member_id, NO_PARTITIONS
            ),
            each.instance_id,
        )
        for member_id, each in members.items()
    }
    counts = {each.topic_id: each.partition_count for each in subscription.values()}
    assignor = preferred_assignor(members.values())
    targets = ASSIGNORS[assignor](specs, counts)
    for member_id, target in targets.items():
        if target != group.targets.get(member_id):
            transition.add_target(member_id, target)
    transition.add(TargetEpochKey(group.group_id), TargetEpochValue(epoch))
    transition.log_events.append(
        ("target assignment computed", f"assignor={assignor} members={len(members)}")
    )
    return targets[updated.member_id]


def set_subscription(
    transition: ConsumerTransition, subscription: dict[str, SubscribedTopic]
) -> bool:
    """Store the existing topics that members subscribe to. Return whether they have changed."""
    group = transition.group
    transition.has_checked_topics = True
    if subscription is group.subscription or subscription == group.subscription:
        return False
    topics = tuple(topic for _, topic in sorted(subscription.items()))
    transition.add(SubscriptionKey(group.group_id), SubscriptionValue(topics))
    return True


def add_group_epoch(transition: ConsumerTransition, epoch: int) -> None:
    transition.add(ConsumerGroupEpochKey(transition.group.group_id), ConsumerGroupEpochValue(epoch))


# ---- leaving


def handle_consumer_leave(
    transition: ConsumerTransition, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    group = transition.group
    member = group.members.get(request.member_id)
    if request.instance_id is not None:
        static = group.static_member(request.instance_id)
        member = check_static_member(static, request.instance_id, request.member_id)
    elif member is None:
        raise unknown_member(request.member_id)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        transition.add_current_assignment(
            replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation=NO_PARTITIONS)
        )
        transition.log_events.append(("static member left", f"member={member.member_id}"))
    else:
        remove_consumer_member(transition, member, "it left")
    return ConsumerGroupHeartbeatResponse(
        member_id=member.member_id, member_epoch=request.member_epoch
    )


def remove_consumer_member(
    transition: ConsumerTransition, member: ConsumerMember, reason: str
) -> None:
    remove_consumer_members(transition, {member.member_id: reason})


def remove_consumer_members(transition: ConsumerTransition, reasons: Mapping[str, str]) -> None:
    """Remove members. The next heartbeat of another member computes the new target assignment."""
    group = transition.group
    for member_id, reason in reasons.items():
        add_member_tombstones(transition, member_id)
        cancel_member_timers(transition, member_id)
        transition.removed.append(member_id)
        transition.log_events.append(("member removed", f"member={member_id} reason={reason}"))
        transition.reason = plain_reason(
            f"member {member_id} {reason.removeprefix('it ')}"
            if reason.startswith("it left")
            else f"member {member_id} was removed: {reason}"
        )
    set_subscription(transition, find_subscription(transition, reasons, None))
    add_group_epoch(transition, group.epoch + 1)


def add_member_tombstones(transition: ConsumerTransition, member_id: str) -> None:
    group_id = transition.group.group_id
    transition.add(CurrentAssignmentKey(group_id, member_id), None)
    transition.add(TargetAssignmentKey(group_id, member_id), None)
    transition.add(MemberMetadataKey(group_id, member_id), None)


def cancel_member_timers(transition: ConsumerTransition, member_id: str) -> None:
    for kind in (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.JOIN, TimerKind.SYNC):
        transition.cancel_timer(Timer(kind, member_id))


# ---- timers and loading


def expire_consumer_timer(transition: ConsumerTransition, timer: Timer) -> None:
    """Remove the member whose timer expired, unless it has done meanwhile what the timer waits for."""
    member = transition.group.members.get(timer.member_id)
    if member is None:
        return
    if timer.kind is TimerKind.REBALANCE:
        is_waiting = member.state is MemberState.UNREVOKED_PARTITIONS
        if is_waiting and member.epoch != STATIC_LEAVE_EPOCH:
            reason = f"it did not release partitions within {member.rebalance_timeout_ms} ms"
            remove_timed_out_member(transition, member, reason)
    else:
        reasons = {
            TimerKind.SESSION: "its session expired",
            TimerKind.JOIN: "it did not rejoin within its rebalance timeout",
            TimerKind.SYNC: "it did not send SyncGroup within its rebalance timeout",
        }
        remove_timed_out_member(transition, member, reasons[timer.kind])


def remove_timed_out_member(
    transition: ConsumerTransition, member: ConsumerMember, reason: str
) -> None:
    transition.changes.append(removal(member, reason))
    remove_consumer_member(transition, member, reason)


def start_consumer_sessions(transition: ConsumerTransition) -> None:
    """Start the timers of a group that was loaded from the log."""
    for member in transition.group.members.values():
        transition.set_timer(
            session_timer(member.member_id), transition.config.group_consumer_session_timeout_ms
        )
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            transition.set_timer(rebalance_timer(member.member_id), member.rebalance_timeout_ms)


def rebalance_timer(member_id: str) -> Timer:
    return Timer(TimerKind.REBALANCE, member_id)
