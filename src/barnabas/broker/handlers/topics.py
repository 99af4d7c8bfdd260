"""CreateTopics and DeleteTopics."""

from __future__ import annotations

import asyncio
from collections import Counter

from barnabas.broker.connection import Connection
from barnabas.broker.parts import BrokerParts
from barnabas.broker.topics import NewTopic
from barnabas.config.describe import describe_topic
from barnabas.errors import ApiError, ErrorCode, RegistryError, StorageError
from barnabas.model import ZERO_ID
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

CLUSTER_METADATA = "__cluster_metadata"


async def create(
    parts: BrokerParts, request: CreateTopicsRequest, header: RequestHeader, _: Connection
) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        name = topic.name
        count = counts[name]
        await asyncio.sleep(0)  # others have their turn between two topics
        try:
            if name == CLUSTER_METADATA:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"'{name}' is a name of Kafka's own")
            if count > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"'{name}' is asked for {count} times")
            results.append(await create_one(parts, topic, request))
        except (RegistryError, StorageError) as error:
            results.append(
                CreatableTopicResult(
                    name=name, error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=str(error)
                )
            )
        except ApiError as error:
            results.append(
                CreatableTopicResult(
                    name=name, error_code=error.code, error_message=error.message or None
                )
            )
    return CreateTopicsResponse(topics=tuple(results))


async def create_one(
    parts: BrokerParts, topic: CreatableTopic, request: CreateTopicsRequest
) -> CreatableTopicResult:
    assignments = None
    if topic.assignments:
        # Of a partition that is assigned more than once the last assignment stands, as in Kafka.
        assignments = {entry.partition_index: entry.broker_ids for entry in topic.assignments}
    checked = parts.topics.check(
        NewTopic(
            name=topic.name,
            partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignments=assignments,
            configs={entry.name: entry.value for entry in topic.configs},
        )
    )
    topic_id = ZERO_ID
    if not request.validate_only:
        topic_id = await parts.topics.create(checked)
        if request.timeout_ms <= 0:
            # Kafka's answer to who does not want to wait, although it is done.
            return CreatableTopicResult(
                name=topic.name, topic_id=topic_id, error_code=ErrorCode.REQUEST_TIMED_OUT
            )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        num_partitions=len(checked.replicas),
        replication_factor=len(checked.replicas[0]),
        configs=tuple(
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in describe_topic(checked.overrides, parts.config)
        ),
    )


async def delete(
    parts: BrokerParts, request: DeleteTopicsRequest, header: RequestHeader, _: Connection
) -> DeleteTopicsResponse:
    version = header.api_version
    wanted = (
        request.topics
        if version >= 6
        else tuple(DeleteTopicState(name=name) for name in request.topic_names)
    )
    if not parts.config.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        return DeleteTopicsResponse(
            responses=tuple(refused(topic, ApiError(code)) for topic in wanted)
        )
    if any(topic.name is not None and topic.topic_id != ZERO_ID for topic in wanted):
        error = ApiError(ErrorCode.INVALID_REQUEST, "give a topic's name or its id, not both")
        return DeleteTopicsResponse(responses=tuple(refused(topic, error) for topic in wanted))
    results: list[DeletableTopicResult] = []
    gone: set[str | None] = set()
    for topic in wanted:
        await asyncio.sleep(0)
        if topic.name in gone:
            # Asked for again in one request, it is told once more that it goes.
            results.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
            continue
        try:
            result = await delete_one(parts, topic, request.timeout_ms)
            results.append(result)
            if not result.error_code:
                gone.add(result.name)
        except (RegistryError, StorageError) as error:
            results.append(refused(topic, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))))
        except ApiError as error:
            results.append(refused(topic, error))
    return DeleteTopicsResponse(responses=tuple(results))


async def delete_one(
    parts: BrokerParts, topic: DeleteTopicState, timeout_ms: int
) -> DeletableTopicResult:
    name, topic_id = topic.name, topic.topic_id
    if name is None and topic_id == ZERO_ID:
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "neither a name nor an id is given")
    if name is None:
        name = parts.metadata.names.get(topic_id)
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}")
    await parts.topics.delete(name)
    code = ErrorCode.REQUEST_TIMED_OUT if timeout_ms <= 0 else ErrorCode.NONE
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code)


def refused(topic: DeleteTopicState, error: ApiError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=error.code,
        error_message=error.message or None,
    )
