"""CreatePartitions: adds partitions to topics. Only the active controller serves it."""

from __future__ import annotations

from collections import Counter

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.mutation_quotas import throttle_connection
from barnabas.broker.topic_admin.create_partitions import create_partitions
from barnabas.broker.topic_admin.topics import error_fields, to_api_error
from barnabas.broker.topic_events import find_requester, is_written, record_topic_request
from barnabas.controller.mutation_quota import UNLIMITED_MUTATIONS, MutationQuota
from barnabas.errors import ApiError, ErrorCode, RegistryError, StorageError
from barnabas.security.acl.model import Operation
from barnabas.tasks import Turns, in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_QUOTA_SINCE = 3

Outcomes = dict[str, ApiError | None]


async def handle(
    context: BrokerContext,
    request: CreatePartitionsRequest,
    header: RequestHeader,
    connection: Connection,
) -> CreatePartitionsResponse:
    requester = find_requester(header, connection)._replace(at_ms=context.clock.now_ms())
    size = len(request.topics)
    outcomes, increases = await in_thread_if_large(size, check_names, request)
    quota = UNLIMITED_MUTATIONS
    if context.controller.is_active and context.security.access.is_enabled:
        increases = await reject_denied(context, connection, increases, outcomes)
    if not context.controller.is_active:
        outcomes = dict.fromkeys(outcomes, ApiError(ErrorCode.NOT_CONTROLLER))
    elif increases:
        is_strict = header.api_version >= STRICT_QUOTA_SINCE
        user = connection.principal.name
        quota = await context.mutation_quotas.open(user, header.client_id, is_strict=is_strict)
        outcomes |= await try_create_partitions(context, request, increases, quota)
        for increase in increases:
            if not request.validate_only and is_written(outcomes[increase.name]):
                record_topic_request(
                    context,
                    [increase.name],
                    requester,
                    request="CreatePartitions",
                    after=f"grown to {increase.count} partitions",
                    facts={increase.name: {"partitions": increase.count}},
                )
    results = await in_thread_if_large(size, build_results, outcomes)
    return CreatePartitionsResponse(
        results=results, throttle_time_ms=throttle_connection(connection, quota)
    )


async def reject_denied(
    context: BrokerContext,
    connection: Connection,
    increases: list[CreatePartitionsTopic],
    outcomes: Outcomes,
) -> list[CreatePartitionsTopic]:
    """Return the topics that the principal may alter. The others get an error."""
    allowed = []
    turns = Turns()
    for each in increases:
        if context.security.access.allows_topic(connection, Operation.ALTER, each.name):
            allowed.append(each)
        else:
            error = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Alter is not allowed")
            outcomes[each.name] = error
        await turns.yield_if_due()
    return allowed


def check_names(request: CreatePartitionsRequest) -> tuple[Outcomes, list[CreatePartitionsTopic]]:
    """Return the error of each name, or None, and the topics without an error."""
    names = Counter(topic.name for topic in request.topics)
    errors = {name: find_name_error(name, count) for name, count in names.items()}
    return errors, [topic for topic in request.topics if errors[topic.name] is None]


def find_name_error(name: str, count: int) -> ApiError | None:
    if count > 1:
        why = f"topic '{name}' is in the request more than once"
        return ApiError(ErrorCode.INVALID_REQUEST, why)
    return None if name else ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the topic name is empty")


async def try_create_partitions(
    context: BrokerContext,
    request: CreatePartitionsRequest,
    increases: list[CreatePartitionsTopic],
    quota: MutationQuota,
) -> Outcomes:
    try:
        return await create_partitions(
            context.topics,
            increases,
            is_queued_for_deletion=context.controller.context.is_topic_queued_for_deletion,
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
            quota=quota,
        )
    except (ApiError, RegistryError, StorageError) as error:
        return dict.fromkeys((increase.name for increase in increases), to_api_error(error))


def build_results(outcomes: Outcomes) -> tuple[CreatePartitionsTopicResult, ...]:
    return tuple(
        CreatePartitionsTopicResult(name, *error_fields(error)) for name, error in outcomes.items()
    )
