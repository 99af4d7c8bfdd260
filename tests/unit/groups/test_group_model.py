"""Whatever members, timers and the log do to a group, and in whatever order, these things hold."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.errors import ErrorCode
from barnabas.groups.group import AssignmentProtocol, Group, GroupState, Ticket
from barnabas.groups.group_events import end_group
from barnabas.groups.group_transition import (
    JOIN_TIMER,
    SYNC_TIMER,
    AssignmentPurpose,
    GroupLimits,
    session_timer,
)
from tests.unit.groups.played_group import PlayedGroup

PROTOCOLS = st.sampled_from(
    [
        (AssignmentProtocol("range", b"r"),),
        (AssignmentProtocol("range", b"other"),),
        (AssignmentProtocol("range", b"r"), AssignmentProtocol("sticky", b"s")),
        (AssignmentProtocol("sticky", b"s"), AssignmentProtocol("range", b"r")),
    ]
)
INSTANCES = st.sampled_from([None, None, "one", "two"])
WHO = st.integers(0, 9)


class GroupModel(RuleBasedStateMachine):
    played: PlayedGroup

    @initialize(
        delay_ms=st.sampled_from([0, 3000]),
        members_max=st.sampled_from([3, 100]),
        first=st.lists(INSTANCES, max_size=4),
    )
    def create(self, delay_ms: int, members_max: int, first: list[str | None]) -> None:
        self.played = PlayedGroup(
            GroupLimits(
                session_timeout_ms_min=0,
                session_timeout_ms_max=100_000,
                members_max=members_max,
                initial_rebalance_delay_ms=delay_ms,
            )
        )
        self.ids = ["nobody"]
        self.generation = 0
        self.given: dict[int, dict[str, bytes]] = {}
        """What the log took as each generation's assignment, when its members were told."""
        for instance in first:
            self.come(
                instance, (AssignmentProtocol("range", b"r"),), requires_member_id=False, skip=False
            )

    @property
    def group(self) -> Group:
        return self.played.group

    def someone(self, who: int) -> str:
        """Now and then one that has left long ago."""
        known = [*self.group.members, *self.group.pending_members]
        return known[who % len(known)] if known and who < 9 else self.ids[-1]

    def instance_of(self, member_id: str) -> str | None:
        member = self.group.members.get(member_id)
        return None if member is None else member.instance_id

    # ---- what may happen

    @rule(
        instance=INSTANCES,
        protocols=PROTOCOLS,
        requires_member_id=st.booleans(),
        skip=st.booleans(),
    )
    def somebody_comes(
        self,
        instance: str | None,
        protocols: tuple[AssignmentProtocol, ...],
        requires_member_id: bool,
        skip: bool,
    ) -> None:
        self.come(instance, protocols, requires_member_id=requires_member_id, skip=skip)

    def come(
        self,
        instance: str | None,
        protocols: tuple[AssignmentProtocol, ...],
        *,
        requires_member_id: bool,
        skip: bool,
    ) -> None:
        self.ids.append(f"m{len(self.ids)}")
        self.played.join(
            new=self.ids[-1],
            instance=instance,
            protocols=protocols,
            requires_member_id=requires_member_id and instance is None,
            may_skip=skip,
        )

    @rule(who=WHO, protocols=PROTOCOLS)
    def join_again(self, who: int, protocols: tuple[AssignmentProtocol, ...]) -> None:
        member_id = self.someone(who)
        instance = self.instance_of(member_id)
        self.played.join(member_id, instance=instance, protocols=protocols)

    @rule()
    def all_join_again(self) -> None:
        for member in list(self.group.members.values()):
            if member.join is None and member.member_id in self.group.members:
                of = member.instance_id
                self.played.join(member.member_id, instance=of, protocols=member.protocols)

    @rule(who=WHO, behind=st.integers(0, 4))
    def sync(self, who: int, behind: int) -> None:
        member_id = self.someone(who)
        generation = self.group.generation - (behind == 4)
        self.played.sync(member_id, self.assignments(), generation=generation)

    @rule()
    def all_sync(self) -> None:
        for member_id in list(self.group.unsynced):
            self.played.sync(member_id, self.assignments())

    def assignments(self) -> dict[str, bytes]:
        """Different each time, so that a second one would be noticed."""
        return {each: f"{each} {len(self.played.asked)}".encode() for each in self.group.members}

    @rule(who=WHO)
    def heartbeat(self, who: int) -> None:
        member_id = self.someone(who)
        code = self.played.heartbeat(member_id, instance=self.instance_of(member_id))
        assert (code is ErrorCode.UNKNOWN_MEMBER_ID) == (member_id not in self.group.members)

    @rule(who=WHO)
    def leave(self, who: int) -> None:
        member_id = self.someone(who)
        self.played.leave(member_id, instance=self.instance_of(member_id))
        assert member_id not in self.group.members

    @precondition(lambda self: JOIN_TIMER in self.played.timers)
    @rule()
    def the_time_to_join_is_over(self) -> None:
        self.played.end(JOIN_TIMER)

    @precondition(lambda self: self.group.members)
    @rule()
    def everybody_does_its_part(self) -> None:
        """So far as nobody else comes between: in the end the group is stable."""
        self.all_join_again()
        while JOIN_TIMER in self.played.timers:
            self.played.end(JOIN_TIMER)
        self.all_sync()
        while self.played.stores:
            self.the_log_says(ErrorCode.NONE)
        assert self.group.state is GroupState.STABLE

    @precondition(lambda self: self.played.timers)
    @rule(which=WHO)
    def time_is_over(self, which: int) -> None:
        timers = sorted(self.played.timers, key=str)
        self.played.end(timers[which % len(timers)])

    @precondition(lambda self: self.played.stores)
    @rule(code=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]))
    def the_log_has_spoken(self, code: ErrorCode) -> None:
        self.the_log_says(code)

    def the_log_says(self, code: ErrorCode) -> None:
        before = self.group.state
        store = self.played.stored(code)
        if before is GroupState.COMPLETING_REBALANCE and self.group.state is GroupState.STABLE:
            assert isinstance(store.purpose, AssignmentPurpose)
            assert code is ErrorCode.NONE
            assert self.group.generation not in self.given, "one assignment per generation"
            self.given[self.group.generation] = dict(store.purpose.assignments)

    # ---- what must hold

    @invariant()
    def the_generation_only_grows(self) -> None:
        assert self.group.generation >= self.generation
        self.generation = self.group.generation

    @invariant()
    def members_hold_what_their_generation_was_given(self) -> None:
        if self.group.state is GroupState.STABLE:
            given = set(self.given[self.group.generation].values())
            assert {member.assignment for member in self.group.members.values()} <= given

    @invariant()
    def everybody_who_waits_will_be_answered(self) -> None:
        """By the end of the rebalance, which has a timer; by the log; or by the session of somebody else."""
        group, played = self.group, self.played
        joins = {each.join for each in group.members.values()} - {None}
        syncs = {each.sync for each in group.members.values()} - {None}
        waiting: set[Ticket | None] = {*played.open()}
        assert waiting == joins | syncs, "answered, or waiting in the group, and not both"
        if group.state is GroupState.PREPARING_REBALANCE:
            assert JOIN_TIMER in played.timers
            assert not syncs
        elif joins:
            assert group.state is GroupState.STABLE
            assert played.stores
        if syncs:
            assert group.state is GroupState.COMPLETING_REBALANCE
            assert played.stores or SYNC_TIMER in played.timers

    @invariant()
    def everybody_who_does_not_wait_must_be_heard_of(self) -> None:
        group = self.group
        for member in group.members.values():
            if (member.join is None and member.sync is None) or member.is_new:
                assert session_timer(member.member_id) in self.played.timers
        for member_id in group.pending_members:
            assert session_timer(member_id) in self.played.timers

    @invariant()
    def no_timer_is_left_behind(self) -> None:
        group = self.group
        sessions = {session_timer(each) for each in (*group.members, *group.pending_members)}
        rest = self.played.timers.keys() - sessions
        if group.state is GroupState.PREPARING_REBALANCE:
            assert rest == {JOIN_TIMER}
        else:
            assert rest <= {SYNC_TIMER}
            assert (SYNC_TIMER in rest) == bool(group.unsynced)

    @invariant()
    def a_static_member_is_in_it_once(self) -> None:
        members = self.group.members.values()
        static = [each.instance_id for each in members if each.instance_id is not None]
        assert len(static) == len(set(static))
        assert self.group.static_members == {
            each.instance_id: each.member_id for each in members if each.instance_id is not None
        }

    @invariant()
    def what_is_counted_is_right(self) -> None:
        group = self.group
        assert group.joined_count == sum(each.join is not None for each in group.members.values())
        names = [{protocol.name for protocol in each.protocols} for each in group.members.values()]
        for name in ("range", "sticky"):
            assert group.protocol_counts[name] == sum(name in each for each in names)
        assert not names or set.intersection(*names), "they share a protocol"
        assert not group.pending_members.keys() & group.members.keys()
        assert group.unsynced.keys() <= group.members.keys()

    @invariant()
    def a_group_with_members_has_a_leader_among_them(self) -> None:
        group = self.group
        assert (group.leader in group.members) if group.members else group.leader is None
        if group.state is GroupState.EMPTY:
            assert not group.members
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert group.members
            assert group.protocol is not None

    def teardown(self) -> None:
        if hasattr(self, "played"):
            self.played.turn(lambda turn: end_group(turn, ErrorCode.NOT_COORDINATOR))
            assert not self.played.open()


GroupModel.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestGroupModel = GroupModel.TestCase
