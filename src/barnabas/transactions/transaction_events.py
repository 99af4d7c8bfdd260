"""Events of a transactional id: requests of its producer, timeouts, completed appends, written markers, loading.

Each function takes a Transaction, may change it, and returns the effects. Nothing here waits, sends or reads a clock.

    TransactionAnswer   answer the request; nothing else happens
    StoreTransaction    append the state to __transaction_state, then call `finish_store`, which returns the answer
    WriteMarkers        write a marker to each partition, then call `finish_markers`

    InitProducerId ──────► StoreTransaction(Empty)
    AddPartitionsToTxn ──► StoreTransaction(Ongoing)
    EndTxn, timeout ─────► StoreTransaction(Prepare…) ─► WriteMarkers ─► StoreTransaction(Complete…)

Between StoreTransaction and `finish_store` the transaction has a pending move, and all requests that would change it
get CONCURRENT_TRANSACTIONS. Checks are in Kafka's order, which determines the error a client gets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import NamedTuple

from msgspec.structs import replace

from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from barnabas.transactions.transaction import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    PREPARED,
    Transaction,
    TransactionMetadata,
    is_exhausted,
)
from barnabas.transactions.transaction_changes import TransactionChange, abortion


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch, as a client sends them."""

    producer_id: int
    epoch: int


class TransactionAnswer(NamedTuple):
    """Answer to a request. Only a successful InitProducerId has an id and an epoch."""

    code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class StoreTransaction(NamedTuple):
    """Append `after` to the log. `answer` is sent if that succeeds."""

    after: TransactionMetadata
    answer: TransactionAnswer
    is_fence: bool = False
    """The move raises the epoch, in order to abort the transaction of the current producer."""
    change: TransactionChange | None = None
    """For the history, if the append succeeds."""


class WriteMarkers(NamedTuple):
    """Write a marker of this producer to each partition. There may be none."""

    is_commit: bool
    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]


Decision = TransactionAnswer | StoreTransaction

SUCCESS = TransactionAnswer(ErrorCode.NONE)
CONCURRENT = TransactionAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
FENCED = TransactionAnswer(ErrorCode.PRODUCER_FENCED)
INVALID_STATE = TransactionAnswer(ErrorCode.INVALID_TXN_STATE)
UNKNOWN_MAPPING = TransactionAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
IMPOSSIBLE_STATE = TransactionAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)
"""The log contains a state that is never stored. Kafka has no other code for it."""


def client_error(code: ErrorCode, *, supports_fenced: bool) -> ErrorCode:
    """Return the code for a client. Old clients know INVALID_PRODUCER_EPOCH, but not PRODUCER_FENCED."""
    if code is ErrorCode.PRODUCER_FENCED and not supports_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


# ---- InitProducerId


def create_transaction(
    transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int
) -> Transaction:
    """Return the state before the first InitProducerId."""
    metadata = TransactionMetadata(producer_id=producer_id, timeout_ms=timeout_ms, update_ms=now_ms)
    return Transaction(transactional_id=transactional_id, metadata=metadata)


def needs_producer_id(transaction: Transaction, expected: ProducerIdentity | None) -> bool:
    """Return whether `handle_init` would assign a new producer id, because no epoch is left."""
    current = transaction.metadata
    return (
        current.is_epoch_exhausted
        and transaction.can_move_to(EMPTY)
        and is_known_producer(current, expected)
        and (expected is None or expected.epoch == current.producer_epoch)
    )


def handle_init(
    transaction: Transaction,
    expected: ProducerIdentity | None,
    *,
    timeout_ms: int,
    new_producer_id: int | None,
    now_ms: int,
) -> Decision:
    """Give the producer the next epoch, which fences all others with the same transactional id.

    A producer that continues after an error sends the identity that it has (`expected`). It is fenced if another
    producer was initialized meanwhile. `new_producer_id` must be set if `needs_producer_id`.
    """
    if transaction.pending is not None:
        return CONCURRENT
    current = transaction.metadata
    if not is_known_producer(current, expected):
        return FENCED
    if current.state in PREPARED:
        return CONCURRENT
    if current.state is ONGOING:
        # The client retries. The epoch of this fence is not given to any producer.
        why = "InitProducerId" if expected is None else "InitProducerId of the same producer"
        return fence(transaction, now_ms, CONCURRENT, why)
    if current.state not in AT_REST:
        return IMPOSSIBLE_STATE
    if needs_producer_id(transaction, expected):
        assert new_producer_id is not None, "no epoch is left, and there is no new producer id"
        identity = ProducerIdentity(new_producer_id, 0)
        last_epoch = NO_PRODUCER_EPOCH if expected is None else current.producer_epoch
    else:
        found = next_epoch(current, expected)
        if found is None:
            return FENCED
        epoch, last_epoch = found
        identity = ProducerIdentity(current.producer_id, epoch)
    after = TransactionMetadata(
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        last_producer_id=current.producer_id,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        update_ms=now_ms,
    )
    return begin_move(transaction, after, TransactionAnswer(ErrorCode.NONE, *identity))


def is_known_producer(current: TransactionMetadata, expected: ProducerIdentity | None) -> bool:
    """Return whether the identity can be that of the current producer. `next_epoch` checks the epoch.

    The previous producer id is accepted with an exhausted epoch: the request can be a retry of the one that replaced
    this id.
    """
    return (
        expected is None
        or current.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == current.producer_id
        or (expected.producer_id == current.last_producer_id and is_exhausted(expected.epoch))
    )


def next_epoch(
    current: TransactionMetadata, expected: ProducerIdentity | None
) -> tuple[int, int] | None:
    """Return the next epoch and the epoch before it. None if the producer is fenced.

    A retry of a successful request gets the same epoch again. An InitProducerId without an expected identity clears
    the previous epoch, so a fenced producer is never mistaken for a retry.
    """
    if expected is None:
        return current.producer_epoch + 1, NO_PRODUCER_EPOCH
    if current.producer_epoch in (NO_PRODUCER_EPOCH, expected.epoch):
        return current.producer_epoch + 1, current.producer_epoch
    if expected.epoch == current.last_producer_epoch:
        return current.producer_epoch, current.last_producer_epoch
    return None


# ---- AddPartitionsToTxn, AddOffsetsToTxn


def handle_add_partitions(
    transaction: Transaction,
    producer: ProducerIdentity,
    partitions: Collection[TopicPartition],
    now_ms: int,
) -> Decision:
    """Add partitions, and start the transaction if there is none."""
    current = transaction.metadata
    rejection = reject_other_producer(current, producer)
    if rejection is not None:
        return rejection
    if transaction.pending is not None or current.state in PREPARED:
        return CONCURRENT
    if current.state is ONGOING and current.partitions.issuperset(partitions):
        return SUCCESS
    if not transaction.can_move_to(ONGOING) or current.producer_epoch == NO_PRODUCER_EPOCH:
        return IMPOSSIBLE_STATE
    after = replace(
        current,
        state=ONGOING,
        partitions=current.partitions.union(partitions),
        start_ms=current.start_ms if current.state is ONGOING else now_ms,
        update_ms=now_ms,
    )
    return begin_move(transaction, after, SUCCESS)


def verify_partitions(
    transaction: Transaction, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return NONE for each partition of the current transaction of this producer, else the error.

    Leaders ask this before they append the first batch of a transaction. Otherwise a delayed batch could open a
    transaction that never ends.
    """
    current = transaction.metadata
    rejection = reject_other_producer(current, producer)
    if rejection is None and current.state in PREPARED:
        rejection = CONCURRENT
    if rejection is not None:
        return dict.fromkeys(partitions, rejection.code)
    return {
        each: ErrorCode.NONE if each in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for each in partitions
    }


def reject_other_producer(
    current: TransactionMetadata, producer: ProducerIdentity
) -> TransactionAnswer | None:
    if producer.producer_id != current.producer_id:
        return UNKNOWN_MAPPING
    return None if producer.epoch == current.producer_epoch else FENCED


# ---- EndTxn and timeouts


def handle_end(
    transaction: Transaction, producer: ProducerIdentity, *, is_commit: bool, now_ms: int
) -> Decision:
    """Decide the outcome of the transaction. The client is answered when the decision is stored."""
    current = transaction.metadata
    rejection = reject_other_producer(current, producer)
    if rejection is not None:
        return rejection
    if transaction.pending is not None:
        return CONCURRENT
    if current.state is ONGOING:
        state = PREPARE_COMMIT if is_commit else PREPARE_ABORT
        return begin_move(transaction, replace(current, state=state, update_ms=now_ms), SUCCESS)
    if current.state in (DEAD, PREPARE_EPOCH_FENCE):
        return IMPOSSIBLE_STATE
    if current.state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT):
        return SUCCESS
    if current.state is (PREPARE_COMMIT if is_commit else PREPARE_ABORT):
        return CONCURRENT
    return INVALID_STATE


def abort_timed_out(transaction: Transaction, now_ms: int) -> StoreTransaction | None:
    """Abort the transaction if it is older than its timeout. Return None if it is not."""
    current = transaction.metadata
    is_due = (
        current.state is ONGOING
        and transaction.pending is None
        and current.start_ms + current.timeout_ms < now_ms
    )
    if not is_due:
        return None
    why = f"it was open for longer than its timeout, {current.timeout_ms} ms"
    return fence(transaction, now_ms, SUCCESS, why)


def fence(
    transaction: Transaction, now_ms: int, answer: TransactionAnswer, why: str
) -> StoreTransaction:
    """Abort the transaction under a higher epoch, so that its producer can neither write nor end it any more.

    The epoch applies at once, and stays if the move cannot be stored. It is not raised again in that case: a number of
    failed attempts must not use up the epochs.
    """
    current = transaction.metadata
    assert transaction.can_move_to(PREPARE_EPOCH_FENCE)
    change = abortion(current, why, now_ms)
    epoch = current.producer_epoch + (not transaction.has_failed_fence)
    current = replace(current, producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
    transaction.metadata = current
    after = replace(current, state=PREPARE_ABORT, update_ms=now_ms)
    return begin_move(transaction, after, answer)._replace(is_fence=True, change=change)


# ---- stored moves


def begin_move(
    transaction: Transaction, after: TransactionMetadata, answer: TransactionAnswer
) -> StoreTransaction:
    assert transaction.can_move_to(after.state), f"{transaction.state} to {after.state}"
    transaction.pending = after.state
    return StoreTransaction(after, answer)


def finish_store(
    transaction: Transaction, effect: StoreTransaction, code: ErrorCode
) -> tuple[TransactionAnswer, WriteMarkers | None]:
    """Continue after a StoreTransaction effect. `code` is NONE if the state was stored.

    After a failure the transaction stays in its state, and the client may retry.
    """
    after = effect.after
    assert transaction.pending is after.state, f"{transaction.pending}, stored {after.state}"
    transaction.pending = None
    if code is not ErrorCode.NONE:
        transaction.has_failed_fence |= effect.is_fence
        return TransactionAnswer(code), None
    if after.state is EMPTY:
        # DescribeTransactions shows the start of the last transaction until the next one, as in Kafka.
        after = replace(after, start_ms=transaction.metadata.start_ms)
    transaction.metadata = after
    return effect.answer, begin_completion(transaction)


# ---- markers


class MarkerResult(Enum):
    WRITTEN = auto()
    """The partition has the marker, or will never need it."""
    RETRY = auto()
    """Send the marker again, to the current leader of the partition."""
    SUPERSEDED = auto()
    """A newer coordinator or producer epoch exists. This coordinator must not complete the transaction."""


MARKER_RESULTS = {
    ErrorCode.NONE: MarkerResult.WRITTEN,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: MarkerResult.WRITTEN,
    ErrorCode.UNSUPPORTED_VERSION: MarkerResult.WRITTEN,
    ErrorCode.INVALID_PRODUCER_EPOCH: MarkerResult.SUPERSEDED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: MarkerResult.SUPERSEDED,
}


def classify_marker(code: ErrorCode) -> MarkerResult:
    """Return the result of a marker by its error code in WriteTxnMarkers. Every other error is retried."""
    return MARKER_RESULTS.get(code, MarkerResult.RETRY)


def begin_completion(transaction: Transaction) -> WriteMarkers | None:
    """Return the markers to write if the outcome is decided, and reserve the move to the complete state.

    Also called for each transaction that was loaded from the log.
    """
    current = transaction.metadata
    if current.state not in PREPARED:
        return None
    is_commit = current.state is PREPARE_COMMIT
    transaction.pending = COMPLETE_COMMIT if is_commit else COMPLETE_ABORT
    transaction.has_failed_fence = False
    producer = ProducerIdentity(current.producer_id, current.producer_epoch)
    return WriteMarkers(is_commit, producer, current.partitions)


def finish_markers(
    transaction: Transaction, written: Collection[TopicPartition], now_ms: int
) -> StoreTransaction | None:
    """Remove partitions that have their marker. Return the final move when no partition is left, else None."""
    pending, current = transaction.pending, transaction.metadata
    assert pending in (COMPLETE_COMMIT, COMPLETE_ABORT)
    transaction.metadata = current = replace(
        current, partitions=current.partitions.difference(written)
    )
    if current.partitions:
        return None
    return StoreTransaction(replace(current, state=pending, update_ms=now_ms), SUCCESS)


# ---- expiry of transactional ids


def begin_expiry(transaction: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Move an unused transactional id toward Dead. The caller then appends a tombstone and calls `finish_expiry`."""
    is_due = (
        transaction.can_move_to(DEAD) and transaction.metadata.update_ms <= now_ms - expiration_ms
    )
    if is_due:
        transaction.pending = DEAD
    return is_due


def finish_expiry(transaction: Transaction, code: ErrorCode) -> bool:
    """Return whether the tombstone was stored. The caller then drops the transaction."""
    assert transaction.pending is DEAD
    transaction.pending = None
    if code is not ErrorCode.NONE:
        return False
    transaction.metadata = replace(transaction.metadata, state=DEAD)
    return True
