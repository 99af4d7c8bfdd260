"""ListTransactions: the transactional ids that this broker coordinates, by state, producer id and duration."""

from __future__ import annotations

from barnabas.broker.bounded_work import Work, call_in_thread_if_large
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.security.acl.model import Operation
from barnabas.transactions.transaction import DEAD, TransactionMetadata, TransactionState
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

STATE_NAMES = frozenset(str(state) for state in TransactionState)


def handle(
    context: BrokerContext,
    request: ListTransactionsRequest,
    _: RequestHeader,
    connection: Connection,
) -> Work[ListTransactionsResponse]:
    coordinator = context.transactions
    if coordinator.is_stopping:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if coordinator.store.loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    size = len(request.state_filters) + len(request.producer_id_filters)
    states, producer_ids, unknown = yield from call_in_thread_if_large(size, read_filters, request)
    now_ms = context.clock.now_ms()
    found = []
    access = context.security.access
    for transaction in list(coordinator.transactions.values()):
        metadata = transaction.metadata
        if (
            metadata.state is not DEAD
            and (not states or metadata.state in states)
            and (not producer_ids or metadata.producer_id in producer_ids)
            and is_longer_than(metadata, request.duration_filter, now_ms)
            and access.allows_transactional_id(
                connection, Operation.DESCRIBE, transaction.transactional_id, is_audited=False
            )
        ):
            found.append(
                ListedTransaction(
                    transaction.transactional_id, metadata.producer_id, metadata.state
                )
            )
        yield None  # lets other requests run
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=tuple(found))


def read_filters(
    request: ListTransactionsRequest,
) -> tuple[set[str], set[int], tuple[str, ...]]:
    """Return the states, the producer ids, and the states that do not exist."""
    states = set(request.state_filters)
    return states, set(request.producer_id_filters), tuple(sorted(states - STATE_NAMES))


def is_longer_than(metadata: TransactionMetadata, duration_ms: int, now_ms: int) -> bool:
    """Return whether the transaction started more than `duration_ms` ago. A negative duration accepts all."""
    return duration_ms < 0 or now_ms - metadata.start_ms > duration_ms
