"""GroupTransition: one event of a group, and its effects.

The coordinator passes a GroupTransition to an event function (group_events.py). The function changes the group and adds
effects in the order in which the coordinator must execute them. Nothing here waits, sends or reads a clock.

    Answer                   answer a waiting JoinGroup or SyncGroup request
    SetTimer, CancelTimer    a session timer per member, a join timer, a sync timer; SetTimer restarts a running timer
    StoreGroup               append to __consumer_offsets; the coordinator then calls `group_events.finish_store`
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from msgspec import Struct, field

from barnabas.config import BrokerConfig
from barnabas.errors import ErrorCode
from barnabas.groups.group import VALID_PREVIOUS_STATES, Group, GroupMember, GroupState, Ticket
from barnabas.groups.group_changes import GroupChange
from barnabas.groups.records import GroupMetadataValue
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.sync_group import SyncGroupResponse


class TimerKind(Enum):
    SESSION = auto()
    """Per member: maximum time until its next heartbeat. For a pending member id: maximum time until it joins."""
    JOIN = auto()
    """Maximum time until all members have joined, in PreparingRebalance."""
    SYNC = auto()
    """Maximum time until all members of a generation have sent SyncGroup."""
    REBALANCE = auto()
    """Per member of the new consumer protocol: maximum time until it has released its revoked partitions."""


class Timer(NamedTuple):
    """Identifies a timer within its group.

    In groups of the classic protocol, `member_id` is set for session timers only. In those of the new protocol, it is
    always set.
    """

    kind: TimerKind
    member_id: str = ""


JOIN_TIMER = Timer(TimerKind.JOIN)
SYNC_TIMER = Timer(TimerKind.SYNC)


class AssignmentPurpose(NamedTuple):
    """Store the assignments that the group leader sent, by member id. Then send each member its assignment."""

    generation: int
    assignments: Mapping[str, bytes]


class StaticRejoinPurpose(NamedTuple):
    """Store the new member id of a static member that rejoined a stable group. Then answer its join.

    `previous` is a copy of the member before it rejoined. It is restored if the new member id cannot be stored.
    """

    generation: int
    instance_id: str
    member_id: str
    previous_leader: str | None
    supports_skip_assignment: bool
    previous: GroupMember


class StoreGroup(NamedTuple):
    """Store the snapshot. `purpose` determines what follows. It is None if the last member left.

    In that case a failure is ignored. The next coordinator would then load the previous generation, whose members time
    out.
    """

    snapshot: GroupMetadataValue
    purpose: AssignmentPurpose | StaticRejoinPurpose | None


class Answer(NamedTuple):
    ticket: Ticket
    response: JoinGroupResponse | SyncGroupResponse


class SetTimer(NamedTuple):
    timer: Timer
    delay_ms: int


class CancelTimer(NamedTuple):
    timer: Timer


Effect = Answer | SetTimer | CancelTimer | StoreGroup


class GroupTransition(Struct, eq=False):
    """One event of `group` at `now_ms`, and its effects."""

    group: Group
    config: BrokerConfig
    now_ms: int
    effects: list[Effect] = field(default_factory=list)
    log_events: list[tuple[str, str]] = field(default_factory=list)
    """Event and key=value facts of each log line. The coordinator adds the group and the generation."""
    changes: list[GroupChange] = field(default_factory=list)
    """For the history."""

    def move_to(self, state: GroupState) -> None:
        group = self.group
        assert group.state in VALID_PREVIOUS_STATES[state], f"{group.state} to {state}"
        group.state = state
        group.state_since_ms = self.now_ms

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        self.effects.append(SetTimer(timer, delay_ms))

    def cancel_timer(self, timer: Timer) -> None:
        self.effects.append(CancelTimer(timer))

    def restart_session(self, member: GroupMember) -> None:
        self.set_timer(session_timer(member.member_id), member.session_timeout_ms)

    # ---- answers

    def answer(
        self, ticket: Ticket | None, response: JoinGroupResponse | SyncGroupResponse
    ) -> None:
        """Answer the request. Does nothing if `ticket` is None."""
        if ticket is not None:
            self.effects.append(Answer(ticket, response))

    def reject_join(self, ticket: Ticket | None, code: ErrorCode, member_id: str = "") -> None:
        self.answer(ticket, join_error_response(code, member_id))

    def answer_sync(self, member: GroupMember, response: SyncGroupResponse) -> bool:
        """Answer the waiting SyncGroup of the member. Return whether there was one."""
        ticket, member.sync = member.sync, None
        self.answer(ticket, response)
        return ticket is not None


def session_timer(member_id: str) -> Timer:
    return Timer(TimerKind.SESSION, member_id)


def join_error_response(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)
