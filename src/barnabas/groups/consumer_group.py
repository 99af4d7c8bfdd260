"""State of one group of the new consumer protocol (KIP-848): members, epochs, target and current assignment.

    group epoch      grows with each change of the members, their subscriptions or the topics
    target epoch     group epoch for which the assignor computed the target assignment
    member epoch     target epoch that the member has reached, or is about to reach

    Empty ──► Assigning ──► Reconciling ──► Stable       follows from the epochs; Dead: the group does not exist

    Empty         the group has no members; it may have offsets
    Assigning     the group epoch is larger than the target epoch
    Reconciling   some members have not reached the target assignment
    Stable        every member has its target assignment

The records in `__consumer_offsets` are the state: `apply` is the only way to change a group. A request is decided
(consumer_events.py) without changing the group, and its records are applied when they are in the log. Loading applies
the same records. No partition has two owners: a member gets a partition only after its owner has released it
(reconciliation.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Self

from msgspec import Struct, field
from msgspec.structs import replace

from barnabas.errors import ErrorCode
from barnabas.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, PartitionId
from barnabas.groups.consumer_records import (
    KEY_VERSIONS,
    NO_PARTITIONS,
    Assignment,
    ClassicMetadata,
    ConsumerGroupEpochKey,
    ConsumerGroupEpochValue,
    ConsumerRecord,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    MemberMetadataKey,
    MemberMetadataValue,
    SubscribedTopic,
    SubscriptionKey,
    SubscriptionValue,
    TargetAssignmentKey,
    TargetAssignmentValue,
    TargetEpochKey,
    TargetEpochValue,
    to_assignment,
    to_topics,
)
from barnabas.groups.offsets import GroupOffsets

LEAVE_EPOCH = -1
"""Member epoch of a request to leave the group."""
STATIC_LEAVE_EPOCH = -2
"""Member epoch of a static member that left for a restart. It keeps its partitions until its session expires."""
COMMIT_WITH_MEMBER_EPOCH_SINCE = 9
"""First version of OffsetCommit that members of the new protocol may use."""


class MemberState(IntEnum):
    """Where a member is on its way to the target assignment. Values are those of CurrentAssignmentValue."""

    STABLE = 0
    """The member has its target assignment, or the target is newer than the member epoch."""
    UNREVOKED_PARTITIONS = 1
    """The member must release partitions, and has not confirmed it."""
    UNRELEASED_PARTITIONS = 2
    """Other members own partitions of the target, and have not released them."""
    UNKNOWN = 127
    """Written by a newer broker. The member must rejoin."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class ConsumerGroupState(StrEnum):
    """Values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerMember(Struct, frozen=True, kw_only=True):
    """One member. `classic` is set if the member uses the classic protocol in a group of the new one."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    """The member may repeat a request with this epoch, if it did not get the response with `epoch`."""
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topics: frozenset[str] = frozenset()
    subscribed_regex: str | None = ""
    server_assignor: str | None = None
    assigned: Assignment = NO_PARTITIONS
    pending_revocation: Assignment = NO_PARTITIONS
    """Partitions that the member owns until it confirms that it has released them."""
    classic: ClassicMetadata | None = None

    @property
    def owned_partitions(self) -> Iterable[PartitionId]:
        for assignment in (self.assigned, self.pending_revocation):
            for topic_id, partitions in assignment.items():
                for partition in partitions:
                    yield topic_id, partition

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def to_metadata(self) -> MemberMetadataValue:
        return MemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=tuple(sorted(self.subscribed_topics)),
            subscribed_topic_regex=self.subscribed_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_metadata=self.classic,
        )

    def with_metadata(self, value: MemberMetadataValue) -> ConsumerMember:
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topics=frozenset(value.subscribed_topic_names),
            subscribed_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_metadata,
        )

    def to_current_assignment(self) -> CurrentAssignmentValue:
        return CurrentAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned=to_topics(self.assigned),
            pending_revocation=to_topics(self.pending_revocation),
        )

    def with_current_assignment(self, value: CurrentAssignmentValue) -> ConsumerMember:
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=to_assignment(value.assigned),
            pending_revocation=to_assignment(value.pending_revocation),
        )


class ConsumerGroup(Struct, kw_only=True, eq=False):
    """One group. Only `apply` changes its state in the log, except `offsets`."""

    group_id: str
    epoch: int = 0
    target_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id."""
    targets: dict[str, Assignment] = field(default_factory=dict)
    """Target assignment by member id."""
    subscription: dict[str, SubscribedTopic] = field(default_factory=dict)
    """The topics that exist and that members subscribe to, by name, as of the group epoch."""
    topics_version: int = -1
    """Version of the metadata cache for which `subscription` was last checked."""
    topic_counts: Counter[str] = field(default_factory=Counter)
    """Number of members that subscribe to each topic."""
    owners: dict[PartitionId, str] = field(default_factory=dict)
    """Member that owns each partition, including partitions that it must release."""
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    end_offset: int = 0
    """Offset after the last record that this broker appended. Responses wait until it is replicated."""
    rebalance_reason: str = ""
    """Why the group epoch grew, until all members have their target assignment. For the history."""
    is_dead: bool = False
    """The group was deleted or replaced, or another broker coordinates it."""

    # ---- records

    @classmethod
    def restore(
        cls, group_id: str, records: Iterable[ConsumerRecord], offsets: GroupOffsets
    ) -> Self | None:
        """Return the group as stored in the log, from the last record of each key.

        None without a group epoch: then other records are leftovers of a deleted group.
        """
        group = cls(group_id=group_id, offsets=offsets)
        has_epoch = False
        for record in sorted(records, key=lambda each: KEY_VERSIONS[type(each.key)]):
            group.apply(record)
            has_epoch |= isinstance(record.key, ConsumerGroupEpochKey)
        return group if has_epoch else None

    def apply(self, record: ConsumerRecord) -> None:
        """Apply a record that is in the log."""
        key, value = record
        if isinstance(key, MemberMetadataKey):
            if isinstance(value, MemberMetadataValue):
                member = self.members.get(key.member_id) or ConsumerMember(member_id=key.member_id)
                self.put(member.with_metadata(value))
            else:
                self.remove(key.member_id)
        elif isinstance(key, CurrentAssignmentKey):
            self.apply_current_assignment(key.member_id, value)
        elif isinstance(key, TargetAssignmentKey):
            if isinstance(value, TargetAssignmentValue):
                self.targets[key.member_id] = to_assignment(value.topics)
            else:
                self.targets.pop(key.member_id, None)
        elif isinstance(key, ConsumerGroupEpochKey):
            self.epoch = value.epoch if isinstance(value, ConsumerGroupEpochValue) else 0
        elif isinstance(key, TargetEpochKey):
            is_set = isinstance(value, TargetEpochValue)
            self.target_epoch = value.assignment_epoch if is_set else -1  # type: ignore[union-attr]
        else:
            topics = value.topics if isinstance(value, SubscriptionValue) else ()
            self.subscription = {each.name: each for each in topics}

    def apply_current_assignment(self, member_id: str, value: object) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        if not isinstance(value, CurrentAssignmentValue):
            value = CurrentAssignmentValue(LEAVE_EPOCH, LEAVE_EPOCH, member.state)
        self.put(member.with_current_assignment(value))

    def put(self, member: ConsumerMember) -> None:
        self.discard_indexes(member.member_id)
        self.members[member.member_id] = member
        self.topic_counts.update(member.subscribed_topics)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for partition in member.owned_partitions:
            self.owners[partition] = member.member_id

    def remove(self, member_id: str) -> None:
        self.discard_indexes(member_id)
        self.members.pop(member_id, None)

    def discard_indexes(self, member_id: str) -> None:
        """Remove a member from all indexes of members."""
        member = self.members.get(member_id)
        if member is None:
            return
        for name in member.subscribed_topics:
            if self.topic_counts[name] > 1:
                self.topic_counts[name] -= 1
            else:
                del self.topic_counts[name]
        instance_id = member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        for partition in member.owned_partitions:
            if self.owners.get(partition) == member_id:
                del self.owners[partition]

    def tombstones(self) -> list[ConsumerRecord]:
        """Return the records that delete the group, without its offsets."""
        group_id = self.group_id
        return [
            *(ConsumerRecord(CurrentAssignmentKey(group_id, each), None) for each in self.members),
            *(ConsumerRecord(TargetAssignmentKey(group_id, each), None) for each in self.members),
            ConsumerRecord(TargetEpochKey(group_id), None),
            *(ConsumerRecord(MemberMetadataKey(group_id, each), None) for each in self.members),
            ConsumerRecord(SubscriptionKey(group_id), None),
            ConsumerRecord(ConsumerGroupEpochKey(group_id), None),
        ]

    # ---- queries

    @property
    def state(self) -> ConsumerGroupState:
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(each.is_reconciled_to(self.target_epoch) for each in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members and not self.is_dead

    @property
    def assignor(self) -> str:
        return preferred_assignor(self.members.values())

    @property
    def classic_count(self) -> int:
        """Number of members that use the classic protocol."""
        return sum(each.classic is not None for each in self.members.values())

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_counts

    # ---- validation of offset requests

    def commit_error(self, member_id: str, epoch: int, version: int) -> ErrorCode:
        """Return NONE if the offset commit is allowed. `version` is that of the request.

        Members may commit with their epoch. Other clients may commit only to an empty group.
        """
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if (
            member is not None
            and member.classic is None
            and version < COMMIT_WITH_MEMBER_EPOCH_SINCE
        ):
            return ErrorCode.UNSUPPORTED_VERSION
        return self.epoch_error(member, epoch)

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Return NONE if the offset fetch is allowed. A request without a member id and epoch always is."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        return self.epoch_error(self.members.get(member_id or ""), epoch)

    def epoch_error(self, member: ConsumerMember | None, epoch: int) -> ErrorCode:
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return ErrorCode.NONE
        if member.classic is not None:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.STALE_MEMBER_EPOCH


def preferred_assignor(members: Iterable[ConsumerMember]) -> str:
    """Return the assignor that most members request, or the default. The first of ASSIGNORS breaks a tie."""
    votes = Counter(each.server_assignor for each in members if each.server_assignor is not None)
    return max(
        (name for name in ASSIGNORS if votes[name]), key=votes.__getitem__, default=DEFAULT_ASSIGNOR
    )
