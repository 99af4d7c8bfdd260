"""AlterClientQuotas: sets and removes quotas of users, client ids and IP addresses."""

from __future__ import annotations

from barnabas.broker.config_admin.quota_entities import QuotaOperation
from barnabas.broker.config_admin.quotas import alter_quotas
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.topics import error_fields, to_api_error
from barnabas.errors import ApiError, RegistryError, StorageError
from barnabas.security.acl.model import Operation
from barnabas.tasks import Turns, in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotas,
    AlteredQuotasResult,
)


async def handle(
    context: BrokerContext,
    request: AlterClientQuotasRequest,
    _: RequestHeader,
    connection: Connection,
) -> AlterClientQuotasResponse:
    controller_version: int | None = None
    failed: ApiError | None = None
    try:
        context.security.access.require_cluster(connection, Operation.ALTER_CONFIGS)
        if not request.validate_only:
            controller_version = await context.topics.controller_version()
    except (ApiError, RegistryError, StorageError) as failure:
        failed = to_api_error(failure)
    results = []
    turns = Turns()
    # One after the other: the request may name an entity twice.
    for entry in request.entries:
        error = failed
        if failed is None:
            operations = await in_thread_if_large(len(entry.ops), parse_operations, entry)
            error = await alter_quotas(
                context, entry.entity, operations, controller_version=controller_version
            )
        results.append(AlteredQuotasResult(*error_fields(error), entry.entity))
        await turns.yield_if_due()
    return AlterClientQuotasResponse(entries=tuple(results))


def parse_operations(entry: AlteredQuotas) -> list[QuotaOperation]:
    return [QuotaOperation(op.key, None if op.remove else op.value) for op in entry.ops]
