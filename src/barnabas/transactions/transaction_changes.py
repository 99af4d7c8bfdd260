"""Changes of transactional ids that the history records. Most are not requested by the producer itself.

    aborted      after its timeout, or because another producer was initialized; its producer is fenced
    fenced       a request of a producer that is fenced was rejected; recorded once per producer epoch
    taken over   a new coordinator found an open transaction, or one whose outcome was decided
    expired      the transactional id was not used for transactional.id.expiration.ms

Commits and aborts by the producer itself are not recorded.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from barnabas.model import NO_TIMESTAMP
from barnabas.transactions.transaction import (
    ONGOING,
    PREPARE_COMMIT,
    PREPARED,
    Transaction,
    TransactionMetadata,
)


class TransactionClient(NamedTuple):
    """The client that sent a request: its client id and host."""

    client_id: str | None
    host: str


class TransactionChange(Struct, frozen=True, kw_only=True):
    """A change to record. `producer_id` and `producer_epoch` are those of the producer that it affects."""

    after: str
    producer_id: int
    producer_epoch: int
    why: str | None = None
    partitions: int | None = None
    open_ms: int | None = None
    """Age of the transaction."""


def abortion(before: TransactionMetadata, why: str, now_ms: int) -> TransactionChange:
    """Return the change of an ongoing transaction that the coordinator aborts."""
    return TransactionChange(
        after="aborted",
        producer_id=before.producer_id,
        producer_epoch=before.producer_epoch,
        why=why,
        partitions=len(before.partitions),
        open_ms=age_ms(before, now_ms),
    )


def takeover(transaction: Transaction, now_ms: int) -> TransactionChange | None:
    """Return the change of a transaction that was loaded from the log. None if no transaction was open."""
    current = transaction.metadata
    if current.state is ONGOING:
        why = "its producer may continue"
    elif current.state in PREPARED:
        outcome = "commit" if current.state is PREPARE_COMMIT else "abort"
        why = f"the {outcome} was decided, and is being completed"
    else:
        return None
    return TransactionChange(
        after="taken over",
        producer_id=current.producer_id,
        producer_epoch=current.producer_epoch,
        why=why,
        partitions=len(current.partitions),
        open_ms=age_ms(current, now_ms),
    )


def fencing(
    transaction: Transaction, producer_id: int, epoch: int, request: str
) -> TransactionChange | None:
    """Return the change for a rejected request of a fenced producer. None if it was returned before."""
    if transaction.reported_fence == (producer_id, epoch):
        return None
    transaction.reported_fence = (producer_id, epoch)
    current = transaction.metadata
    if current.producer_id == producer_id:
        why = f"{request} was rejected: the current epoch is {current.producer_epoch}"
    else:
        why = f"{request} was rejected: the current producer id is {current.producer_id}"
    return TransactionChange(after="fenced", producer_id=producer_id, producer_epoch=epoch, why=why)


def expiry(transaction: Transaction, expiration_ms: int) -> TransactionChange:
    current = transaction.metadata
    return TransactionChange(
        after="expired",
        producer_id=current.producer_id,
        producer_epoch=current.producer_epoch,
        why=f"not used for {expiration_ms} ms (transactional.id.expiration.ms)",
    )


def age_ms(current: TransactionMetadata, now_ms: int) -> int | None:
    return None if current.start_ms == NO_TIMESTAMP else max(0, now_ms - current.start_ms)
