"""AddPartitionsToTxn: adds partitions to transactions, or verifies that transactions have them.

Clients send one transaction (versions 0 to 3). Brokers send many, mostly to verify them (versions 4 and 5). If one
partition of a transaction cannot be added, none is: the others get OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.model import TopicPartition
from barnabas.security.acl.model import Operation
from barnabas.tasks import Turns, in_thread_if_large
from barnabas.transactions.transaction_events import ProducerIdentity, client_error
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

MANY_TRANSACTIONS_SINCE = 4
PRODUCER_FENCED_SINCE = 2
PARTITIONS_OF_COORDINATORS = (CONSUMER_OFFSETS, TRANSACTION_STATE)
"""Topics that clients cannot add. AddOffsetsToTxn adds a partition of `__consumer_offsets`."""

AddResults = dict[TopicPartition, ErrorCode]


def handle(
    context: BrokerContext,
    request: AddPartitionsToTxnRequest,
    header: RequestHeader,
    connection: Connection,
) -> Work[AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]]:
    version = header.api_version
    transactions = request.transactions
    access = context.security.access
    if version >= MANY_TRANSACTIONS_SINCE and not access.is_broker(connection):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if version < MANY_TRANSACTIONS_SINCE:
        transactions = (
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            ),
        )
    checked = []
    for transaction in transactions:
        codes: AddResults = {}
        is_denied = version < MANY_TRANSACTIONS_SINCE and not access.allows_transactional_id(
            connection, Operation.WRITE, transaction.transactional_id
        )
        for name, indexes in transaction.topics:
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            if not is_denied:
                error = find_topic_error(context, name, version, connection)
            for index in indexes:
                if error is ErrorCode.NONE and not context.metadata.has_partition(name, index):
                    codes[TopicPartition(name, index)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    codes[TopicPartition(name, index)] = error
                yield None
            yield None
        checked.append((transaction, codes))
        yield None
    return change_transactions(context, checked, version)


def find_topic_error(
    context: BrokerContext, name: str, version: int, connection: Connection
) -> ErrorCode:
    """Return the error of a topic that the client may not write. Brokers, with later versions, may add any topic."""
    if version >= MANY_TRANSACTIONS_SINCE:
        return ErrorCode.NONE
    if name in PARTITIONS_OF_COORDINATORS or not context.security.access.allows_topic(
        connection, Operation.WRITE, name
    ):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE


async def change_transactions(
    context: BrokerContext,
    checked: list[tuple[AddPartitionsToTxnTransaction, AddResults]],
    version: int,
) -> AddPartitionsToTxnResponse:
    turns = Turns()
    results = []
    for transaction, codes in checked:
        await turns.yield_if_due()
        found = await change_transaction(context, transaction, codes, version)
        size = sum(1 + len(indexes) for _, indexes in transaction.topics)
        results.append(await in_thread_if_large(size, build_txn_result, transaction, found))
    if version < MANY_TRANSACTIONS_SINCE:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)
    return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))


async def change_transaction(
    context: BrokerContext,
    transaction: AddPartitionsToTxnTransaction,
    codes: AddResults,
    version: int,
) -> AddResults:
    """Add or verify the partitions of one transaction. Return the error codes by partition."""
    if any(codes.values()):
        return {each: code or ErrorCode.OPERATION_NOT_ATTEMPTED for each, code in codes.items()}
    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    coordinator, transactional_id = context.transactions, transaction.transactional_id
    if transaction.verify_only:
        return coordinator.verify_partitions(transactional_id, producer, codes)
    code = await coordinator.add_partitions(transactional_id, producer, codes)
    has_fenced = version >= PRODUCER_FENCED_SINCE
    return dict.fromkeys(codes, client_error(code, supports_fenced=has_fenced))


def build_txn_result(
    transaction: AddPartitionsToTxnTransaction, codes: AddResults
) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transaction.transactional_id,
        tuple(
            AddPartitionsToTxnTopicResult(
                name,
                tuple(
                    AddPartitionsToTxnPartitionResult(index, codes[TopicPartition(name, index)])
                    for index in indexes
                ),
            )
            for name, indexes in transaction.topics
            # As in Kafka, only an added topic appears in the response without partitions.
            if indexes or not transaction.verify_only
        ),
    )
