"""CreatePartitions: adds partitions to topics. Only the active controller serves it."""

from __future__ import annotations

from collections import Counter

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.create_partitions import PartitionIncrease, create_partitions
from barnabas.broker.topic_admin.topics import to_api_error
from barnabas.broker.topic_events import find_requester, is_done, record_topic_request
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
    requester = find_requester(header, connection)._replace(at_ms=context.clock.now_ms())
    names = await in_thread_if_large(len(request.topics), count_names, request)
    outcomes: Outcomes = {}
    if context.controller.is_active:
        outcomes = await in_thread_if_large(len(names), reject_names, names)
        increases = await in_thread_if_large(len(names), parse_requests, request, outcomes)
        if increases:
            outcomes |= await try_create_partitions(context, request, increases)
        if not request.validate_only:
            done = [increase for increase in increases if is_done(outcomes[increase.name])]
            record_in_history(context, done, requester)
    else:
        outcomes |= dict.fromkeys(names, ApiError(ErrorCode.NOT_CONTROLLER))
    return CreatePartitionsResponse(
        results=await in_thread_if_large(len(names), build_results, names, outcomes)
    )


async def try_create_partitions(
    context: BrokerContext, request: CreatePartitionsRequest, increases: list[PartitionIncrease]
) -> Outcomes:
    try:
        return await create_partitions(
            context.topics,
            increases,
            is_queued_for_deletion=context.controller.context.is_topic_queued_for_deletion,
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
        )
    except ApiError as error:
        failure = error
    except (RegistryError, StorageError) as error:
        failure = to_api_error(error)
    return {increase.name: failure for increase in increases}


def record_in_history(
    context: BrokerContext, increases: list[PartitionIncrease], requester: Requester
) -> None:
    for increase in increases:
        record_topic_request(
            context,
            [increase.name],
            requester,
            request="CreatePartitions",
            after=f"grown to {increase.count} partitions",
            facts={increase.name: {"partitions": increase.count}},
        )


def count_names(request: CreatePartitionsRequest) -> Counter[str]:
    return Counter(topic.name for topic in request.topics)


def reject_names(names: Counter[str]) -> Outcomes:
    rejected: Outcomes = {name: duplicate_name(name) for name, count in names.items() if count > 1}
    if "" in names:
        rejected.setdefault("", ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the topic name is empty"))
    return rejected


def parse_requests(request: CreatePartitionsRequest, rejected: Outcomes) -> list[PartitionIncrease]:
    return [parse_request(topic) for topic in request.topics if topic.name not in rejected]


def build_results(
    names: Counter[str], outcomes: Outcomes
) -> tuple[CreatePartitionsTopicResult, ...]:
    """Return one result for each name."""
    return tuple(build_topic_result(name, outcomes[name]) for name in names)


def parse_request(topic: CreatePartitionsTopic) -> PartitionIncrease:
    assignments = topic.assignments
    return PartitionIncrease(
        name=topic.name,
        count=topic.count,
        assignments=None if assignments is None else [each.broker_ids for each in assignments],
    )


def duplicate_name(name: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"topic '{name}' is in the request more than once")


def build_topic_result(name: str, error: ApiError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name)
    return CreatePartitionsTopicResult(name, error.code, error.message or None)
