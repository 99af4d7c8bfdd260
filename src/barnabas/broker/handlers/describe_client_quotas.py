"""DescribeClientQuotas: the quotas of all entities that match a filter."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.broker.config_admin.quota_entities import parse_filter
from barnabas.broker.config_admin.quotas import DescribedEntity, describe_quotas
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.topics import error_fields, to_api_error
from barnabas.errors import ApiError, RegistryError, StorageError
from barnabas.security.acl.model import Operation
from barnabas.tasks import in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuotaEntity,
    DescribedQuotas,
    DescribedQuotaValue,
)


async def handle(
    context: BrokerContext,
    request: DescribeClientQuotasRequest,
    _: RequestHeader,
    connection: Connection,
) -> DescribeClientQuotasResponse:
    try:
        context.security.access.require_cluster(connection, Operation.DESCRIBE_CONFIGS)
        components = request.components
        conditions = await in_thread_if_large(len(components), parse_filter, components)
        found = await describe_quotas(context.registry, conditions, strict=request.strict)
    except (ApiError, RegistryError, StorageError) as error:
        code, message = error_fields(to_api_error(error))
        return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)
    return DescribeClientQuotasResponse(
        entries=await in_thread_if_large(len(found), build_described_quotas, found)
    )


def build_described_quotas(found: Sequence[DescribedEntity]) -> tuple[DescribedQuotas, ...]:
    return tuple(
        DescribedQuotas(
            tuple(DescribedQuotaEntity(*item) for item in names.items()),
            tuple(DescribedQuotaValue(*item) for item in quotas.items()),
        )
        for names, quotas in found
    )
