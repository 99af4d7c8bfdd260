"""A group that is played through without a coordinator: what it decides is kept, and done when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from barnabas.errors import ErrorCode
from barnabas.groups import group_events
from barnabas.groups.group import AssignmentProtocol, Group, GroupState, Ticket
from barnabas.groups.group_events import JoinEvent, SyncEvent
from barnabas.groups.group_transition import (
    JOIN_TIMER,
    AnswerJoin,
    AnswerSync,
    CancelTimer,
    GroupLimits,
    GroupTransition,
    SetTimer,
    StoreGroup,
    Timer,
    session_timer,
)
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.sync_group import SyncGroupResponse

R = TypeVar("R")

LIMITS = GroupLimits(
    session_timeout_ms_min=6000,
    session_timeout_ms_max=1_800_000,
    members_max=100,
    initial_rebalance_delay_ms=3000,
)
TWO_AT_MOST = GroupLimits(
    session_timeout_ms_min=0,
    session_timeout_ms_max=100_000,
    members_max=2,
    initial_rebalance_delay_ms=0,
)
RANGE = (AssignmentProtocol("range", b"topics"),)
STICKY_AND_RANGE = (AssignmentProtocol("sticky", b"s"), AssignmentProtocol("range", b"r"))
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class PlayedGroup:
    """Every answer, by ticket; the timers that run; what is to be stored. A ticket answered twice is an error."""

    def __init__(self, limits: GroupLimits = LIMITS, group: Group | None = None) -> None:
        self.group = group or Group(group_id="readers")
        self.limits = limits
        self.now_ms = 1000
        self.joins: dict[Ticket, JoinGroupResponse] = {}
        self.syncs: dict[Ticket, SyncGroupResponse] = {}
        self.asked: set[Ticket] = set()
        self.timers: dict[Timer, int] = {}
        self.stores: list[StoreGroup] = []

    # ---- what happens

    def join(
        self,
        member_id: str = "",
        *,
        new: str = "",
        instance: str | None = None,
        protocols: tuple[AssignmentProtocol, ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        requires_member_id: bool = False,
        may_skip: bool = False,
    ) -> Ticket:
        """`new` is the id that a member without one is given."""
        wish = JoinEvent(
            member_id=member_id,
            instance_id=instance,
            new_member_id=new or f"id-{len(self.asked)}",
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            requires_member_id=requires_member_id,
            supports_skip_assignment=may_skip,
        )
        ticket = self.ticket()
        self.turn(lambda turn: group_events.handle_join(turn, wish, ticket))
        return ticket

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        generation: int | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Ticket:
        wish = SyncEvent(
            member_id=member_id,
            instance_id=instance,
            generation=self.group.generation if generation is None else generation,
            protocol_type=protocol_type,
            protocol=protocol,
            assignments=assignments or {},
        )
        ticket = self.ticket()
        self.turn(lambda turn: group_events.handle_sync(turn, wish, ticket))
        return ticket

    def heartbeat(
        self, member_id: str, *, instance: str | None = None, generation: int | None = None
    ) -> ErrorCode:
        of = self.group.generation if generation is None else generation
        return self.turn(lambda turn: group_events.handle_heartbeat(turn, member_id, instance, of))

    def leave(self, member_id: str = "", *, instance: str | None = None) -> ErrorCode:
        return self.turn(lambda turn: group_events.handle_leave(turn, member_id, instance))

    def end(self, timer: Timer) -> None:
        """Its time is over."""
        self.now_ms += self.timers.pop(timer)
        self.turn(lambda turn: group_events.expire_timer(turn, timer))

    def end_session(self, member_id: str) -> None:
        self.end(session_timer(member_id))

    def stored(self, code: ErrorCode = ErrorCode.NONE) -> StoreGroup:
        """The log has taken the oldest of what is to be stored, or has not."""
        store = self.stores.pop(0)
        self.turn(lambda turn: group_events.finish_store(turn, store, code))
        return store

    # ---- what comes of it

    def join_code(self, ticket: Ticket) -> ErrorCode:
        return ErrorCode(self.joins[ticket].error_code)

    def sync_code(self, ticket: Ticket) -> ErrorCode:
        return ErrorCode(self.syncs[ticket].error_code)

    def open(self) -> set[Ticket]:
        return self.asked - self.joins.keys() - self.syncs.keys()

    def ticket(self) -> Ticket:
        ticket = Ticket(len(self.asked))
        self.asked.add(ticket)
        return ticket

    def turn(self, event: Callable[[GroupTransition], R]) -> R:
        turn = GroupTransition(self.group, self.limits, self.now_ms)
        result = event(turn)
        for effect in turn.effects:
            if isinstance(effect, AnswerJoin):
                assert effect.ticket in self.open(), "answered twice"
                self.joins[effect.ticket] = effect.response
            elif isinstance(effect, AnswerSync):
                assert effect.ticket in self.open(), "answered twice"
                self.syncs[effect.ticket] = effect.response
            elif isinstance(effect, SetTimer):
                self.timers[effect.timer] = effect.delay_ms
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.timer, None)
            else:
                self.stores.append(effect)
        return result


def stable(*member_ids: str, limits: GroupLimits = LIMITS) -> PlayedGroup:
    """A group of these members in its first generation; the first leads. Those named `static-…` are static."""
    played = PlayedGroup(limits)
    for member_id in member_ids:
        instance = f"instance-{member_id}" if member_id.startswith("static-") else None
        played.join(new=member_id, instance=instance)
    while played.group.state is GroupState.PREPARING_REBALANCE:
        played.end(JOIN_TIMER)
    for member_id in reversed(member_ids):
        played.sync(member_id, {each: f"to {each}".encode() for each in member_ids})
    played.stored()
    assert played.group.state is GroupState.STABLE
    assert not played.open()
    return played
