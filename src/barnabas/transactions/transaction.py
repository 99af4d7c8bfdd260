"""State of one transactional id, and the moves that are allowed.

    Empty ────► Ongoing ─┬─► PrepareCommit ─► CompleteCommit ─┐       Empty, Complete… ─► Dead
      ▲           ▲      └─► PrepareAbort ──► CompleteAbort ──┤
      │           └───────────────────────────────────────────┤
      └───────────────────────────────────────────────────────┘

    Empty             the producer has an id and an epoch, but no transaction since it was initialized
    Ongoing           the transaction has partitions; the producer may add more, or end it
    PrepareCommit     the decision to commit is in the log; markers are being written to the partitions
    PrepareAbort      the same for an abort
    CompleteCommit    all markers are written
    CompleteAbort     the same for an abort
    Dead              the transactional id expired and is being deleted
    PrepareEpochFence the epoch of a producer is being raised to abort its transaction; in this implementation one
                      event raises the epoch and moves to PrepareAbort, so no transaction stays in this state

Each move is appended to __transaction_state before it takes effect. Until then it is the `pending` move, and no other
move may start. The decision is durable from PrepareCommit or PrepareAbort on: any later coordinator completes it.

Nothing here reads a clock or sends a response. transaction_events.py implements the protocol.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from barnabas.model import NO_TIMESTAMP, TopicPartition

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
PRODUCER_EPOCH_MAX = 2**15 - 1
"""No producer gets this epoch, so that the coordinator can always fence the current one."""


class TransactionState(StrEnum):
    """Values are the names that Kafka's tools show. The order is that of the ids in the log, from 0 on."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
DEAD = TransactionState.DEAD
PREPARE_EPOCH_FENCE = TransactionState.PREPARE_EPOCH_FENCE

PREVIOUS_STATES: dict[TransactionState, tuple[TransactionState, ...]] = {
    EMPTY: (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT),
    ONGOING: (ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT),
    PREPARE_COMMIT: (ONGOING,),
    PREPARE_ABORT: (ONGOING, PREPARE_EPOCH_FENCE),
    COMPLETE_COMMIT: (PREPARE_COMMIT,),
    COMPLETE_ABORT: (PREPARE_ABORT,),
    DEAD: (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT),
    PREPARE_EPOCH_FENCE: (ONGOING,),
}
"""The states from which each state can be reached."""

PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
"""Markers are being written."""
AT_REST = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
"""There is no open transaction. A new one may start, and the transactional id may expire."""


class TransactionMetadata(Struct, frozen=True, kw_only=True):
    """State of a transactional id, as in the log. The `last` fields are in memory only."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    """NO_PRODUCER_EPOCH until the first InitProducerId is in the log."""
    timeout_ms: int
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """Partitions of the transaction; after the decision, those without a marker."""
    start_ms: int = NO_TIMESTAMP
    """Time of the first partition of the transaction."""
    update_ms: int
    """Time of the last move. The transactional id expires transactional.id.expiration.ms later."""
    last_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """Id and epoch before the last InitProducerId of the same producer. They identify a retry of that request."""

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)


def is_exhausted(epoch: int) -> bool:
    """Return whether a producer with this epoch needs a new producer id instead of the next epoch."""
    return epoch >= PRODUCER_EPOCH_MAX - 1


class Transaction(Struct, kw_only=True, eq=False):
    """One transactional id of this coordinator."""

    transactional_id: str
    metadata: TransactionMetadata
    """The state that is in the log. For a new transactional id, the log has none yet."""
    pending: TransactionState | None = None
    """State of the move in progress. Markers are written during the move to CompleteCommit or CompleteAbort."""
    has_failed_fence: bool = False
    """An epoch was raised to fence its producer, but could not be stored. No client got it, so it is used again."""
    reported_fence: tuple[int, int] | None = None
    """Id and epoch of the last fenced producer in the history. It may repeat its request."""

    @property
    def state(self) -> TransactionState:
        return self.metadata.state

    @property
    def is_completing(self) -> bool:
        """Return whether the outcome is decided, and markers are being written."""
        return self.metadata.state in PREPARED

    def can_move_to(self, state: TransactionState) -> bool:
        return self.pending is None and self.metadata.state in PREVIOUS_STATES[state]
