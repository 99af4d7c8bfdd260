"""ElectLeaders: elects preferred or unclean leaders at the request of an administrator.

    request ─► the controller's queue ─► the new leader of each partition ─► wait for the metadata cache

Only the active controller serves it; other brokers return NOT_CONTROLLER. A timeout does not undo the election.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.handlers.controller_queue import wait_for_controller
from barnabas.broker.topic_admin.topics import error_fields, remove_when_done
from barnabas.controller.elections import Strategy
from barnabas.controller.events import ElectLeadersReceived
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.cache import MetadataCache
from barnabas.model import BrokerId, TopicPartition
from barnabas.security.acl.model import Operation
from barnabas.tasks import in_chunks, in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.elect_leaders import (
    ElectionType,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
)

ELECTED_AT_ONCE = 1000
"""Maximum number of partitions in one controller event, since other events wait meanwhile."""
Outcomes = Mapping[TopicPartition, BrokerId | ApiError]
STRATEGIES: dict[int, Strategy] = {
    ElectionType.PREFERRED: Strategy.PREFERRED,
    ElectionType.UNCLEAN: Strategy.OFFLINE_UNCLEAN,
}


async def handle(
    context: BrokerContext, request: ElectLeadersRequest, _: RequestHeader, connection: Connection
) -> ElectLeadersResponse:
    size = sum(len(topic.partitions) for topic in request.topic_partitions or ())
    if not context.security.access.allows_cluster(connection, Operation.ALTER):
        return await in_thread_if_large(size, reject_denied, request)
    partitions = await in_thread_if_large(size, requested_partitions, request, context.metadata)
    strategy = STRATEGIES.get(request.election_type)
    if strategy is None:
        why = f"election type {request.election_type} is neither 0 (preferred) nor 1 (unclean)"
        rejected = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why)
        return ElectLeadersResponse(
            error_code=rejected.code,
            replica_election_results=await in_thread_if_large(
                len(partitions), results_by_topic, dict.fromkeys(partitions, rejected)
            ),
        )
    outcomes = await elect_chunks(context, partitions, strategy)
    errors = await wait_for_leaders(context.metadata, outcomes, request.timeout_ms)
    if request.topic_partitions is None:
        # A request for all partitions reports only those with an election or an error.
        errors = {
            partition: error
            for partition, error in errors.items()
            if error is None or error.code is not ErrorCode.ELECTION_NOT_NEEDED
        }
    return ElectLeadersResponse(
        replica_election_results=await in_thread_if_large(len(errors), results_by_topic, errors)
    )


def reject_denied(request: ElectLeadersRequest) -> ElectLeadersResponse:
    error = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    errors: dict[TopicPartition, ApiError | None] = {
        TopicPartition(topic.topic, index): error
        for topic in request.topic_partitions or ()
        for index in topic.partitions
    }
    return ElectLeadersResponse(
        error_code=error.code, replica_election_results=results_by_topic(errors)
    )


def requested_partitions(
    request: ElectLeadersRequest, metadata: MetadataCache
) -> tuple[TopicPartition, ...]:
    if request.topic_partitions is None:
        return tuple(
            TopicPartition(name, index)
            for name, topic in metadata.topics.items()
            for index in topic.partitions
        )
    return tuple(
        dict.fromkeys(
            TopicPartition(topic.topic, index)
            for topic in request.topic_partitions
            for index in topic.partitions
        )
    )


async def elect_chunks(
    context: BrokerContext, partitions: tuple[TopicPartition, ...], strategy: Strategy
) -> Outcomes:
    if not context.controller.is_active:
        return dict.fromkeys(partitions, ApiError(ErrorCode.NOT_CONTROLLER))
    outcomes: dict[TopicPartition, BrokerId | ApiError] = {}
    async for chunk in in_chunks(partitions, ELECTED_AT_ONCE):
        event = partial(ElectLeadersReceived, chunk, strategy)
        found: Outcomes | ApiError = await wait_for_controller(context.controller.queue, event)
        outcomes |= dict.fromkeys(chunk, found) if isinstance(found, ApiError) else found
    return outcomes


async def wait_for_leaders(
    metadata: MetadataCache, outcomes: Outcomes, timeout_ms: int
) -> dict[TopicPartition, ApiError | None]:
    """Wait until the metadata cache has the new leaders. Return the error of each partition, or None."""
    waiting = await in_thread_if_large(len(outcomes), elected_leaders, outcomes)
    await remove_when_done(metadata, waiting, partial(is_leader, metadata), timeout_ms)
    return await in_thread_if_large(len(outcomes), collect_errors, outcomes, waiting)


def elected_leaders(outcomes: Outcomes) -> dict[TopicPartition, BrokerId]:
    return {
        partition: leader
        for partition, leader in outcomes.items()
        if not isinstance(leader, ApiError)
    }


def collect_errors(
    outcomes: Outcomes, waiting: Mapping[TopicPartition, BrokerId]
) -> dict[TopicPartition, ApiError | None]:
    late = dict.fromkeys(waiting, ApiError(ErrorCode.REQUEST_TIMED_OUT))
    return {
        partition: outcome if isinstance(outcome, ApiError) else late.get(partition)
        for partition, outcome in outcomes.items()
    }


def is_leader(metadata: MetadataCache, partition: TopicPartition, leader: BrokerId) -> bool:
    topic = metadata.topics.get(partition.topic)
    state = None if topic is None else topic.partitions.get(partition.partition)
    return state is not None and state.leader == leader


def results_by_topic(
    errors: Mapping[TopicPartition, ApiError | None],
) -> tuple[ElectLeadersTopicResult, ...]:
    found: dict[str, list[ElectLeadersPartitionResult]] = {}
    for (topic, index), error in errors.items():
        result = ElectLeadersPartitionResult(index, *error_fields(error))
        found.setdefault(topic, []).append(result)
    return tuple(ElectLeadersTopicResult(topic, tuple(each)) for topic, each in found.items())
