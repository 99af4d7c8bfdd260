"""AlterClientQuotas: sets and removes quotas of users, client ids and IP addresses."""

from __future__ import annotations

from barnabas.broker.config_admin.quota_entities import QuotaOperation
from barnabas.broker.config_admin.quotas import alter_quotas
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.topics import error_fields
from barnabas.tasks import Turns
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotasResult,
)


async def handle(
    context: BrokerContext, request: AlterClientQuotasRequest, _: RequestHeader, __: Connection
) -> AlterClientQuotasResponse:
    results = []
    turns = Turns()
    # One after the other: the request may name an entity twice.
    for entry in request.entries:
        operations = [QuotaOperation(op.key, None if op.remove else op.value) for op in entry.ops]
        error = await alter_quotas(
            context, entry.entity, operations, validate_only=request.validate_only
        )
        results.append(AlteredQuotasResult(*error_fields(error), entry.entity))
        await turns.yield_if_due()
    return AlterClientQuotasResponse(entries=tuple(results))
