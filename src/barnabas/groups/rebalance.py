"""How a group comes to its next generation.

    prepare        whoever waits for an assignment is told to join again; the time to join begins
    try_complete   all are there: complete
    complete       those who did not come are out; a leader, a protocol, a new generation; everybody is told
    distribute     everybody is given what the leader decided, or is told why not

The first rebalance of an empty group waits `group.initial.rebalance.delay.ms`, and again as long as others come,
but never longer than its members are willing to wait: ten consumers that start together join one generation, not ten.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.errors import ErrorCode
from barnabas.groups.group import Group, GroupState, InitialDelay, Member, Ticket
from barnabas.groups.group_turn import (
    JOIN_TIMER,
    SYNC_TIMER,
    Emptied,
    StoreGroup,
    Turn,
    session_of,
)
from barnabas.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.wire.messages.sync_group import SyncGroupResponse


def prepare(turn: Turn, reason: str) -> None:
    """The members are to join again. To be called in Empty, Stable or CompletingRebalance."""
    group = turn.group
    if group.state is GroupState.COMPLETING_REBALANCE:
        distribute(turn, {}, ErrorCode.REBALANCE_IN_PROGRESS)
    stop_waiting_for_syncs(turn)
    group.is_storing = False
    was_empty = group.state is GroupState.EMPTY
    turn.notes.append(f"rebalances: {reason}")
    turn.move_to(GroupState.PREPARING_REBALANCE)
    if was_empty:
        delay_ms = turn.limits.initial_rebalance_delay_ms
        group.initial_delay = InitialDelay(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        turn.set_timer(JOIN_TIMER, delay_ms)
    else:
        turn.set_timer(JOIN_TIMER, group.rebalance_timeout_ms)
        try_complete(turn)


def prepare_if_possible(turn: Turn, reason: str) -> None:
    if turn.group.state is not GroupState.PREPARING_REBALANCE:
        prepare(turn, reason)


def try_complete(turn: Turn) -> None:
    group = turn.group
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.initial_delay is None
        and group.have_all_joined
    ):
        complete(turn)


def time_to_join_is_over(turn: Turn) -> None:
    group = turn.group
    delay = group.initial_delay
    if delay is not None and delay.remaining_ms and group.has_newcomers:
        group.has_newcomers = False
        next_ms = min(turn.limits.initial_rebalance_delay_ms, delay.remaining_ms)
        group.initial_delay = InitialDelay(next_ms, max(delay.remaining_ms - delay.delay_ms, 0))
        turn.set_timer(JOIN_TIMER, next_ms)
    else:
        complete(turn)


def complete(turn: Turn) -> None:
    """Static members that did not come stay for as long as their session lasts; others are out."""
    group = turn.group
    group.initial_delay = None
    group.has_newcomers = False
    for member in list(group.members.values()):
        if member.join is None and member.instance_id is None:
            group.remove(member.member_id)
            turn.cancel_timer(session_of(member.member_id))
    if group.members and not elect_leader(group):
        # Nobody has come, and sessions will end: until then there is nobody who could be told of a generation.
        turn.set_timer(JOIN_TIMER, group.rebalance_timeout_ms)
        return
    turn.cancel_timer(JOIN_TIMER)
    group.generation += 1
    group.unsynced.clear()
    if not group.members:
        group.protocol = None
        group.topics = group.read_topics()
        turn.move_to(GroupState.EMPTY)
        turn.effects.append(StoreGroup(group.snapshot(), Emptied()))
        turn.notes.append("is empty")
        return
    group.protocol = group.choose_protocol()
    group.topics = group.read_topics()
    turn.move_to(GroupState.COMPLETING_REBALANCE)
    for member in group.members.values():
        turn.answer_join(group.take_join(member), joined(group, member))
        turn.restart_session(member)
        member.is_new = False
        group.unsynced[member.member_id] = None
    turn.set_timer(SYNC_TIMER, group.rebalance_timeout_ms)
    turn.notes.append(f"has {len(group.members)} members, led by {group.leader}")


def elect_leader(group: Group) -> bool:
    """The leader stays, if it has come; else the first that has. False: nobody has."""
    if group.leader is not None and group.members[group.leader].join is not None:
        return True
    for member in group.members.values():
        if member.join is not None:
            group.leader = member.member_id
            return True
    return False


def joined(
    group: Group, member: Member, *, leader: str | None = None, skips_assignment: bool = False
) -> JoinGroupResponse:
    """The current generation, as this member is told of it: the leader hears of everybody."""
    assert group.protocol is not None
    leader = group.leader if leader is None else leader
    everybody = tuple(
        JoinGroupResponseMember(each.member_id, each.instance_id, each.metadata(group.protocol))
        for each in (group.members.values() if leader == member.member_id else ())
    )
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=leader or "",
        skip_assignment=skips_assignment,
        member_id=member.member_id,
        members=everybody,
    )


def distribute(
    turn: Turn, assignments: Mapping[str, bytes], code: ErrorCode = ErrorCode.NONE
) -> None:
    """Those who wait are answered, and must be heard of again from now on: while they waited, nobody minded."""
    group = turn.group
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        response = (
            synced(group, member) if code is ErrorCode.NONE else SyncGroupResponse(error_code=code)
        )
        if turn.answer_sync(member, response):
            turn.restart_session(member)


def synced(group: Group, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def stop_waiting_for_syncs(turn: Turn) -> None:
    turn.group.unsynced.clear()
    turn.cancel_timer(SYNC_TIMER)


def wait_for_join(turn: Turn, member: Member, ticket: Ticket) -> None:
    """A member asks again when it has lost its connection: the older request is most likely heard by nobody."""
    turn.refuse_join(
        turn.group.take_join(member), ErrorCode.REBALANCE_IN_PROGRESS, member.member_id
    )
    turn.group.wait_for_join(member, ticket)


def remove(turn: Turn, member: Member, reason: str) -> None:
    """It has left, or was not heard of for too long."""
    group = turn.group
    turn.refuse_join(group.take_join(member), ErrorCode.UNKNOWN_MEMBER_ID)
    turn.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)
    turn.cancel_timer(session_of(member.member_id))
    go_on_without(turn, reason)


def remove_pending(turn: Turn, member_id: str) -> None:
    turn.group.remove(member_id)
    turn.cancel_timer(session_of(member_id))
    try_complete(turn)


def go_on_without(turn: Turn, reason: str) -> None:
    if turn.group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare(turn, reason)
    else:
        try_complete(turn)
