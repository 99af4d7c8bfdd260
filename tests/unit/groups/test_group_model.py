"""Model test of a group: invariants under any order of members, timers and log results."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.config import BrokerConfig
from barnabas.errors import ErrorCode
from barnabas.groups.group import AssignmentProtocol, Group, GroupState, Ticket
from barnabas.groups.group_events import end_group
from barnabas.groups.group_transition import (
    JOIN_TIMER,
    SYNC_TIMER,
    AssignmentPurpose,
    session_timer,
)
from tests.unit.groups.simulated_group import SimulatedGroup

PROTOCOLS = st.sampled_from(
    [
        (AssignmentProtocol("range", b"r"),),
        (AssignmentProtocol("range", b"other"),),
        (AssignmentProtocol("range", b"r"), AssignmentProtocol("sticky", b"s")),
        (AssignmentProtocol("sticky", b"s"), AssignmentProtocol("range", b"r")),
    ]
)
INSTANCES = st.sampled_from([None, None, "one", "two"])
MEMBER_INDEX = st.integers(0, 9)


class GroupModel(RuleBasedStateMachine):
    simulated: SimulatedGroup

    @initialize(
        delay_ms=st.sampled_from([0, 3000]),
        members_max=st.sampled_from([3, 100]),
        first=st.lists(INSTANCES, max_size=4),
    )
    def create(self, delay_ms: int, members_max: int, first: list[str | None]) -> None:
        self.simulated = SimulatedGroup(
            BrokerConfig(group_max_size=members_max, group_initial_rebalance_delay_ms=delay_ms)
        )
        self.ids = ["nobody"]
        self.generation = 0
        self.stored_assignments: dict[int, dict[str, bytes]] = {}
        """The stored assignment of each generation."""
        for instance in first:
            self.join_new(
                instance, (AssignmentProtocol("range", b"r"),), requires_member_id=False, skip=False
            )

    @property
    def group(self) -> Group:
        return self.simulated.group

    def pick_member(self, index: int) -> str:
        """Return a member id, sometimes that of a member that left long ago."""
        known = [*self.group.members, *self.group.pending_members]
        return known[index % len(known)] if known and index < 9 else self.ids[-1]

    def instance_of(self, member_id: str) -> str | None:
        member = self.group.members.get(member_id)
        return None if member is None else member.instance_id

    # ---- rules

    @rule(
        instance=INSTANCES,
        protocols=PROTOCOLS,
        requires_member_id=st.booleans(),
        skip=st.booleans(),
    )
    def new_member_joins(
        self,
        instance: str | None,
        protocols: tuple[AssignmentProtocol, ...],
        requires_member_id: bool,
        skip: bool,
    ) -> None:
        self.join_new(instance, protocols, requires_member_id=requires_member_id, skip=skip)

    def join_new(
        self,
        instance: str | None,
        protocols: tuple[AssignmentProtocol, ...],
        *,
        requires_member_id: bool,
        skip: bool,
    ) -> None:
        self.ids.append(f"m{len(self.ids)}")
        self.simulated.join(
            new=self.ids[-1],
            instance=instance,
            protocols=protocols,
            requires_member_id=requires_member_id and instance is None,
            may_skip=skip,
        )

    @rule(index=MEMBER_INDEX, protocols=PROTOCOLS)
    def rejoin(self, index: int, protocols: tuple[AssignmentProtocol, ...]) -> None:
        member_id = self.pick_member(index)
        instance = self.instance_of(member_id)
        self.simulated.join(member_id, instance=instance, protocols=protocols)

    @rule()
    def all_rejoin(self) -> None:
        for member in list(self.group.members.values()):
            if member.join is None and member.member_id in self.group.members:
                of = member.instance_id
                self.simulated.join(member.member_id, instance=of, protocols=member.protocols)

    @rule(index=MEMBER_INDEX, age=st.integers(0, 4))
    def sync(self, index: int, age: int) -> None:
        member_id = self.pick_member(index)
        generation = self.group.generation - (age == 4)
        self.simulated.sync(member_id, self.assignments(), generation=generation)

    @rule()
    def all_sync(self) -> None:
        for member_id in list(self.group.unsynced):
            self.simulated.sync(member_id, self.assignments())

    def assignments(self) -> dict[str, bytes]:
        """Return assignments that differ each time, so that a second one would be noticed."""
        return {
            each: f"{each} {len(self.simulated.tickets)}".encode() for each in self.group.members
        }

    @rule(index=MEMBER_INDEX)
    def heartbeat(self, index: int) -> None:
        member_id = self.pick_member(index)
        code = self.simulated.heartbeat(member_id, instance=self.instance_of(member_id))
        assert (code is ErrorCode.UNKNOWN_MEMBER_ID) == (member_id not in self.group.members)

    @rule(index=MEMBER_INDEX)
    def leave(self, index: int) -> None:
        member_id = self.pick_member(index)
        self.simulated.leave(member_id, instance=self.instance_of(member_id))
        assert member_id not in self.group.members

    @precondition(lambda self: JOIN_TIMER in self.simulated.timers)
    @rule()
    def join_timer_expires(self) -> None:
        self.simulated.expire(JOIN_TIMER)

    @precondition(lambda self: self.group.members)
    @rule()
    def all_members_cooperate(self) -> None:
        """Without interference the group becomes stable."""
        self.all_rejoin()
        while JOIN_TIMER in self.simulated.timers:
            self.simulated.expire(JOIN_TIMER)
        self.all_sync()
        while self.simulated.stores:
            self.complete_store(ErrorCode.NONE)
        assert self.group.state is GroupState.STABLE

    @precondition(lambda self: self.simulated.timers)
    @rule(which=MEMBER_INDEX)
    def any_timer_expires(self, which: int) -> None:
        timers = sorted(self.simulated.timers, key=str)
        self.simulated.expire(timers[which % len(timers)])

    @precondition(lambda self: self.simulated.stores)
    @rule(code=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]))
    def store_completes(self, code: ErrorCode) -> None:
        self.complete_store(code)

    def complete_store(self, code: ErrorCode) -> None:
        before = self.group.state
        store = self.simulated.finish_store(code)
        if before is GroupState.COMPLETING_REBALANCE and self.group.state is GroupState.STABLE:
            assert isinstance(store.purpose, AssignmentPurpose)
            assert code is ErrorCode.NONE
            assert self.group.generation not in self.stored_assignments, (
                "one assignment per generation"
            )
            self.stored_assignments[self.group.generation] = dict(store.purpose.assignments)

    # ---- invariants

    @invariant()
    def generation_never_decreases(self) -> None:
        assert self.group.generation >= self.generation
        self.generation = self.group.generation

    @invariant()
    def members_have_assignment_of_their_generation(self) -> None:
        if self.group.state is GroupState.STABLE:
            stored_assignments = set(self.stored_assignments[self.group.generation].values())
            assert {
                member.assignment for member in self.group.members.values()
            } <= stored_assignments

    @invariant()
    def waiting_requests_will_be_answered(self) -> None:
        """The join timer, the log or the session of another member answers them."""
        group, simulated = self.group, self.simulated
        joins = {each.join for each in group.members.values()} - {None}
        syncs = {each.sync for each in group.members.values()} - {None}
        waiting: set[Ticket | None] = {*simulated.open_tickets()}
        assert waiting == joins | syncs, "each ticket is either answered or waits in the group"
        if group.state is GroupState.PREPARING_REBALANCE:
            assert JOIN_TIMER in simulated.timers
            assert not syncs
        elif joins:
            assert group.state is GroupState.STABLE
            assert simulated.stores
        if syncs:
            assert group.state is GroupState.COMPLETING_REBALANCE
            assert simulated.stores or SYNC_TIMER in simulated.timers

    @invariant()
    def members_without_request_have_a_session(self) -> None:
        group = self.group
        for member in group.members.values():
            if (member.join is None and member.sync is None) or member.is_new:
                assert session_timer(member.member_id) in self.simulated.timers
        for member_id in group.pending_members:
            assert session_timer(member_id) in self.simulated.timers

    @invariant()
    def no_timer_leaks(self) -> None:
        group = self.group
        sessions = {session_timer(each) for each in (*group.members, *group.pending_members)}
        rest = self.simulated.timers.keys() - sessions
        if group.state is GroupState.PREPARING_REBALANCE:
            assert rest == {JOIN_TIMER}
        else:
            assert rest <= {SYNC_TIMER}
            assert (SYNC_TIMER in rest) == bool(group.unsynced)

    @invariant()
    def instance_ids_are_unique(self) -> None:
        members = self.group.members.values()
        static = [each.instance_id for each in members if each.instance_id is not None]
        assert len(static) == len(set(static))
        assert self.group.static_members == {
            each.instance_id: each.member_id for each in members if each.instance_id is not None
        }

    @invariant()
    def counters_are_consistent(self) -> None:
        group = self.group
        assert group.joined_count == sum(each.join is not None for each in group.members.values())
        names = [{protocol.name for protocol in each.protocols} for each in group.members.values()]
        for name in ("range", "sticky"):
            assert group.protocol_counts[name] == sum(name in each for each in names)
        assert not names or set.intersection(*names), "they share a protocol"
        assert not group.pending_members.keys() & group.members.keys()
        assert group.unsynced.keys() <= group.members.keys()

    @invariant()
    def leader_is_a_member(self) -> None:
        group = self.group
        assert (group.leader in group.members) if group.members else group.leader is None
        if group.state is GroupState.EMPTY:
            assert not group.members
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert group.members
            assert group.protocol is not None

    def teardown(self) -> None:
        if hasattr(self, "played"):
            self.simulated.run(lambda turn: end_group(turn, ErrorCode.NOT_COORDINATOR))
            assert not self.simulated.open_tickets()


GroupModel.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestGroupModel = GroupModel.TestCase
