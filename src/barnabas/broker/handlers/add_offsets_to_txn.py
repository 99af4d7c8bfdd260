"""AddOffsetsToTxn: adds the partition of a group in `__consumer_offsets` to the transaction of a producer.

TxnOffsetCommit then writes offsets to that partition, and EndTxn writes a marker to it.
"""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.model import TopicPartition
from barnabas.security.acl.model import Operation
from barnabas.transactions.transaction_events import ProducerIdentity, client_error
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

PRODUCER_FENCED_SINCE = 2


async def handle(
    context: BrokerContext,
    request: AddOffsetsToTxnRequest,
    header: RequestHeader,
    connection: Connection,
) -> AddOffsetsToTxnResponse:
    access = context.security.access
    if not access.allows_transactional_id(connection, Operation.WRITE, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not access.allows_group(connection, Operation.READ, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    index = context.group_store.partition_for(request.group_id)
    code = await context.transactions.add_partitions(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        [TopicPartition(CONSUMER_OFFSETS, index)],
    )
    has_fenced = header.api_version >= PRODUCER_FENCED_SINCE
    return AddOffsetsToTxnResponse(error_code=client_error(code, supports_fenced=has_fenced))
