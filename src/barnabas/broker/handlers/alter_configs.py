"""AlterConfigs: replaces all settings of a topic or a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from barnabas.broker.config_admin.alter import alter_configs
from barnabas.broker.config_admin.operations import ResourceChange, SettingChange
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.security.config_access import find_config_denial
from barnabas.broker.topic_admin.topics import error_fields
from barnabas.errors import ApiError
from barnabas.security.acl.model import Operation
from barnabas.tasks import Turns, in_thread_if_large
from barnabas.wire.codec import count_elements
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.wire.messages.incremental_alter_configs import (
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)

ELEMENTS_COUNTED_MAX = 2000

R = TypeVar("R", AlterConfigsRequest, IncrementalAlterConfigsRequest)


async def handle(
    context: BrokerContext, request: AlterConfigsRequest, _: RequestHeader, connection: Connection
) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=await alter_resources(context, request, parse_replacements, connection)
    )


async def alter_resources(
    context: BrokerContext,
    request: R,
    parse: Callable[[R], list[ResourceChange]],
    connection: Connection,
) -> tuple[AlterConfigsResourceResponse, ...]:
    """Change the settings that an AlterConfigs or IncrementalAlterConfigs request names."""
    size = count_elements(request, ELEMENTS_COUNTED_MAX)
    requested = await in_thread_if_large(size, parse, request)
    denials = await find_denials(context, requested, connection)
    allowed = [each for each, error in zip(requested, denials, strict=True) if error is None]
    results = iter(await alter_configs(context, allowed, validate_only=request.validate_only))
    errors = [next(results) if error is None else error for error in denials]
    return await in_thread_if_large(len(errors), build_alter_results, requested, errors)


async def find_denials(
    context: BrokerContext, requested: Sequence[ResourceChange], connection: Connection
) -> list[ApiError | None]:
    """Return the error of each resource whose settings the principal may not change, or None."""
    access, denials = context.security.access, []
    turns = Turns()
    for each in requested:
        denial = find_config_denial(
            access, connection, Operation.ALTER_CONFIGS, each.type, each.name
        )
        denials.append(denial)
        await turns.yield_if_due()
    return denials


def parse_replacements(request: AlterConfigsRequest) -> list[ResourceChange]:
    return [
        ResourceChange(
            type=resource.resource_type,
            name=resource.resource_name,
            changes=tuple(
                SettingChange(each.name, ConfigOperation.SET, each.value)
                for each in resource.configs
            ),
            keeps_others=False,
        )
        for resource in request.resources
    ]


def build_alter_results(
    requested: Sequence[ResourceChange], errors: Sequence[ApiError | None]
) -> tuple[AlterConfigsResourceResponse, ...]:
    return tuple(
        AlterConfigsResourceResponse(*error_fields(error), each.type, each.name)
        for each, error in zip(requested, errors, strict=True)
    )
