"""What the controller intends, as a value: decided without touching anything, then committed, applied and announced.

    decide     move() of a machine reads the context and returns a Decision
    commit     its `writes` go to the registry, each under the check of the controller's epoch
    apply      committed(results) splits the Decision; what won, and no more, goes into the context
    announce   the `requests` of what won go into the request batch

Every Move is about one partition or one replica and stands or falls alone: one bad partition never fails its
neighbours. A move whose write met another version lost a race with a leader that changed its ISR. Nothing promises a
later event for it, so it comes back in `again`, to be read anew and decided anew by whoever is handling the event.

There may be tens of thousands of moves. They, and what hangs on them, are NamedTuples, which are made in half the time.
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
    LeaderAndIsr,
    LeaderEpoch,
    Replica,
    TopicPartition,
    ZnodeVersion,
)

leadership = lru_cache(maxsize=4096)(LeaderAndIsr)
"""Thousands of partitions are in the same state, and share it."""

# ---- registry writes --------------------------------------------------------------------------------------


class CreateState(NamedTuple):
    """Create the znode of the partition and its `state` below; the topic's `partitions` too, where it is missing."""

    partition: TopicPartition
    state: LeaderAndIsr


class UpdateState(NamedTuple):
    """Write the state of a partition, if its znode still has the version that was read."""

    partition: TopicPartition
    state: LeaderAndIsr
    expected_version: ZnodeVersion


Write = CreateState | UpdateState


@unique
class WriteRefused(StrEnum):
    """Why the registry did not do a write. A failed check of the controller's epoch is none of these: it ends all."""

    BAD_VERSION = "somebody else wrote it first"
    NODE_EXISTS = "there is a state already"
    NO_NODE = "there is no state to change"
    FAILED = "the registry refused the write"


WriteResult = ZnodeVersion | WriteRefused


class Unreadable(Struct, frozen=True, kw_only=True):
    """Stands where a state should have been read, for a znode whose bytes make no sense."""

    why: str


StateRead = LeaderAndIsr | Unreadable

# ---- requests to brokers ----------------------------------------------------------------------------------


class SendLeaderAndIsr(NamedTuple):
    """Tell these brokers who leads; all registered brokers get the metadata with it.

    What it says is read from the context when it is added to the batch, that is after the decision was applied: only
    then the version of the znode is known.
    """

    brokers: tuple[BrokerId, ...]
    partition: TopicPartition
    is_new: bool


class SendUpdateMetadata(NamedTuple):
    """Tell these brokers (`None`: all registered) of the partitions; without partitions, the list of brokers alone."""

    brokers: tuple[BrokerId, ...] | None = None
    partitions: tuple[TopicPartition, ...] = ()


class SendStopReplica(NamedTuple):
    """Stop, and perhaps delete, one replica. The epoch is the one known before the replica leaves the ISR."""

    broker: BrokerId
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    delete_partition: bool


RequestIntent = SendLeaderAndIsr | SendUpdateMetadata | SendStopReplica

# ---- moves ------------------------------------------------------------------------------------------------

Item = TypeVar("Item", TopicPartition, Replica)
State = TypeVar("State", PartitionState, ReplicaState)


@unique
class FailureReason(StrEnum):
    """Why a move is not made. All leave the state as it was."""

    ILLEGAL_MOVE = "illegal move"
    NO_LIVE_REPLICA = "no assigned replica is online"
    NO_ELIGIBLE_LEADER = "no replica may lead"
    CONFIG_UNKNOWN = "the topic's config could not be read"
    REPLICA_IS_LEADER = "the replica is the leader already"
    STATE_EXISTS = "the partition has a state already"
    STATE_MISSING = "the partition has no state in the registry"
    STATE_UNREADABLE = "the partition's state cannot be understood"
    CONTROLLER_MOVED = "a newer controller has written the state"
    WRITE_FAILED = "the registry refused the write"
    REASSIGNMENT_UNSUPPORTED = "reassignments are not supported"


class Failure(Struct, Generic[Item, State], frozen=True, kw_only=True):
    item: Item
    before: State
    after: State
    reason: FailureReason
    why: str
    cause: str

    def __str__(self) -> str:
        return f"{self.item}: {self.before} → {self.after} not done, {self.reason}: {self.why}"


class Move(NamedTuple, Generic[Item, State]):
    """One item from one state to the next, with everything that hangs on it.

    `leadership` goes into the context with the new state: what `write` wrote, from then on with the version it was
    written with, or what was read where nothing had to be written. `requests` are sent if the move is made, `stops`
    even if its write fails: a replica that is to stop must hear of it whether or not the ISR could be changed.
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
    """An election of somebody who was not in sync: records may be lost by it."""


class Decision(Struct, Generic[Item, State], frozen=True, kw_only=True):
    """All moves of one call. `deferred` items wait until the others of their partition are committed."""

    moves: tuple[Move[Item, State], ...] = ()
    failures: tuple[Failure[Item, State], ...] = ()
    deferred: tuple[Item, ...] = ()
    stops: tuple[SendStopReplica, ...] = ()
    """Owed to replicas whose move is not made."""

    @property
    def writes(self) -> tuple[Write, ...]:
        return tuple(move.write for move in self.moves if move.write is not None)

    @property
    def requests(self) -> tuple[RequestIntent, ...]:
        """Everything to announce of it, once it is applied."""
        sent: list[RequestIntent] = []
        for move in self.moves:
            sent += move.requests
            sent += move.stops
        return (*sent, *self.stops)

    def committed(self, results: Mapping[TopicPartition, WriteResult]) -> Outcome[Item, State]:
        """Split by what the registry said: `results` has the new version of each write's znode, or why it has none."""
        won: list[Move[Item, State]] = []
        again = list(self.deferred)
        failures = list(self.failures)
        stops = list(self.stops)
        for move in self.moves:
            if move.write is None:
                won.append(move)
                continue
            result = results[move.write.partition]
            if not isinstance(result, WriteRefused):
                won.append(with_version(move, move.write, result))
            elif result is WriteRefused.BAD_VERSION and isinstance(move.write, UpdateState):
                again.append(move.item)
            else:
                stops += move.stops
                failures.append(refused(move, result))
        return Outcome(
            won=Decision(moves=tuple(won), stops=tuple(stops)),
            again=tuple(again),
            failures=tuple(failures),
        )


class Outcome(Struct, Generic[Item, State], frozen=True, kw_only=True):
    """What became of a Decision.

    `won` is to be applied and announced. `again` is to be read and decided again. `failures` is over, and to be logged;
    `moved` says that one of them means there is a newer controller.
    """

    won: Decision[Item, State]
    again: tuple[Item, ...]
    failures: tuple[Failure[Item, State], ...]

    @property
    def moved(self) -> bool:
        return any(each.reason is FailureReason.CONTROLLER_MOVED for each in self.failures)


PartitionMove = Move[TopicPartition, PartitionState]
PartitionDecision = Decision[TopicPartition, PartitionState]
PartitionFailure = Failure[TopicPartition, PartitionState]
PartitionOutcome = Outcome[TopicPartition, PartitionState]
ReplicaMove = Move[Replica, ReplicaState]
ReplicaDecision = Decision[Replica, ReplicaState]
ReplicaFailure = Failure[Replica, ReplicaState]
ReplicaOutcome = Outcome[Replica, ReplicaState]


def with_version(move: Move[Item, State], write: Write, version: ZnodeVersion) -> Move[Item, State]:
    if write.state.partition_epoch == version:
        return move
    state = write.state
    return move._replace(
        leadership=leadership(
            leader=state.leader,
            isr=state.isr,
            leader_epoch=state.leader_epoch,
            controller_epoch=state.controller_epoch,
            partition_epoch=version,
            recovering=state.recovering,
        )
    )


REASONS: Mapping[WriteRefused, FailureReason] = {
    WriteRefused.BAD_VERSION: FailureReason.WRITE_FAILED,
    WriteRefused.NODE_EXISTS: FailureReason.STATE_EXISTS,
    WriteRefused.NO_NODE: FailureReason.STATE_MISSING,
    WriteRefused.FAILED: FailureReason.WRITE_FAILED,
}


def refused(move: Move[Item, State], result: WriteRefused) -> Failure[Item, State]:
    return Failure(
        item=move.item,
        before=move.before,
        after=move.after,
        reason=REASONS[result],
        why=result.value,
        cause=move.cause,
    )
