"""State of one group: members, generation and committed offsets.

    Empty ─► PreparingRebalance ─► CompletingRebalance ─► Stable          any state ─► Dead
      ▲            │    ▲                   │                │
      └────────────┘    └───────────────────┴────────────────┘

    Empty                 the group has no members; it may have offsets
    PreparingRebalance    members join; their requests wait until all have joined, or the join timer expires
    CompletingRebalance   members know the new generation and wait for the assignment of the group leader
    Stable                every member can get its assignment
    Dead                  the group was deleted, or another broker coordinates it

The methods here keep the fields consistent with each other. group_events.py and rebalance.py implement the protocol.
Nothing here reads a clock or sends a response: a request that waits is represented by its Ticket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, NewType, Self

from msgspec import Struct, field

from barnabas.errors import ErrorCode, RemoteWireError
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import GroupMetadataValue, MemberSnapshot
from barnabas.wire.consumer_protocol import PROTOCOL_TYPE, decode_subscription

Ticket = NewType("Ticket", int)
"""Identifies a JoinGroup or SyncGroup request. Each request is answered exactly once, immediately or later."""


class GroupState(StrEnum):
    """Values are the names that Kafka's tools show."""

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


class AssignmentProtocol(NamedTuple):
    """An assignor that a member supports (`range`, `cooperative-sticky`), and the member's metadata for it."""

    name: str
    metadata: bytes


class GroupMember(Struct, kw_only=True, eq=False):
    """One member. A static member has an instance id, which identifies it when it rejoins with a new member id."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[AssignmentProtocol, ...]
    """In order of preference, most preferred first."""
    assignment: bytes = b""
    is_new: bool = False
    """The member has not received a join response yet, so it does not send heartbeats."""
    join: Ticket | None = None
    """JoinGroup request that waits for the end of the rebalance."""
    sync: Ticket | None = None
    """SyncGroup request that waits for the assignment."""

    def metadata(self, protocol: str) -> bytes:
        return next(each.metadata for each in self.protocols if each.name == protocol)

    def vote(self, candidates: frozenset[str]) -> str:
        """Return the protocol in `candidates` that the member prefers."""
        return next(each.name for each in self.protocols if each.name in candidates)


class InitialDelay(NamedTuple):
    """Time that the first rebalance waits for more members: the current delay, and the time left for further delays."""

    delay_ms: int
    remaining_ms: int


class Group(Struct, kw_only=True, eq=False):
    """One group. `members` are in the order in which they joined."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    state_since_ms: int = -1
    generation: int = 0
    protocol_type: str | None = None
    """`consumer`, `connect`, …; None for a group that never had members and only has offsets."""
    protocol: str | None = None
    """Assignor of this generation."""
    leader: str | None = None
    members: dict[str, GroupMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id."""
    pending_members: dict[str, None] = field(default_factory=dict)
    """Member ids sent with MEMBER_ID_REQUIRED, whose clients have not joined yet. A rebalance waits for them."""
    unsynced: dict[str, None] = field(default_factory=dict)
    """Members of this generation that have not sent SyncGroup."""
    joined_count: int = 0
    """Number of members with a waiting JoinGroup."""
    protocol_counts: Counter[str] = field(default_factory=Counter)
    """Number of members that support each protocol."""
    initial_delay: InitialDelay | None = None
    has_new_members: bool = False
    """A member joined during the initial delay, so the delay is extended."""
    is_storing: bool = False
    """The assignment of the group leader is being stored."""
    topics: frozenset[str] | None = None
    """Topics that this generation is subscribed to; None if unknown, or if it is not a consumer group."""
    rebalance_reason: str = ""
    """Why the current or last rebalance started, for the history."""
    offsets: GroupOffsets = field(default_factory=GroupOffsets)

    # ---- snapshots

    @classmethod
    def restore(
        cls, group_id: str, snapshot: GroupMetadataValue | None, offsets: GroupOffsets, now_ms: int
    ) -> Self:
        """Return the group as stored in the log. A group without a snapshot has never had members."""
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
            group.add(restore_member(each, snapshot.protocol or ""))
        group.topics = group.decode_topics()
        return group

    def snapshot(self, assignments: Mapping[str, bytes] | None = None) -> GroupMetadataValue:
        """Return the state to store. `assignments` by member id override those of the members."""
        overrides = assignments or {}
        return GroupMetadataValue(
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
                    assignment=overrides.get(member.member_id, member.assignment),
                )
                for member in self.members.values()
            ),
        )

    # ---- members

    def add(self, member: GroupMember) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, (
                f"static member {member.instance_id} is already in the group"
            )
            self.static_members[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id
        self.members[member.member_id] = member
        self.protocol_counts.update(protocol_names(member.protocols))
        self.joined_count += member.join is not None
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id. Does nothing if there is neither."""
        member = self.members.pop(member_id, None)
        self.pending_members.pop(member_id, None)
        self.unsynced.pop(member_id, None)
        if member is None:
            return
        self.protocol_counts.subtract(protocol_names(member.protocols))
        self.joined_count -= member.join is not None
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename_static(self, instance_id: str, member_id: str) -> None:
        """Give a static member a new member id. It keeps its position, its assignment and its role as group leader."""
        previous_id = self.static_members[instance_id]
        member = self.members[previous_id]
        member.member_id = member_id
        self.members = {each.member_id: each for each in self.members.values()}
        self.static_members[instance_id] = member_id
        if previous_id in self.unsynced:
            del self.unsynced[previous_id]
            self.unsynced[member_id] = None
        if self.leader == previous_id:
            self.leader = member_id

    def update_member(
        self,
        member: GroupMember,
        protocols: tuple[AssignmentProtocol, ...],
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self.protocol_counts.subtract(protocol_names(member.protocols))
        self.protocol_counts.update(protocol_names(protocols))
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def set_join(self, member: GroupMember, ticket: Ticket) -> None:
        assert member.join is None
        member.join = ticket
        self.joined_count += 1

    def pop_join(self, member: GroupMember) -> Ticket | None:
        ticket, member.join = member.join, None
        self.joined_count -= ticket is not None
        return ticket

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def has_all_joined(self) -> bool:
        return self.joined_count == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The maximum over all members."""
        return max([0, *(each.rebalance_timeout_ms for each in self.members.values())])

    # ---- protocols

    def supports(self, protocol_type: str, protocols: tuple[AssignmentProtocol, ...]) -> bool:
        """Return whether a client can join: all members must share its protocol type and one of its protocols."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self.protocol_counts[each.name] == len(self.members) for each in protocols
        )

    def choose_protocol(self) -> str:
        """Return the protocol with the most votes, of those that all members support. The first vote breaks a tie."""
        size = len(self.members)
        candidates = frozenset(
            name for name, count in self.protocol_counts.items() if count == size
        )
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def decode_topics(self) -> frozenset[str] | None:
        """Return the topics that the members subscribe to.

        None if this is not a consumer group, or if a subscription cannot be decoded.
        """
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

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic. True if unknown, so that no offset in use is deleted."""
        return self.topics is None or topic in self.topics

    # ---- validation of requests

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE if the member exists. FENCED_INSTANCE_ID if its instance id belongs to a newer member."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def generation_error(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Return NONE for a member of the current generation, else the error."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = self.member_error(member_id, instance_id)
        if code is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return code

    def commit_error(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return NONE if the offset commit is allowed.

        Members may commit, except while they wait for an assignment. Other clients may commit only to an empty group.
        """
        if self.state is not GroupState.DEAD and generation < 0:
            if self.state is GroupState.EMPTY:
                return ErrorCode.NONE
            if not member_id and instance_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        code = self.generation_error(member_id, instance_id, generation)
        if code is ErrorCode.NONE and self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return code


def protocol_names(protocols: tuple[AssignmentProtocol, ...]) -> frozenset[str]:
    return frozenset(each.name for each in protocols)


def restore_member(snapshot: MemberSnapshot, protocol: str) -> GroupMember:
    return GroupMember(
        member_id=snapshot.member_id,
        instance_id=snapshot.group_instance_id,
        client_id=snapshot.client_id,
        client_host=snapshot.client_host,
        rebalance_timeout_ms=snapshot.rebalance_timeout_ms,
        session_timeout_ms=snapshot.session_timeout_ms,
        protocols=(AssignmentProtocol(protocol, snapshot.subscription),),
        assignment=snapshot.assignment,
    )
