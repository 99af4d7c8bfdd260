"""One thing has happened to one group: what is to be done about it.

A Turn is given to an event (group_events.py), which changes the group and notes effects in the order in which they are
to be carried out. The coordinator carries them out; nothing here waits, sends or looks at a clock.

    AnswerJoin, AnswerSync    a request that waited is answered
    SetTimer, CancelTimer     one timer per member, one for joining, one for syncing; setting replaces what was set
    StoreGroup                to be appended to __consumer_offsets; what came of it is the event `stored`
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from msgspec import Struct, field

from barnabas.errors import ErrorCode
from barnabas.groups.group import VALID_PREVIOUS_STATES, Group, GroupState, Member, Protocol, Ticket
from barnabas.groups.records import GroupSnapshot
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.sync_group import SyncGroupResponse


class TimerKind(Enum):
    SESSION = auto()
    """Of a member that must be heard of again, or of an id that must join."""
    JOIN = auto()
    """Of a group in PreparingRebalance."""
    SYNC = auto()
    """Of a generation whose members have not all asked for their assignment."""


class Timer(NamedTuple):
    kind: TimerKind
    member_id: str = ""


JOIN_TIMER = Timer(TimerKind.JOIN)
SYNC_TIMER = Timer(TimerKind.SYNC)


class Assigned(NamedTuple):
    """The leader's assignment; members are given it when it is written down."""

    generation: int
    assignments: Mapping[str, bytes]


class Returned(NamedTuple):
    """A static member came back to a stable group; it is answered when its new id is written down."""

    generation: int
    instance_id: str
    member_id: str
    leader_before: str | None
    may_skip_assignment: bool
    former: Former


class Former(NamedTuple):
    """What the static member was before, should its new id not be written down."""

    member_id: str
    protocols: tuple[Protocol, ...]
    rebalance_timeout_ms: int
    session_timeout_ms: int


class Emptied(NamedTuple):
    """The last member has gone. If that is not written down, an older generation comes back with the next coordinator,
    and times out."""


class StoreGroup(NamedTuple):
    snapshot: GroupSnapshot
    purpose: Assigned | Returned | Emptied


class AnswerJoin(NamedTuple):
    ticket: Ticket
    response: JoinGroupResponse


class AnswerSync(NamedTuple):
    ticket: Ticket
    response: SyncGroupResponse


class SetTimer(NamedTuple):
    timer: Timer
    delay_ms: int


class CancelTimer(NamedTuple):
    timer: Timer


Effect = AnswerJoin | AnswerSync | SetTimer | CancelTimer | StoreGroup


class GroupLimits(Struct, frozen=True, kw_only=True):
    """The broker's settings for all its groups."""

    session_timeout_ms_min: int
    session_timeout_ms_max: int
    members_max: int
    initial_rebalance_delay_ms: int


class Turn(Struct, eq=False):
    """The group it is about, the time it happened, and what is to be done."""

    group: Group
    limits: GroupLimits
    now_ms: int
    effects: list[Effect] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What an operator is told, in words for the log."""

    def move_to(self, state: GroupState) -> None:
        group = self.group
        assert group.state in VALID_PREVIOUS_STATES[state], f"{group.state} to {state}"
        group.state = state
        group.state_since_ms = self.now_ms

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        self.effects.append(SetTimer(timer, delay_ms))

    def cancel_timer(self, timer: Timer) -> None:
        self.effects.append(CancelTimer(timer))

    def restart_session(self, member: Member) -> None:
        self.set_timer(session_of(member.member_id), member.session_timeout_ms)

    # ---- answers

    def answer_join(self, ticket: Ticket | None, response: JoinGroupResponse) -> None:
        """To nobody, if nobody waits."""
        if ticket is not None:
            self.effects.append(AnswerJoin(ticket, response))

    def refuse_join(self, ticket: Ticket | None, code: ErrorCode, member_id: str = "") -> None:
        self.answer_join(ticket, refused_join(code, member_id))

    def answer_sync(self, member: Member, response: SyncGroupResponse) -> bool:
        """Whether it waited for one."""
        ticket, member.sync = member.sync, None
        if ticket is not None:
            self.effects.append(AnswerSync(ticket, response))
        return ticket is not None

    def refuse_sync(self, ticket: Ticket | None, code: ErrorCode) -> None:
        if ticket is not None:
            self.effects.append(AnswerSync(ticket, SyncGroupResponse(error_code=code)))


def session_of(member_id: str) -> Timer:
    return Timer(TimerKind.SESSION, member_id)


def refused_join(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)
