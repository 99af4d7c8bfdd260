"""EndTxn: commits or aborts the transaction of a producer. Answered when the decision is stored."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.security.acl.model import Operation
from barnabas.transactions.transaction_events import ProducerIdentity, client_error
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

PRODUCER_FENCED_SINCE = 2


async def handle(
    context: BrokerContext, request: EndTxnRequest, header: RequestHeader, connection: Connection
) -> EndTxnResponse:
    access = context.security.access
    if not access.allows_transactional_id(connection, Operation.WRITE, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    code = await context.transactions.end(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        is_commit=request.committed,
    )
    has_fenced = header.api_version >= PRODUCER_FENCED_SINCE
    return EndTxnResponse(error_code=client_error(code, supports_fenced=has_fenced))
