"""LeaderAndIsr: the controller assigns the partitions that this broker leads or follows."""

from __future__ import annotations

import logging

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode, RegistryError
from barnabas.model import TopicPartition
from barnabas.tasks import in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)

logger = logging.getLogger("barnabas.control")
TOPIC_IDS_SINCE = 5
Topics = tuple[LeaderAndIsrTopicState, ...]


async def handle(
    context: BrokerContext,
    request: LeaderAndIsrRequest,
    header: RequestHeader,
    connection: Connection,
) -> LeaderAndIsrResponse:
    version = header.api_version
    topics = request.topic_states or group_by_topic(request.ungrouped_partition_states)
    async with context.control.admit("LeaderAndIsr", request, connection) as error:
        if error:
            return await reject(topics, version, error)
        try:
            # A log is created with the settings of its topic, which are only in the registry if the topic is new.
            await context.topics.refresh(sorted(context.replicas.topics_without_log(topics)))
        except RegistryError as registry_error:
            logger.error("cannot read topic settings error=%s", registry_error)
            return await reject(topics, version, ErrorCode.UNKNOWN_SERVER_ERROR)
        errors = await context.replicas.become_leader_or_follower(topics, context.topics.config_of)
    return await in_thread_if_large(
        len(errors), build_leader_and_isr_response, topics, version, errors
    )


def group_by_topic(states: tuple[LeaderAndIsrPartitionState, ...]) -> Topics:
    """Group the flat list of versions 0 and 1 by topic."""
    by_topic: dict[str, list[LeaderAndIsrPartitionState]] = {}
    for state in states:
        by_topic.setdefault(state.topic_name, []).append(state)
    return tuple(
        LeaderAndIsrTopicState(topic_name=name, partition_states=tuple(found))
        for name, found in by_topic.items()
    )


async def reject(topics: Topics, version: int, code: ErrorCode) -> LeaderAndIsrResponse:
    """Return the same error for each partition of the request."""
    size = sum(1 + len(topic.partition_states) for topic in topics)
    return await in_thread_if_large(size, reject_all, topics, version, code)


def reject_all(topics: Topics, version: int, code: ErrorCode) -> LeaderAndIsrResponse:
    errors = {
        TopicPartition(topic.topic_name, state.partition_index): code
        for topic in topics
        for state in topic.partition_states
    }
    return build_leader_and_isr_response(topics, version, errors, code)


def build_leader_and_isr_response(
    topics: Topics,
    version: int,
    errors: dict[TopicPartition, ErrorCode],
    code: ErrorCode = ErrorCode.NONE,
) -> LeaderAndIsrResponse:
    if version < TOPIC_IDS_SINCE:
        flat = tuple(LeaderAndIsrPartitionError(*tp, error) for tp, error in errors.items())
        return LeaderAndIsrResponse(error_code=code, partition_errors=flat)
    ids = {topic.topic_name: topic.topic_id for topic in topics}
    by_topic: dict[str, list[LeaderAndIsrPartitionError]] = {}
    for (name, index), error in errors.items():
        by_topic.setdefault(name, []).append(
            LeaderAndIsrPartitionError(partition_index=index, error_code=error)
        )
    return LeaderAndIsrResponse(
        error_code=code,
        topics=tuple(
            LeaderAndIsrTopicError(ids[name], tuple(each)) for name, each in by_topic.items()
        ),
    )
