"""Decisions of the controller: planned changes as values, before they are committed, applied and announced.

    decide     a state machine reads the context and returns a Decision
    commit     the `writes` of the Decision go to the registry, fenced by the controller epoch
    apply      `outcome_of(results)` splits the Decision; only the committed part goes into the context
    announce   the `requests` of the committed part go into the request batch

A StateTransition concerns one partition or one replica, and succeeds or fails alone. If its write fails because the
state was changed concurrently, the item is returned in `to_retry`. The caller reads its state and decides again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum, unique
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.model import (
    BrokerId,
    ControllerEpoch,
    LeaderAndIsr,
    LeaderEpoch,
    Replica,
    TopicPartition,
    ZnodeVersion,
)

shared_leader_and_isr = lru_cache(maxsize=4096)(LeaderAndIsr)
"""LeaderAndIsr, cached: thousands of partitions with the same values share one object."""

# ---- registry writes --------------------------------------------------------------------------------------


class CreateState(NamedTuple):
    """Create the znodes `<partition>` and `<partition>/state`, and their parent `partitions` if it is missing."""

    partition: TopicPartition
    state: LeaderAndIsr


class UpdateState(NamedTuple):
    """Update the state of a partition, if its znode has the expected version."""

    partition: TopicPartition
    state: LeaderAndIsr
    expected_version: ZnodeVersion


Write = CreateState | UpdateState


@unique
class WriteRejection(StrEnum):
    """Why the registry rejected a write. A failed check of the controller epoch raises ControllerMoved instead."""

    BAD_VERSION = "the state was changed concurrently"
    NODE_EXISTS = "the state znode exists"
    NO_NODE = "the state znode does not exist"
    FAILED = "the registry rejected the write"


WriteResult = ZnodeVersion | WriteRejection


class UnreadableState(Struct, frozen=True, kw_only=True):
    """Result of reading a state znode that is invalid or cannot be read."""

    why: str


StateReadResult = LeaderAndIsr | UnreadableState

# ---- requests to brokers ----------------------------------------------------------------------------------


class SendLeaderAndIsr(NamedTuple):
    """Send LeaderAndIsr to these brokers, and UpdateMetadata to all registered brokers.

    The content is read from the context when the intent is added to the batch. By then the decision is applied and the
    version of the znode is known.
    """

    brokers: tuple[BrokerId, ...]
    partition: TopicPartition
    is_new: bool


class SendUpdateMetadata(NamedTuple):
    """Send UpdateMetadata to these brokers; None means all registered. It always carries the list of brokers."""

    brokers: tuple[BrokerId, ...] | None = None
    partitions: tuple[TopicPartition, ...] = ()


class SendStopReplica(NamedTuple):
    """Send StopReplica for one replica. `leader_epoch` is the one before the replica leaves the ISR."""

    broker: BrokerId
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    delete_partition: bool


RequestIntent = SendLeaderAndIsr | SendUpdateMetadata | SendStopReplica

# ---- state transitions ------------------------------------------------------------------------------------

Item = TypeVar("Item", TopicPartition, Replica)
State = TypeVar("State", PartitionState, ReplicaState)


@unique
class FailureReason(StrEnum):
    """Why a transition failed. The item stays in its state."""

    ILLEGAL_TRANSITION = "illegal state transition"
    NO_LIVE_REPLICA = "no assigned replica is online"
    NO_ELIGIBLE_LEADER = "no eligible leader"
    CONFIG_UNKNOWN = "the topic config cannot be read"
    REPLICA_IS_LEADER = "the replica is the leader"
    STATE_EXISTS = "the partition has a state in the registry"
    STATE_MISSING = "the partition has no state in the registry"
    STATE_UNREADABLE = "the state of the partition is invalid"
    CONTROLLER_MOVED = "a newer controller wrote the state"
    WRITE_FAILED = "the registry rejected the write"


def check_state(
    state: StateReadResult | None, epoch: ControllerEpoch
) -> tuple[FailureReason, str] | None:
    """Return why the controller of this epoch cannot replace the state, or None."""
    if state is None:
        return FailureReason.STATE_MISSING, "there is no leader epoch to raise"
    if isinstance(state, UnreadableState):
        return FailureReason.STATE_UNREADABLE, state.why
    if state.controller_epoch > epoch:
        return FailureReason.CONTROLLER_MOVED, (
            f"its controller epoch is {state.controller_epoch}, this controller's is {epoch}"
        )
    return None


class TransitionFailure(Struct, Generic[Item, State], frozen=True):
    """A transition that did not happen. `why` gives the details of `reason`; `cause` names the event."""

    item: Item
    before: State
    after: State
    reason: FailureReason
    why: str
    cause: str

    def __str__(self) -> str:
        return f"{self.item}: {self.before} → {self.after}, {self.reason}: {self.why}"


class StateTransition(NamedTuple, Generic[Item, State]):
    """Transition of one partition or replica to another state, with its write and its requests.

    `leadership` goes into the context with the new state. It is the leadership that was written, with its new version,
    or the one that was read if there is nothing to write. `requests` are sent if the transition is committed. `stops`
    are sent even if the write fails, because the replica must stop anyway.
    """

    item: Item
    before: State
    after: State
    cause: str
    write: Write | None = None
    leadership: LeaderAndIsr | None = None
    requests: tuple[RequestIntent, ...] = ()
    stops: tuple[SendStopReplica, ...] = ()
    is_unclean: bool = False
    """The new leader was not in the ISR: records may be lost."""


class Decision(Struct, Generic[Item, State], frozen=True, kw_only=True):
    """Result of one call of a state machine. `deferred` items wait for another transition of their partition."""

    transitions: tuple[StateTransition[Item, State], ...] = ()
    failures: tuple[TransitionFailure[Item, State], ...] = ()
    deferred: tuple[Item, ...] = ()
    stops: tuple[SendStopReplica, ...] = ()
    """For replicas whose transition failed."""

    @property
    def writes(self) -> tuple[Write, ...]:
        return tuple(each.write for each in self.transitions if each.write is not None)

    @property
    def requests(self) -> tuple[RequestIntent, ...]:
        """Requests to send after the decision is applied."""
        intents: list[RequestIntent] = []
        for each in self.transitions:
            intents += each.requests
            intents += each.stops
        return (*intents, *self.stops)

    def outcome_of(
        self, results: Mapping[TopicPartition, WriteResult]
    ) -> CommitOutcome[Item, State]:
        """Split the decision by `results`: for each write, the new version of its znode or the rejection."""
        committed: list[StateTransition[Item, State]] = []
        to_retry = list(self.deferred)
        failures = list(self.failures)
        stops = list(self.stops)
        for each in self.transitions:
            if each.write is None:
                committed.append(each)
                continue
            result = results[each.write.partition]
            if not isinstance(result, WriteRejection):
                committed.append(with_version(each, each.write, result))
            elif result is WriteRejection.BAD_VERSION and isinstance(each.write, UpdateState):
                to_retry.append(each.item)
            else:
                stops += each.stops
                failures.append(failure_of(each, result))
        return CommitOutcome(
            committed=Decision(transitions=tuple(committed), stops=tuple(stops)),
            to_retry=tuple(to_retry),
            failures=tuple(failures),
        )


class CommitOutcome(Struct, Generic[Item, State], frozen=True, kw_only=True):
    """Result of committing a Decision.

    `committed` is applied and announced. `to_retry` items are read and decided again. `failures` are final and logged.
    """

    committed: Decision[Item, State]
    to_retry: tuple[Item, ...]
    failures: tuple[TransitionFailure[Item, State], ...]

    @property
    def has_newer_controller(self) -> bool:
        """Whether a state was written by a controller with a larger epoch."""
        return any(each.reason is FailureReason.CONTROLLER_MOVED for each in self.failures)


PartitionTransition = StateTransition[TopicPartition, PartitionState]
PartitionDecision = Decision[TopicPartition, PartitionState]
PartitionFailure = TransitionFailure[TopicPartition, PartitionState]
PartitionOutcome = CommitOutcome[TopicPartition, PartitionState]
ReplicaTransition = StateTransition[Replica, ReplicaState]
ReplicaDecision = Decision[Replica, ReplicaState]
ReplicaFailure = TransitionFailure[Replica, ReplicaState]
ReplicaOutcome = CommitOutcome[Replica, ReplicaState]


def with_version(
    transition: StateTransition[Item, State], write: Write, version: ZnodeVersion
) -> StateTransition[Item, State]:
    """Return the transition with the znode version that resulted from its write."""
    state = write.state
    if state.partition_epoch == version:
        return transition
    return transition._replace(
        leadership=shared_leader_and_isr(
            leader=state.leader,
            isr=state.isr,
            leader_epoch=state.leader_epoch,
            controller_epoch=state.controller_epoch,
            partition_epoch=version,
            recovering=state.recovering,
        )
    )


REJECTION_REASONS: Mapping[WriteRejection, FailureReason] = {
    WriteRejection.BAD_VERSION: FailureReason.WRITE_FAILED,
    WriteRejection.NODE_EXISTS: FailureReason.STATE_EXISTS,
    WriteRejection.NO_NODE: FailureReason.STATE_MISSING,
    WriteRejection.FAILED: FailureReason.WRITE_FAILED,
}


def failure_of(
    transition: StateTransition[Item, State], rejection: WriteRejection
) -> TransitionFailure[Item, State]:
    return TransitionFailure(
        item=transition.item,
        before=transition.before,
        after=transition.after,
        reason=REJECTION_REASONS[rejection],
        why=rejection.value,
        cause=transition.cause,
    )
