"""DescribeTransactions: the state of transactional ids that this broker coordinates."""

from __future__ import annotations

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ApiError, ErrorCode
from barnabas.security.acl.model import Operation
from barnabas.transactions.records import group_by_topic
from barnabas.transactions.transaction import DEAD
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


def handle(
    context: BrokerContext,
    request: DescribeTransactionsRequest,
    _: RequestHeader,
    connection: Connection,
) -> Work[DescribeTransactionsResponse]:
    # A request may name an id many times. All its results share one tuple of partitions.
    described: dict[str, DescribedTransaction] = {}
    for transactional_id in request.transactional_ids:
        if transactional_id not in described:
            described[transactional_id] = describe_transaction(
                context, transactional_id, connection
            )
        yield None
    return DescribeTransactionsResponse(
        transaction_states=tuple(map(described.__getitem__, request.transactional_ids))
    )


def describe_transaction(
    context: BrokerContext, transactional_id: str, connection: Connection
) -> DescribedTransaction:
    """Describe a transaction, with the topics that the client may describe."""
    access = context.security.access
    if not access.allows_transactional_id(connection, Operation.DESCRIBE, transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return DescribedTransaction(code, transactional_id)
    try:
        transaction = context.transactions.find(transactional_id)
    except ApiError as error:
        return DescribedTransaction(error.code, transactional_id)
    if transaction is None or transaction.state is DEAD:
        return DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    metadata = transaction.metadata
    return DescribedTransaction(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=metadata.state,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=tuple(
            DescribedTransactionTopic(name, indexes)
            for name, indexes in group_by_topic(metadata.partitions)
            if access.allows_topic(connection, Operation.DESCRIBE, name, is_audited=False)
        ),
    )
