"""Rebalance of a group: from the first join to the next generation.

    start_rebalance     members that wait for an assignment must rejoin; starts the join timer
    try_complete_join   calls complete_join when all members have joined
    complete_join       removes members that did not rejoin, elects a leader, chooses a protocol, answers all joins
    send_assignments    sends every member its assignment, or an error

The first rebalance of an empty group waits `group.initial.rebalance.delay.ms`. While members join, the delay repeats,
in total up to their largest rebalance timeout. So consumers that start together share one generation.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.errors import ErrorCode
from barnabas.groups.group import Group, GroupMember, GroupState, InitialDelay
from barnabas.groups.group_changes import GroupChange, plain_reason, removal
from barnabas.groups.group_transition import (
    JOIN_TIMER,
    SYNC_TIMER,
    GroupTransition,
    StoreGroup,
    session_timer,
)
from barnabas.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.wire.messages.sync_group import SyncGroupResponse


def start_rebalance(transition: GroupTransition, reason: str) -> None:
    """Ask all members to rejoin. The group must be Empty, Stable or CompletingRebalance."""
    group = transition.group
    if group.state is GroupState.COMPLETING_REBALANCE:
        send_assignments(transition, {}, ErrorCode.REBALANCE_IN_PROGRESS)
    group.unsynced.clear()
    transition.cancel_timer(SYNC_TIMER)
    group.is_storing = False
    was_empty = group.state is GroupState.EMPTY
    group.rebalance_reason = plain_reason(reason)
    transition.log_events.append(("rebalance started", f"reason={reason}"))
    transition.move_to(GroupState.PREPARING_REBALANCE)
    if was_empty:
        delay_ms = transition.config.group_initial_rebalance_delay_ms
        group.initial_delay = InitialDelay(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        transition.set_timer(JOIN_TIMER, delay_ms)
    else:
        transition.set_timer(JOIN_TIMER, group.rebalance_timeout_ms)
        try_complete_join(transition)


def ensure_rebalance(transition: GroupTransition, reason: str) -> None:
    if transition.group.state is not GroupState.PREPARING_REBALANCE:
        start_rebalance(transition, reason)


def try_complete_join(transition: GroupTransition) -> None:
    group = transition.group
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.initial_delay is None
        and group.has_all_joined
    ):
        complete_join(transition)


def expire_join_timer(transition: GroupTransition) -> None:
    group = transition.group
    delay = group.initial_delay
    if delay is not None and delay.remaining_ms and group.has_new_members:
        group.has_new_members = False
        next_ms = min(transition.config.group_initial_rebalance_delay_ms, delay.remaining_ms)
        group.initial_delay = InitialDelay(next_ms, max(delay.remaining_ms - delay.delay_ms, 0))
        transition.set_timer(JOIN_TIMER, next_ms)
    else:
        complete_join(transition)


def complete_join(transition: GroupTransition) -> None:
    """Start the next generation with the members that joined.

    Other members are removed, except static ones, which stay until their session expires.
    """
    group = transition.group
    group.initial_delay = None
    group.has_new_members = False
    for member in list(group.members.values()):
        if member.join is None and member.instance_id is None:
            group.remove(member.member_id)
            transition.cancel_timer(session_timer(member.member_id))
            why = "it did not rejoin within the rebalance timeout"
            transition.changes.append(removal(member, why))
    if group.members and not elect_leader(group):
        # Only static members are left, and none has rejoined. Wait until one rejoins or their sessions expire.
        transition.set_timer(JOIN_TIMER, group.rebalance_timeout_ms)
        return
    transition.cancel_timer(JOIN_TIMER)
    group.generation += 1
    group.unsynced.clear()
    if not group.members:
        group.protocol = None
        group.topics = group.decode_topics()
        transition.move_to(GroupState.EMPTY)
        transition.effects.append(StoreGroup(group.snapshot(), None))
        transition.log_events.append(("group is empty", "members=0"))
        transition.changes.append(GroupChange("empty", group.rebalance_reason))
        return
    group.protocol = group.choose_protocol()
    group.topics = group.decode_topics()
    transition.move_to(GroupState.COMPLETING_REBALANCE)
    for member in group.members.values():
        transition.answer(group.pop_join(member), join_response(group, member))
        transition.restart_session(member)
        member.is_new = False
        group.unsynced[member.member_id] = None
    transition.set_timer(SYNC_TIMER, group.rebalance_timeout_ms)
    transition.log_events.append(
        ("generation started", f"members={len(group.members)} leader={group.leader}")
    )


def elect_leader(group: Group) -> bool:
    """Keep the leader if it has joined, or elect the first member that has. Return False if none has."""
    if group.leader is not None and group.members[group.leader].join is not None:
        return True
    for member in group.members.values():
        if member.join is not None:
            group.leader = member.member_id
            return True
    return False


def join_response(
    group: Group, member: GroupMember, *, leader: str | None = None, skip_assignment: bool = False
) -> JoinGroupResponse:
    """Return the response to a join. Only the leader gets the list of members. `leader` overrides the group leader."""
    assert group.protocol is not None
    leader = group.leader if leader is None else leader
    members = tuple(
        JoinGroupResponseMember(each.member_id, each.instance_id, each.metadata(group.protocol))
        for each in (group.members.values() if leader == member.member_id else ())
    )
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=leader or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )


def send_assignments(
    transition: GroupTransition, assignments: Mapping[str, bytes], code: ErrorCode = ErrorCode.NONE
) -> None:
    """Set the assignments of all members and answer the waiting SyncGroup requests, with `code` if it is an error.

    The sessions of the waiting members restart, since members do not have to send heartbeats while they wait.
    """
    group = transition.group
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        response = (
            sync_response(group, member)
            if code is ErrorCode.NONE
            else SyncGroupResponse(error_code=code)
        )
        if transition.answer_sync(member, response):
            transition.restart_session(member)


def sync_response(group: Group, member: GroupMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def remove_member(transition: GroupTransition, member: GroupMember, reason: str) -> None:
    """Remove a member that left or whose session expired, and rebalance."""
    group = transition.group
    transition.reject_join(group.pop_join(member), ErrorCode.UNKNOWN_MEMBER_ID)
    transition.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)
    transition.cancel_timer(session_timer(member.member_id))
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        start_rebalance(transition, reason)
    else:
        if not group.members:
            group.rebalance_reason = plain_reason(reason)
        try_complete_join(transition)


def remove_pending_member(transition: GroupTransition, member_id: str) -> None:
    transition.group.remove(member_id)
    transition.cancel_timer(session_timer(member_id))
    try_complete_join(transition)
