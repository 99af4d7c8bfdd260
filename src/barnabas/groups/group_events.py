"""What can happen to a group: its members ask for something, a timer ends, the log has taken what was to be stored.

Every function takes a Turn, changes its group and leaves effects in it. Each ticket that comes in is answered exactly
once: at once, or by a later turn of the same group. The order of checks is Kafka's, since it decides which error a
client meets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.errors import ErrorCode
from barnabas.groups.group import GroupState, Member, Protocol, Ticket
from barnabas.groups.group_turn import (
    AnswerSync,
    Assigned,
    Emptied,
    Former,
    Returned,
    StoreGroup,
    Timer,
    TimerKind,
    Turn,
    session_of,
)
from barnabas.groups.rebalance import (
    distribute,
    joined,
    prepare,
    prepare_if_possible,
    remove,
    remove_pending,
    synced,
    time_to_join_is_over,
    try_complete,
    wait_for_join,
)
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.sync_group import SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""One that was never answered cannot send heartbeats, and that its connection is lost is not seen while it waits: it is
given so long, and asks again if it is still there."""

NO_REASON = "not provided"


class Join(NamedTuple):
    """A JoinGroup of any version. `new_member_id` is what a member without an id is given."""

    member_id: str
    instance_id: str | None
    new_member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    must_know_id: bool = False
    """A newcomer is given its id first, and joins with it: one whose answer is lost is then not counted twice."""
    may_skip_assignment: bool = False
    reason: str = NO_REASON


class Sync(NamedTuple):
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


# ---- joining


def join(turn: Turn, wish: Join, ticket: Ticket) -> None:
    group = turn.group
    if not has_room_for(turn, wish.member_id):
        group.remove(wish.member_id)
        turn.cancel_timer(session_of(wish.member_id))
        turn.refuse_join(ticket, ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif group.state is GroupState.DEAD:
        turn.refuse_join(ticket, ErrorCode.COORDINATOR_NOT_AVAILABLE, wish.member_id)
    elif not group.supports(wish.protocol_type, wish.protocols):
        turn.refuse_join(ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, wish.member_id)
    elif not wish.member_id:
        join_as_new(turn, wish, ticket)
    elif wish.member_id in group.pending:
        if wish.instance_id is None:
            add(turn, wish, wish.member_id, ticket)
        else:  # no client does: who has an instance was not told to come again with this id
            turn.refuse_join(ticket, ErrorCode.UNKNOWN_SERVER_ERROR)
    else:
        code = group.refusal_of_member(wish.member_id, wish.instance_id)
        if code is ErrorCode.NONE:
            join_again(turn, group.members[wish.member_id], wish, ticket)
        else:
            turn.refuse_join(ticket, code, wish.member_id)
    try_complete(turn)


def has_room_for(turn: Turn, member_id: str) -> bool:
    """During a rebalance those count who have come: if there are more members than allowed, by a setting that was
    lowered, the last to come are out."""
    group, most = turn.group, turn.limits.members_max
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        return (member is not None and member.join is not None) or group.joined < most
    return member is not None or len(group.members) < most


def join_as_new(turn: Turn, wish: Join, ticket: Ticket) -> None:
    group = turn.group
    if wish.instance_id is not None and wish.instance_id in group.static_members:
        come_back(turn, wish, wish.instance_id, ticket)
    elif wish.must_know_id:
        group.pending[wish.new_member_id] = None
        turn.set_timer(session_of(wish.new_member_id), wish.session_timeout_ms)
        turn.refuse_join(ticket, ErrorCode.MEMBER_ID_REQUIRED, wish.new_member_id)
    else:
        add(turn, wish, wish.new_member_id, ticket)


def add(turn: Turn, wish: Join, member_id: str, ticket: Ticket) -> None:
    group = turn.group
    if not group.members:
        group.protocol_type = wish.protocol_type
    if group.state is GroupState.PREPARING_REBALANCE and group.generation == 0:
        group.has_newcomers = True
    group.add(
        Member(
            member_id=member_id,
            instance_id=wish.instance_id,
            client_id=wish.client_id,
            client_host=wish.client_host,
            rebalance_timeout_ms=wish.rebalance_timeout_ms,
            session_timeout_ms=wish.session_timeout_ms,
            protocols=wish.protocols,
            is_new=True,
            join=ticket,
        )
    )
    turn.set_timer(session_of(member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    prepare_if_possible(turn, f"member {member_id} joins: {wish.reason}")


def join_again(turn: Turn, member: Member, wish: Join, ticket: Ticket) -> None:
    """A member that says nothing new, and is not the leader, only missed an answer. The leader alone may want a
    rebalance for what it sees elsewhere, such as new partitions."""
    group = turn.group
    knows_nothing_new = member.protocols == wish.protocols
    is_leader = group.leader == member.member_id
    if (group.state is GroupState.COMPLETING_REBALANCE and knows_nothing_new) or (
        group.state is GroupState.STABLE and knows_nothing_new and not is_leader
    ):
        turn.answer_join(ticket, joined(group, member))
    else:
        update(turn, member, wish, ticket)
        prepare_if_possible(turn, f"member {member.member_id} joins again: {wish.reason}")


def update(turn: Turn, member: Member, wish: Join, ticket: Ticket) -> None:
    turn.group.change(
        member,
        wish.protocols,
        rebalance_timeout_ms=wish.rebalance_timeout_ms,
        session_timeout_ms=wish.session_timeout_ms,
    )
    wait_for_join(turn, member, ticket)


def come_back(turn: Turn, wish: Join, instance_id: str, ticket: Ticket) -> None:
    """A static member in the place of its former self, which is fenced off. In a stable group it goes on with what it
    had, and nobody else notices."""
    group = turn.group
    leader_before = group.leader
    member = group.members[group.static_members[instance_id]]
    former = Former(
        member.member_id, member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
    )
    turn.refuse_join(group.take_join(member), ErrorCode.FENCED_INSTANCE_ID, former.member_id)
    turn.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
    turn.cancel_timer(session_of(former.member_id))
    group.rename_static(instance_id, wish.new_member_id)
    update(turn, member, wish, ticket)
    turn.restart_session(member)
    reason = f"static member {instance_id} came back: {wish.reason}"
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may have been told of the former id already, and would assign to it.
        prepare(turn, reason)
    elif group.state is GroupState.STABLE:
        if group.choose_protocol() != group.protocol:
            prepare(turn, reason)
            return
        returned = Returned(
            generation=group.generation,
            instance_id=instance_id,
            member_id=wish.new_member_id,
            leader_before=leader_before,
            may_skip_assignment=wish.may_skip_assignment,
            former=former,
        )
        turn.effects.append(StoreGroup(group.snapshot(), returned))


# ---- syncing


def sync(turn: Turn, wish: Sync, ticket: Ticket) -> None:
    group = turn.group
    code = group.refusal(wish.member_id, wish.instance_id, wish.generation)
    if code is not ErrorCode.NONE:
        turn.refuse_sync(ticket, code)
    elif wish.protocol_type not in (None, group.protocol_type) or wish.protocol not in (
        None,
        group.protocol,
    ):
        turn.refuse_sync(ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif group.state is GroupState.PREPARING_REBALANCE:
        turn.refuse_sync(ticket, ErrorCode.REBALANCE_IN_PROGRESS)
    elif group.state is GroupState.STABLE:
        member = group.members[wish.member_id]
        has_synced(turn, member)
        turn.effects.append(AnswerSync(ticket, synced(group, member)))
        turn.restart_session(member)
    else:
        wait_for_assignment(turn, group.members[wish.member_id], wish, ticket)


def wait_for_assignment(turn: Turn, member: Member, wish: Sync, ticket: Ticket) -> None:
    group = turn.group
    turn.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync = ticket
    has_synced(turn, member)
    # A leader that asks again waits for what it said first: a generation has one assignment.
    if group.leader == member.member_id and not group.is_storing:
        group.is_storing = True
        assignments = {each: wish.assignments.get(each, b"") for each in group.members}
        turn.effects.append(
            StoreGroup(group.snapshot(assignments), Assigned(group.generation, assignments))
        )


def has_synced(turn: Turn, member: Member) -> None:
    unsynced = turn.group.unsynced
    if unsynced.pop(member.member_id, ()) is None and not unsynced:
        turn.cancel_timer(Timer(TimerKind.SYNC))


# ---- staying and leaving


def heartbeat(turn: Turn, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    group = turn.group
    code = group.refusal(member_id, instance_id, generation)
    if code is not ErrorCode.NONE:
        return code
    turn.restart_session(group.members[member_id])
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(
    turn: Turn, member_id: str, instance_id: str | None, reason: str = NO_REASON
) -> ErrorCode:
    """By its id, or by its instance id alone: so an operator removes static members. Not to be called when Dead."""
    group = turn.group
    if not member_id:
        member_id = group.static_members.get(instance_id or "", "")
        if not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id in group.pending:
        remove_pending(turn, member_id)
        return ErrorCode.NONE
    else:
        code = group.refusal_of_member(member_id, instance_id)
        if code is not ErrorCode.NONE:
            return code
    remove(turn, group.members[member_id], f"member {member_id} left: {reason}")
    return ErrorCode.NONE


# ---- timers


def timer_ended(turn: Turn, timer: Timer) -> None:
    group = turn.group
    if timer.kind is TimerKind.JOIN:
        if group.state is GroupState.PREPARING_REBALANCE:
            time_to_join_is_over(turn)
    elif timer.kind is TimerKind.SYNC:
        syncs_are_overdue(turn)
    elif timer.member_id in group.pending:
        remove_pending(turn, timer.member_id)
    elif timer.member_id in group.members:
        session_ended(turn, group.members[timer.member_id])


def session_ended(turn: Turn, member: Member) -> None:
    """While it waits for us it need not be heard of; its session begins again with the answer."""
    if member.is_new or (member.join is None and member.sync is None):
        remove(
            turn,
            member,
            f"member {member.member_id} was not heard of for {member.session_timeout_ms} ms",
        )


def syncs_are_overdue(turn: Turn) -> None:
    group = turn.group
    absent = list(group.unsynced)
    if not absent or group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return
    for member_id in absent:
        member = group.members[member_id]
        turn.refuse_join(group.take_join(member), ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member_id)
        turn.cancel_timer(session_of(member_id))
    prepare(turn, f"members did not ask for their assignment in time: {', '.join(absent)}")


# ---- the log


def stored(turn: Turn, store: StoreGroup, code: ErrorCode) -> None:
    """What was to be stored is in the log and its replicas, or could not be written. The group may have moved on."""
    purpose = store.purpose
    if isinstance(purpose, Assigned):
        assigned(turn, purpose, code)
    elif isinstance(purpose, Returned):
        returned(turn, purpose, code)
    else:
        assert isinstance(purpose, Emptied)


def assigned(turn: Turn, purpose: Assigned, code: ErrorCode) -> None:
    group = turn.group
    if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != purpose.generation:
        return
    group.is_storing = False
    if code is ErrorCode.NONE:
        distribute(turn, purpose.assignments)
        turn.move_to(GroupState.STABLE)
    else:
        distribute(turn, {}, code)
        prepare(turn, f"the assignment could not be stored: {code.name}")


def returned(turn: Turn, purpose: Returned, code: ErrorCode) -> None:
    """If a rebalance began meanwhile, the static member waits for its end like everybody."""
    group = turn.group
    member = group.members.get(purpose.member_id)
    if (
        member is None
        or member.join is None
        or group.state is not GroupState.STABLE
        or group.generation != purpose.generation
    ):
        return
    ticket = group.take_join(member)
    if code is not ErrorCode.NONE:
        take_back(turn, member, purpose)
        answer = JoinGroupResponse(
            error_code=code,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=purpose.leader_before or "",
        )
    elif purpose.may_skip_assignment:
        answer = joined(group, member, skips_assignment=group.leader == member.member_id)
    else:
        # To an older client that finds itself named as leader it would mean to assign anew, which a stable group does
        # not take. The former id is not its own, so it does nothing.
        answer = joined(group, member, leader=purpose.leader_before)
    turn.answer_join(ticket, answer)
    turn.restart_session(member)


def take_back(turn: Turn, member: Member, purpose: Returned) -> None:
    former = purpose.former
    turn.cancel_timer(session_of(member.member_id))
    turn.group.rename_static(purpose.instance_id, former.member_id)
    turn.group.change(
        member,
        former.protocols,
        rebalance_timeout_ms=former.rebalance_timeout_ms,
        session_timeout_ms=former.session_timeout_ms,
    )


# ---- coming and going of the coordinator


def loaded(turn: Turn) -> None:
    """Its members have not been heard of by this broker: they have a whole session to speak."""
    group = turn.group
    if len(group.members) > turn.limits.members_max:
        prepare(turn, f"it has more than {turn.limits.members_max} members")
    for member in group.members.values():
        turn.restart_session(member)


def ended(turn: Turn, code: ErrorCode) -> None:
    """The group is deleted, or another broker coordinates it. Its timers end with it."""
    group = turn.group
    turn.move_to(GroupState.DEAD)
    for member in group.members.values():
        turn.refuse_join(group.take_join(member), code, member.member_id)
        turn.answer_sync(member, SyncGroupResponse(error_code=code))
