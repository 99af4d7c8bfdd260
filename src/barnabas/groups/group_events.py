"""Events of a group: requests of its members, expired timers, completed appends to the log, loading and unloading.

Each function takes a GroupTransition, changes its group and adds effects. Each ticket is answered exactly once, by
the same event or by a later event of the group. Checks are in Kafka's order, which determines the error a client gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import NamedTuple

from barnabas.errors import ErrorCode
from barnabas.groups.group import AssignmentProtocol, GroupMember, GroupState, Ticket
from barnabas.groups.group_changes import NO_REASON, GroupChange, removal
from barnabas.groups.group_transition import (
    SYNC_TIMER,
    AssignmentPurpose,
    GroupTransition,
    StaticRejoinPurpose,
    StoreGroup,
    Timer,
    TimerKind,
    session_timer,
)
from barnabas.groups.rebalance import (
    ensure_rebalance,
    expire_join_timer,
    join_response,
    remove_member,
    remove_pending_member,
    send_assignments,
    start_rebalance,
    sync_response,
    try_complete_join,
)
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""Session timeout of a member until its first join response.

Such a member cannot send heartbeats, and a lost connection is not noticed while its join waits.
"""


class JoinEvent(NamedTuple):
    """A JoinGroup request of any version. `new_member_id` is used if the member has no id."""

    member_id: str
    instance_id: str | None
    new_member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[AssignmentProtocol, ...]
    requires_member_id: bool = False
    """A new member gets its id first and joins with it (KIP-394), so that a lost response does not add it twice."""
    supports_skip_assignment: bool = False
    """The client understands `skip_assignment` in the response."""
    reason: str = NO_REASON


class SyncEvent(NamedTuple):
    """A SyncGroup request of any version. Only the group leader sends `assignments`, by member id."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


# ---- joining


def handle_join(transition: GroupTransition, event: JoinEvent, ticket: Ticket) -> None:
    group = transition.group
    if not fits_max_size(transition, event.member_id):
        group.remove(event.member_id)
        transition.cancel_timer(session_timer(event.member_id))
        transition.reject_join(ticket, ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif group.state is GroupState.DEAD:
        transition.reject_join(ticket, ErrorCode.COORDINATOR_NOT_AVAILABLE, event.member_id)
    elif not group.supports(event.protocol_type, event.protocols):
        transition.reject_join(ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, event.member_id)
    elif not event.member_id:
        join_new_member(transition, event, ticket)
    elif event.member_id in group.pending_members:
        if event.instance_id is None:
            add_member(transition, event, event.member_id, ticket)
        else:  # MEMBER_ID_REQUIRED is never sent to static members
            transition.reject_join(ticket, ErrorCode.UNKNOWN_SERVER_ERROR)
    else:
        code = group.member_error(event.member_id, event.instance_id)
        if code is ErrorCode.NONE:
            rejoin(transition, group.members[event.member_id], event, ticket)
        else:
            transition.reject_join(ticket, code, event.member_id)
    try_complete_join(transition)


def fits_max_size(transition: GroupTransition, member_id: str) -> bool:
    """Return whether the group stays within group.max.size if this member joins.

    During a rebalance only members that have joined count. So if the limit was lowered, the last to join are rejected.
    """
    group, members_max = transition.group, transition.config.group_max_size
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        return (member is not None and member.join is not None) or group.joined_count < members_max
    return member is not None or len(group.members) < members_max


def join_new_member(transition: GroupTransition, event: JoinEvent, ticket: Ticket) -> None:
    group = transition.group
    if event.instance_id is not None and event.instance_id in group.static_members:
        replace_static_member(transition, event, event.instance_id, ticket)
    elif event.requires_member_id:
        group.pending_members[event.new_member_id] = None
        transition.set_timer(session_timer(event.new_member_id), event.session_timeout_ms)
        transition.reject_join(ticket, ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id)
    else:
        add_member(transition, event, event.new_member_id, ticket)


def add_member(
    transition: GroupTransition, event: JoinEvent, member_id: str, ticket: Ticket
) -> None:
    group = transition.group
    if not group.members:
        group.protocol_type = event.protocol_type
    if group.state is GroupState.PREPARING_REBALANCE and group.generation == 0:
        group.has_new_members = True
    group.add(
        GroupMember(
            member_id=member_id,
            instance_id=event.instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            session_timeout_ms=event.session_timeout_ms,
            protocols=event.protocols,
            is_new=True,
            join=ticket,
        )
    )
    transition.set_timer(session_timer(member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    ensure_rebalance(transition, f"member {member_id} joins: {event.reason}")


def rejoin(
    transition: GroupTransition, member: GroupMember, event: JoinEvent, ticket: Ticket
) -> None:
    """Answer an unchanged member with the current generation, or start a rebalance.

    A member with the same protocols only missed a response. The leader of a stable group may also rejoin to request a
    rebalance, for example because of new partitions.
    """
    group = transition.group
    is_unchanged = member.protocols == event.protocols
    is_leader = group.leader == member.member_id
    if (group.state is GroupState.COMPLETING_REBALANCE and is_unchanged) or (
        group.state is GroupState.STABLE and is_unchanged and not is_leader
    ):
        transition.answer(ticket, join_response(group, member))
    else:
        update_member(transition, member, event, ticket)
        ensure_rebalance(transition, f"member {member.member_id} rejoins: {event.reason}")


def update_member(
    transition: GroupTransition, member: GroupMember, event: JoinEvent, ticket: Ticket
) -> None:
    """Update the member. Its join, `ticket`, waits for the end of the rebalance.

    A previous join of the member that still waits is rejected: its connection is most likely lost.
    """
    group = transition.group
    group.update_member(
        member,
        event.protocols,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        session_timeout_ms=event.session_timeout_ms,
    )
    code = ErrorCode.REBALANCE_IN_PROGRESS
    transition.reject_join(group.pop_join(member), code, member.member_id)
    group.set_join(member, ticket)


def replace_static_member(
    transition: GroupTransition, event: JoinEvent, instance_id: str, ticket: Ticket
) -> None:
    """Let a static member rejoin under a new member id, and fence the previous id.

    In a stable group it keeps its assignment, and no rebalance starts unless the chosen protocol changes.
    """
    group = transition.group
    previous_leader = group.leader
    member = group.members[group.static_members[instance_id]]
    previous = copy(member)
    transition.reject_join(group.pop_join(member), ErrorCode.FENCED_INSTANCE_ID, previous.member_id)
    transition.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
    transition.cancel_timer(session_timer(previous.member_id))
    group.rename_static(instance_id, event.new_member_id)
    update_member(transition, member, event, ticket)
    transition.restart_session(member)
    reason = f"static member {instance_id} rejoins: {event.reason}"
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may have received the previous id and would assign partitions to it.
        start_rebalance(transition, reason)
    elif group.state is GroupState.STABLE:
        if group.choose_protocol() != group.protocol:
            start_rebalance(transition, reason)
            return
        purpose = StaticRejoinPurpose(
            generation=group.generation,
            instance_id=instance_id,
            member_id=event.new_member_id,
            previous_leader=previous_leader,
            supports_skip_assignment=event.supports_skip_assignment,
            previous=previous,
        )
        transition.effects.append(StoreGroup(group.snapshot(), purpose))


# ---- syncing


def handle_sync(transition: GroupTransition, event: SyncEvent, ticket: Ticket) -> None:
    group = transition.group
    code = group.generation_error(event.member_id, event.instance_id, event.generation)
    if code is ErrorCode.NONE:
        types, protocols = (None, group.protocol_type), (None, group.protocol)
        if event.protocol_type not in types or event.protocol not in protocols:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif group.state is GroupState.PREPARING_REBALANCE:
            code = ErrorCode.REBALANCE_IN_PROGRESS
    if code is not ErrorCode.NONE:
        transition.answer(ticket, SyncGroupResponse(error_code=code))
        return
    member = group.members[event.member_id]
    if group.state is GroupState.STABLE:
        mark_synced(transition, member)
        transition.answer(ticket, sync_response(group, member))
        transition.restart_session(member)
    else:
        wait_for_assignment(transition, member, event, ticket)


def wait_for_assignment(
    transition: GroupTransition, member: GroupMember, event: SyncEvent, ticket: Ticket
) -> None:
    group = transition.group
    transition.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync = ticket
    mark_synced(transition, member)
    # A generation has one assignment. Another one from the leader is ignored while the first is being stored.
    if group.leader == member.member_id and not group.is_storing:
        group.is_storing = True
        assignments = {each: event.assignments.get(each, b"") for each in group.members}
        transition.effects.append(
            StoreGroup(
                group.snapshot(assignments), AssignmentPurpose(group.generation, assignments)
            )
        )


def mark_synced(transition: GroupTransition, member: GroupMember) -> None:
    """Remove the member from `unsynced`. If it was the last one, cancel the sync timer."""
    unsynced = transition.group.unsynced
    if member.member_id in unsynced:
        del unsynced[member.member_id]
        if not unsynced:
            transition.cancel_timer(SYNC_TIMER)


# ---- heartbeats and leaving


def handle_heartbeat(
    transition: GroupTransition, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    group = transition.group
    code = group.generation_error(member_id, instance_id, generation)
    if code is not ErrorCode.NONE:
        return code
    transition.restart_session(group.members[member_id])
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def handle_leave(transition: GroupTransition, members: Iterable[MemberIdentity]) -> list[ErrorCode]:
    return [remove_leaving_member(transition, *each) for each in members]


def remove_leaving_member(
    transition: GroupTransition, member_id: str, instance_id: str | None, reason: str | None
) -> ErrorCode:
    """Remove a member by its id. Admin clients send only its instance id. The group must not be Dead."""
    group = transition.group
    if not member_id:
        member_id = group.static_members.get(instance_id or "", "")
        if not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id in group.pending_members:
        remove_pending_member(transition, member_id)
        return ErrorCode.NONE
    else:
        code = group.member_error(member_id, instance_id)
        if code is not ErrorCode.NONE:
            return code
    reason = f"member {member_id} left: {reason or NO_REASON}"
    remove_member(transition, group.members[member_id], reason)
    return ErrorCode.NONE


# ---- timers


def expire_timer(transition: GroupTransition, timer: Timer) -> None:
    group = transition.group
    if timer.kind is TimerKind.JOIN:
        if group.state is GroupState.PREPARING_REBALANCE:
            expire_join_timer(transition)
    elif timer.kind is TimerKind.SYNC:
        remove_unsynced_members(transition)
    elif timer.member_id in group.pending_members:
        remove_pending_member(transition, timer.member_id)
    elif timer.member_id in group.members:
        expire_session(transition, group.members[timer.member_id])


def expire_session(transition: GroupTransition, member: GroupMember) -> None:
    """Remove the member, unless it waits for a response, which restarts its session. A new member is always removed."""
    if member.is_new or (member.join is None and member.sync is None):
        timeout_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        why = f"its session expired after {timeout_ms} ms"
        transition.changes.append(removal(member, why))
        reason = f"session of member {member.member_id} expired after {timeout_ms} ms"
        remove_member(transition, member, reason)


def remove_unsynced_members(transition: GroupTransition) -> None:
    group = transition.group
    unsynced = list(group.unsynced)
    if not unsynced or group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return
    for member_id in unsynced:
        member = group.members[member_id]
        transition.reject_join(group.pop_join(member), ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member_id)
        transition.cancel_timer(session_timer(member_id))
        why = "it did not send SyncGroup within the rebalance timeout"
        transition.changes.append(removal(member, why))
    start_rebalance(transition, f"members did not send SyncGroup in time: {', '.join(unsynced)}")


# ---- stored groups


def finish_store(transition: GroupTransition, effect: StoreGroup, code: ErrorCode) -> None:
    """Continue after a StoreGroup effect. `code` is NONE if it was stored. The group may have changed meanwhile."""
    purpose = effect.purpose
    if isinstance(purpose, AssignmentPurpose):
        finish_assignment(transition, purpose, code)
    elif isinstance(purpose, StaticRejoinPurpose):
        finish_static_rejoin(transition, purpose, code)


def finish_assignment(
    transition: GroupTransition, purpose: AssignmentPurpose, code: ErrorCode
) -> None:
    group = transition.group
    if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != purpose.generation:
        return
    group.is_storing = False
    if code is ErrorCode.NONE:
        send_assignments(transition, purpose.assignments)
        transition.move_to(GroupState.STABLE)
        transition.changes.append(GroupChange("rebalanced", group.rebalance_reason))
    else:
        send_assignments(transition, {}, code)
        start_rebalance(transition, f"cannot store the assignment: {code.name}")


def finish_static_rejoin(
    transition: GroupTransition, purpose: StaticRejoinPurpose, code: ErrorCode
) -> None:
    """Answer the join of a static member, unless a rebalance has started: then the end of the rebalance answers it."""
    group = transition.group
    member = group.members.get(purpose.member_id)
    if (
        member is None
        or member.join is None
        or group.state is not GroupState.STABLE
        or group.generation != purpose.generation
    ):
        return
    ticket = group.pop_join(member)
    if code is not ErrorCode.NONE:
        revert_static_member(transition, member, purpose)
        response = JoinGroupResponse(
            error_code=code,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=purpose.previous_leader or "",
        )
    elif purpose.supports_skip_assignment:
        response = join_response(group, member, skip_assignment=group.leader == member.member_id)
    else:
        # An older client that is named as leader would send an assignment, which a stable group does not accept.
        # So the response names the previous leader, and the client acts as an ordinary member.
        response = join_response(group, member, leader=purpose.previous_leader)
    transition.answer(ticket, response)
    transition.restart_session(member)


def revert_static_member(
    transition: GroupTransition, member: GroupMember, purpose: StaticRejoinPurpose
) -> None:
    previous = purpose.previous
    transition.cancel_timer(session_timer(member.member_id))
    transition.group.rename_static(purpose.instance_id, previous.member_id)
    transition.group.update_member(
        member,
        previous.protocols,
        rebalance_timeout_ms=previous.rebalance_timeout_ms,
        session_timeout_ms=previous.session_timeout_ms,
    )


# ---- loading and unloading


def start_sessions(transition: GroupTransition) -> None:
    """Start the sessions of a group that was loaded from the log. Rebalance if it exceeds group.max.size."""
    group = transition.group
    members_max = transition.config.group_max_size
    if len(group.members) > members_max:
        start_rebalance(transition, f"more than {members_max} members")
    for member in group.members.values():
        transition.restart_session(member)


def end_group(transition: GroupTransition, code: ErrorCode) -> None:
    """Move the group to Dead and answer all waiting requests with `code`. The coordinator cancels its timers."""
    group = transition.group
    transition.move_to(GroupState.DEAD)
    for member in group.members.values():
        transition.reject_join(group.pop_join(member), code, member.member_id)
        transition.answer_sync(member, SyncGroupResponse(error_code=code))
