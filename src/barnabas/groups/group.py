"""A group as its coordinator knows it: who is in it, which generation it is in, and what it has committed.

    Empty ─► PreparingRebalance ─► CompletingRebalance ─► Stable          any of them ─► Dead
      ▲            │    ▲                   │                │
      └────────────┘    └───────────────────┴────────────────┘

    Empty                 nobody is in it; it may have offsets
    PreparingRebalance    members join; their joins wait until all are there, or the time for it is over
    CompletingRebalance   they know the new generation, and wait for the leader to say who is given what
    Stable                everybody can have what it was given
    Dead                  deleted, or another broker coordinates it by now

Here are the nouns, and changes that keep them consistent with each other. What happens when, and who is told, is in
group_events.py and rebalance.py. No clock, no sockets: a request that waits is a number, its Ticket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, NewType, Self

from msgspec import Struct, field

from barnabas.errors import ErrorCode, RemoteWireError
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import GroupSnapshot, MemberSnapshot
from barnabas.wire.consumer_protocol import PROTOCOL_TYPE, decode_subscription

Ticket = NewType("Ticket", int)
"""A request that is to be answered, now or later, and exactly once."""


class GroupState(StrEnum):
    """By the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: dict[GroupState, tuple[GroupState, ...]] = {
    GroupState.EMPTY: (GroupState.PREPARING_REBALANCE,),
    GroupState.PREPARING_REBALANCE: (
        GroupState.EMPTY,
        GroupState.STABLE,
        GroupState.COMPLETING_REBALANCE,
    ),
    GroupState.COMPLETING_REBALANCE: (GroupState.PREPARING_REBALANCE,),
    GroupState.STABLE: (GroupState.COMPLETING_REBALANCE,),
    GroupState.DEAD: tuple(GroupState),
}


class Protocol(NamedTuple):
    """A way of assigning that a member knows (`range`, `cooperative-sticky`), and what it says of itself for it."""

    name: str
    metadata: bytes


class Member(Struct, kw_only=True, eq=False):
    """One member; a static one has an instance id, by which it is known again when it comes back with a new id."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    """Those that it likes best first."""
    assignment: bytes = b""
    is_new: bool = False
    """It has never been answered a join, so it cannot send heartbeats either."""
    join: Ticket | None = None
    sync: Ticket | None = None

    def metadata(self, protocol: str) -> bytes:
        return next(each.metadata for each in self.protocols if each.name == protocol)

    def vote(self, candidates: frozenset[str]) -> str:
        return next(each.name for each in self.protocols if each.name in candidates)


class InitialDelay(NamedTuple):
    """How long the first rebalance of a group waits for more members: now, and after that at most."""

    delay_ms: int
    remaining_ms: int


class Group(Struct, kw_only=True, eq=False):
    """One group. `members` are in the order in which they came."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    state_since_ms: int = -1
    generation: int = 0
    protocol_type: str | None = None
    """`consumer`, `connect`, …; None for a group that never had members and only keeps offsets."""
    protocol: str | None = None
    """The way of assigning that the members of this generation agreed on."""
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id."""
    pending: dict[str, None] = field(default_factory=dict)
    """Ids that were given out (MEMBER_ID_REQUIRED) and have not joined yet: a rebalance waits for them."""
    unsynced: dict[str, None] = field(default_factory=dict)
    """Members of this generation that have not asked for their assignment."""
    joined: int = 0
    """How many members wait for the end of the rebalance."""
    supported: Counter[str] = field(default_factory=Counter)
    """By how many members each protocol is known."""
    initial_delay: InitialDelay | None = None
    has_newcomers: bool = False
    """Somebody came during the initial delay, so it is worth to wait for more."""
    is_storing: bool = False
    """The leader's assignment is being written down."""
    topics: frozenset[str] | None = None
    offsets: GroupOffsets = field(default_factory=GroupOffsets)

    # ---- as it is stored

    @classmethod
    def restored(
        cls, group_id: str, snapshot: GroupSnapshot | None, offsets: GroupOffsets, now_ms: int
    ) -> Self:
        """What the log says of a group. Without a snapshot it has only ever kept offsets."""
        if snapshot is None:
            return cls(group_id=group_id, state_since_ms=now_ms, offsets=offsets)
        group = cls(
            group_id=group_id,
            state=GroupState.STABLE if snapshot.members else GroupState.EMPTY,
            state_since_ms=snapshot.current_state_timestamp,
            generation=snapshot.generation,
            protocol_type=snapshot.protocol_type or None,
            protocol=snapshot.protocol,
            leader=snapshot.leader,
            offsets=offsets,
        )
        for each in snapshot.members:
            group.add(restored_member(each, snapshot.protocol or ""))
        group.topics = group.read_topics()
        return group

    def snapshot(self, assignments: Mapping[str, bytes] | None = None) -> GroupSnapshot:
        """What is written down of it; with these assignments, if they are not given to the members yet."""
        given = assignments or {}
        return GroupSnapshot(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_since_ms,
            members=tuple(
                MemberSnapshot(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol or ""),
                    assignment=given.get(member.member_id, member.assignment),
                )
                for member in self.members.values()
            ),
        )

    # ---- who is in it

    def add(self, member: Member) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, "a static member is in it once"
            self.static_members[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id
        self.members[member.member_id] = member
        self.supported.update(protocol_names(member.protocols))
        self.joined += member.join is not None
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Also one that was only given an id."""
        member = self.members.pop(member_id, None)
        self.pending.pop(member_id, None)
        self.unsynced.pop(member_id, None)
        if member is None:
            return
        self.supported.subtract(protocol_names(member.protocols))
        self.joined -= member.join is not None
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename_static(self, instance_id: str, member_id: str) -> Member:
        """The static member has come back under another id. It keeps its place, its assignment and its leadership."""
        before = self.static_members[instance_id]
        member = self.members[before]
        member.member_id = member_id
        self.members = {each.member_id: each for each in self.members.values()}
        self.static_members[instance_id] = member_id
        if before in self.unsynced:
            del self.unsynced[before]
            self.unsynced[member_id] = None
        if self.leader == before:
            self.leader = member_id
        return member

    def change(
        self,
        member: Member,
        protocols: tuple[Protocol, ...],
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self.supported.subtract(protocol_names(member.protocols))
        self.supported.update(protocol_names(protocols))
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def wait_for_join(self, member: Member, ticket: Ticket) -> None:
        assert member.join is None
        member.join = ticket
        self.joined += 1

    def take_join(self, member: Member) -> Ticket | None:
        ticket, member.join = member.join, None
        self.joined -= ticket is not None
        return ticket

    @property
    def have_all_joined(self) -> bool:
        return self.joined == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The most patient member decides."""
        return max([0, *(each.rebalance_timeout_ms for each in self.members.values())])

    # ---- protocols

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether one that knows these can be a member beside those who are there."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self.supported[each.name] == len(self.members) for each in protocols
        )

    def choose_protocol(self) -> str:
        """Of those that all members know, the one that most of them like best; of two, the one named first."""
        everybody = len(self.members)
        candidates = frozenset(name for name, count in self.supported.items() if count == everybody)
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def read_topics(self) -> frozenset[str] | None:
        """What the consumers among groups read; None for others, and if one of them is not understood."""
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        try:
            return frozenset(
                topic
                for member in self.members.values()
                for topic in decode_subscription(member.metadata(self.protocol)).topics
            )
        except RemoteWireError:
            return None

    def subscribed_topics(self) -> frozenset[str] | None:
        """What this generation reads; None: it is not a consumer group, or nobody can tell."""
        return self.topics

    def is_subscribed_to(self, topic: str) -> bool:
        """To be safe, also if nobody can tell."""
        return self.topics is None or topic in self.topics

    # ---- who may speak for it

    @property
    def empty_since_ms(self) -> int:
        return self.state_since_ms

    def refusal_of_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether there is such a member, and whether nobody has come in its place."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def refusal(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """NONE for a member of this generation."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = self.refusal_of_member(member_id, instance_id)
        if code is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return code

    def refusal_of_commit(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Members may commit, but not while they wait for their assignment; others only if nobody is in it."""
        if self.state is not GroupState.DEAD and generation < 0:
            if self.state is GroupState.EMPTY:
                return ErrorCode.NONE
            if not member_id and instance_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        code = self.refusal(member_id, instance_id, generation)
        if code is ErrorCode.NONE and self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return code


def protocol_names(protocols: tuple[Protocol, ...]) -> frozenset[str]:
    return frozenset(each.name for each in protocols)


def restored_member(snapshot: MemberSnapshot, protocol: str) -> Member:
    return Member(
        member_id=snapshot.member_id,
        instance_id=snapshot.group_instance_id,
        client_id=snapshot.client_id,
        client_host=snapshot.client_host,
        rebalance_timeout_ms=snapshot.rebalance_timeout_ms,
        session_timeout_ms=snapshot.session_timeout_ms,
        protocols=(Protocol(protocol, snapshot.subscription),),
        assignment=snapshot.assignment,
    )
