"""Group without a coordinator: records the effects of each event, and applies them when a test asks
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from barnabas.config import BrokerConfig
from barnabas.errors import ErrorCode
from barnabas.groups import group_events
from barnabas.groups.group import AssignmentProtocol, Group, GroupState, Ticket
from barnabas.groups.group_events import JoinEvent, SyncEvent
from barnabas.groups.group_transition import (
    JOIN_TIMER,
    Answer,
    CancelTimer,
    GroupTransition,
    SetTimer,
    StoreGroup,
    Timer,
    session_timer,
)
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupResponse

R = TypeVar("R")

CONFIG = BrokerConfig(group_max_size=100)
TWO_MEMBERS_MAX = BrokerConfig(group_max_size=2, group_initial_rebalance_delay_ms=0)
RANGE = (AssignmentProtocol("range", b"topics"),)
STICKY_AND_RANGE = (AssignmentProtocol("sticky", b"s"), AssignmentProtocol("range", b"r"))
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class SimulatedGroup:
    """Collects responses by ticket, running timers and pending stores. Answering a ticket twice is
    an error.
    """

    def __init__(self, config: BrokerConfig = CONFIG, group: Group | None = None) -> None:
        self.group = group or Group(group_id="readers")
        self.config = config
        self.now_ms = 1000
        self.joins: dict[Ticket, JoinGroupResponse] = {}
        self.syncs: dict[Ticket, SyncGroupResponse] = {}
        self.tickets: set[Ticket] = set()
        self.timers: dict[Timer, int] = {}
        self.stores: list[StoreGroup] = []
        self.log_events: list[tuple[str, str]] = []

    # ---- events

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
        """Send a JoinGroup. `new` is the id that a member without one gets."""
        request = JoinEvent(
            member_id=member_id,
            instance_id=instance,
            new_member_id=new or f"id-{len(self.tickets)}",
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            requires_member_id=requires_member_id,
            supports_skip_assignment=may_skip,
        )
        ticket = self.new_ticket()
        self.run(lambda turn: group_events.handle_join(turn, request, ticket))
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
        request = SyncEvent(
            member_id=member_id,
            instance_id=instance,
            generation=self.group.generation if generation is None else generation,
            protocol_type=protocol_type,
            protocol=protocol,
            assignments=assignments or {},
        )
        ticket = self.new_ticket()
        self.run(lambda turn: group_events.handle_sync(turn, request, ticket))
        return ticket

    def heartbeat(
        self, member_id: str, *, instance: str | None = None, generation: int | None = None
    ) -> ErrorCode:
        of = self.group.generation if generation is None else generation
        return self.run(lambda turn: group_events.handle_heartbeat(turn, member_id, instance, of))

    def leave(self, member_id: str = "", *, instance: str | None = None) -> ErrorCode:
        leaving = MemberIdentity(member_id, instance)
        (code,) = self.run(lambda turn: group_events.handle_leave(turn, [leaving]))
        return code

    def expire(self, timer: Timer) -> None:
        """Let a timer expire."""
        self.now_ms += self.timers.pop(timer)
        self.run(lambda turn: group_events.expire_timer(turn, timer))

    def expire_session(self, member_id: str) -> None:
        self.expire(session_timer(member_id))

    def finish_store(self, code: ErrorCode = ErrorCode.NONE) -> StoreGroup:
        """Complete the oldest pending store with this code."""
        store = self.stores.pop(0)
        self.run(lambda turn: group_events.finish_store(turn, store, code))
        return store

    # ---- effects

    def join_code(self, ticket: Ticket) -> ErrorCode:
        return ErrorCode(self.joins[ticket].error_code)

    def sync_code(self, ticket: Ticket) -> ErrorCode:
        return ErrorCode(self.syncs[ticket].error_code)

    def open_tickets(self) -> set[Ticket]:
        return self.tickets - self.joins.keys() - self.syncs.keys()

    def new_ticket(self) -> Ticket:
        ticket = Ticket(len(self.tickets))
        self.tickets.add(ticket)
        return ticket

    def run(self, event: Callable[[GroupTransition], R]) -> R:
        turn = GroupTransition(self.group, self.config, self.now_ms)
        result = event(turn)
        self.log_events += turn.log_events
        for effect in turn.effects:
            if isinstance(effect, Answer):
                assert effect.ticket in self.open_tickets(), "answered twice"
                if isinstance(effect.response, JoinGroupResponse):
                    self.joins[effect.ticket] = effect.response
                else:
                    self.syncs[effect.ticket] = effect.response
            elif isinstance(effect, SetTimer):
                self.timers[effect.timer] = effect.delay_ms
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.timer, None)
            else:
                self.stores.append(effect)
        return result


def stable_group(*member_ids: str, config: BrokerConfig = CONFIG) -> SimulatedGroup:
    """Group of these members in its first generation. The first member is the leader; ids with
    `static-…` are static members.
    """
    simulated = SimulatedGroup(config)
    for member_id in member_ids:
        instance = f"instance-{member_id}" if member_id.startswith("static-") else None
        simulated.join(new=member_id, instance=instance)
    while simulated.group.state is GroupState.PREPARING_REBALANCE:
        simulated.expire(JOIN_TIMER)
    for member_id in reversed(member_ids):
        simulated.sync(member_id, {each: f"to {each}".encode() for each in member_ids})
    simulated.finish_store()
    assert simulated.group.state is GroupState.STABLE
    assert not simulated.open_tickets()
    return simulated
