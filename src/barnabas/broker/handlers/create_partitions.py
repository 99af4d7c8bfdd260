"""CreatePartitions: adds partitions to topics. Only the broker of the active controller serves it."""

from __future__ import annotations

from collections import Counter

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.create_partitions import NewPartitions, create_partitions
from barnabas.broker.topic_admin.topics import to_api_error
from barnabas.broker.topic_events import is_done, record_topic_request, requester_of
from barnabas.errors import ApiError, ErrorCode, RegistryError, StorageError
from barnabas.history.requester import Requester
from barnabas.tasks import in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

Outcomes = dict[str, ApiError | None]


async def handle(
    context: BrokerContext,
    request: CreatePartitionsRequest,
    header: RequestHeader,
    connection: Connection,
) -> CreatePartitionsResponse:
    requester = requester_of(header, connection)._replace(at_ms=context.clock.now_ms())
    asked = await in_thread_if_large(len(request.topics), count_names, request)
    outcomes: Outcomes = {}
    if context.controller.is_active:
        outcomes = await in_thread_if_large(len(asked), refused_names, asked)
        wishes = await in_thread_if_large(len(asked), wishes_of, request, outcomes)
        if wishes:
            outcomes |= await create(context, request, wishes)
        if not request.validate_only:
            done = [wish for wish in wishes if is_done(outcomes[wish.name])]
            record_in_history(context, done, requester)
    else:
        outcomes |= dict.fromkeys(asked, ApiError(ErrorCode.NOT_CONTROLLER))
    return CreatePartitionsResponse(
        results=await in_thread_if_large(len(asked), results_of, asked, outcomes)
    )


async def create(
    context: BrokerContext, request: CreatePartitionsRequest, wishes: list[NewPartitions]
) -> Outcomes:
    try:
        return await create_partitions(
            context.topics,
            wishes,
            is_queued_for_deletion=context.controller.context.is_topic_queued_for_deletion,
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
        )
    except ApiError as error:
        why = error
    except (RegistryError, StorageError) as error:
        why = to_api_error(error)
    return {wish.name: why for wish in wishes}


def record_in_history(
    context: BrokerContext, wishes: list[NewPartitions], requester: Requester
) -> None:
    for wish in wishes:
        record_topic_request(
            context,
            [wish.name],
            requester,
            request="CreatePartitions",
            after=f"grown to {wish.count} partitions",
            facts={wish.name: {"partitions": wish.count}},
        )


def count_names(request: CreatePartitionsRequest) -> Counter[str]:
    return Counter(topic.name for topic in request.topics)


def refused_names(asked: Counter[str]) -> Outcomes:
    refused: Outcomes = {name: duplicate_name(name) for name, count in asked.items() if count > 1}
    if "" in asked:
        refused.setdefault("", ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "a topic has a name"))
    return refused


def wishes_of(request: CreatePartitionsRequest, refused: Outcomes) -> list[NewPartitions]:
    return [wish_of(topic) for topic in request.topics if topic.name not in refused]


def results_of(asked: Counter[str], outcomes: Outcomes) -> tuple[CreatePartitionsTopicResult, ...]:
    """Return one result for each name."""
    return tuple(result(name, outcomes[name]) for name in asked)


def wish_of(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        name=topic.name,
        count=topic.count,
        assignments=None if assignments is None else [each.broker_ids for each in assignments],
    )


def duplicate_name(name: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"'{name}' is asked for more than once")


def result(name: str, error: ApiError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name)
    return CreatePartitionsTopicResult(name, error.code, error.message or None)
