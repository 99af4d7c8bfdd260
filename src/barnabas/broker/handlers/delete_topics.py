"""DeleteTopics: deletes topics by name or id. Only the active controller serves it."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.mutation_quotas import throttle_connection
from barnabas.broker.security.access import Access
from barnabas.broker.topic_admin.delete_topics import delete_topics
from barnabas.broker.topic_admin.topics import error_fields
from barnabas.broker.topic_events import find_requester, is_written, record_topic_request
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import ZERO_ID
from barnabas.security.acl.model import Operation
from barnabas.tasks import Turns, in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

BY_ID_SINCE = 6
RESULTS_PER_TURN = 500
STRICT_QUOTA_SINCE = 5
DISABLED_SINCE = 3  # earlier versions have no error code for disabled deletion


async def handle(
    context: BrokerContext,
    request: DeleteTopicsRequest,
    header: RequestHeader,
    connection: Connection,
) -> DeleteTopicsResponse:
    requester = find_requester(header, connection)._replace(at_ms=context.clock.now_ms())
    version = header.api_version
    wanted = (
        request.topics
        if version >= BY_ID_SINCE
        else tuple(DeleteTopicState(name=name) for name in request.topic_names)
    )
    turns = Turns(RESULTS_PER_TURN)
    error = await in_thread_if_large(len(wanted), find_request_error, context, wanted, version)
    if error is not None:
        failed = await in_thread_if_large(len(wanted), build_deletion_errors, wanted, error)
        return DeleteTopicsResponse(responses=failed)
    resolved: list[str | ApiError | DeletableTopicResult] = []
    names = []
    name: str | ApiError | DeletableTopicResult
    for topic in wanted:
        name = resolve_topic(context, topic)
        if isinstance(name, str):
            denied = find_denial(context.security.access, connection, topic, name)
            if denied is None:
                names.append(name)
            else:
                name = denied
        resolved.append(name)
        await turns.yield_if_due()
    quota = await context.mutation_quotas.open(
        connection.principal.name, header.client_id, is_strict=version >= STRICT_QUOTA_SINCE
    )
    outcomes = await delete_topics(
        context.topics, names, timeout_ms=request.timeout_ms, quota=quota
    )
    written = await in_thread_if_large(len(outcomes), select_written, outcomes)
    record_topic_request(
        context, written, requester, request="DeleteTopics", after="marked for deletion"
    )
    results = []
    for topic, found in zip(wanted, resolved, strict=True):
        await turns.yield_if_due()
        if isinstance(found, DeletableTopicResult):
            results.append(found)
        elif isinstance(found, ApiError):
            results.append(DeletableTopicResult(*topic, *error_fields(found)))
        else:
            fields = error_fields(outcomes[found])
            results.append(DeletableTopicResult(found, topic.topic_id, *fields))
    return DeleteTopicsResponse(
        responses=tuple(results), throttle_time_ms=throttle_connection(connection, quota)
    )


def find_denial(
    access: Access, connection: Connection, topic: DeleteTopicState, name: str
) -> DeletableTopicResult | None:
    """Return the result of a topic that the principal may not delete, or None.

    The name of a topic that was requested by id is in the result only if the principal may describe it.
    """
    if access.allows_topic(connection, Operation.DELETE, name):
        return None
    is_known = topic.name is not None or access.allows_topic(
        connection, Operation.DESCRIBE, name, is_audited=False
    )
    return DeletableTopicResult(
        name if is_known else None, topic.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
    )


def find_request_error(
    context: BrokerContext, wanted: tuple[DeleteTopicState, ...], version: int
) -> ApiError | None:
    """Return the error of the whole request, if any."""
    if not context.controller.is_active:
        return ApiError(ErrorCode.NOT_CONTROLLER)
    if not context.config.delete_topic_enable:
        if version < DISABLED_SINCE:
            return ApiError(ErrorCode.INVALID_REQUEST)
        return ApiError(ErrorCode.TOPIC_DELETION_DISABLED)
    if any(topic.name is not None and topic.topic_id != ZERO_ID for topic in wanted):
        return ApiError(
            ErrorCode.INVALID_REQUEST, "a topic has both a name and an id; send one of them"
        )
    return None


def resolve_topic(context: BrokerContext, topic: DeleteTopicState) -> str | ApiError:
    """Return the name of a topic, or an error if its id is unknown or missing."""
    if topic.name is not None:
        return topic.name
    if topic.topic_id == ZERO_ID:
        # The error of Kafka: a null name is never among the authorized topics.
        return ApiError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a topic has neither a name nor an id"
        )
    # Unlike the metadata cache, the controller keeps the id until the deletion is complete.
    name = context.controller.context.topic_names.get(topic.topic_id)
    if name is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {topic.topic_id}")
    return name


def select_written(outcomes: Mapping[str, ApiError | None]) -> list[str]:
    """Return the topics whose deletion is in the registry, also those that timed out."""
    return [name for name, error in outcomes.items() if is_written(error)]


def build_deletion_errors(
    wanted: tuple[DeleteTopicState, ...], error: ApiError
) -> tuple[DeletableTopicResult, ...]:
    return tuple(DeletableTopicResult(*topic, *error_fields(error)) for topic in wanted)
