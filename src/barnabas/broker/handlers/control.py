"""LeaderAndIsr, UpdateMetadata, StopReplica: what the controller tells a broker about its replicas and the cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from barnabas.broker.connection import Connection
from barnabas.broker.control_plane import catch_up, may_act_for_the_cluster
from barnabas.broker.parts import BrokerParts
from barnabas.errors import ErrorCode, RegistryError
from barnabas.metadata import znodes
from barnabas.metadata.cache import TopicState
from barnabas.model import NO_EPOCH, BrokerEpoch, TopicPartition
from barnabas.tasks import aside
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from barnabas.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

logger = logging.getLogger("barnabas.control")

TOPIC_IDS_SINCE = 5
Topics = tuple[LeaderAndIsrTopicState, ...]


# ---- LeaderAndIsr


async def leader_and_isr(
    parts: BrokerParts, request: LeaderAndIsrRequest, header: RequestHeader, connection: Connection
) -> LeaderAndIsrResponse:
    control, version = parts.control, header.api_version
    topics = request.topic_states or grouped(request.ungrouped_partition_states)
    who = ("LeaderAndIsr", request.controller_id)
    if not may_act_for_the_cluster(connection):
        return await refused(topics, version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if error := await control.broker_error(*who, request.broker_epoch):
        return await refused(topics, version, error)
    if not await control.recognises(*who, request.controller_epoch):
        return await refused(topics, version, ErrorCode.STALE_CONTROLLER_EPOCH)
    async with control.lock:
        if error := control.controller_error(*who, request.controller_epoch):
            return await refused(topics, version, error)
        try:
            # A log is created with its topic's settings, and only the registry has those of a topic new to us.
            await parts.topics.learn(sorted(parts.replicas.topics_without_log(topics)))
        except RegistryError as registry_error:
            logger.error("cannot read topic settings error=%s", registry_error)
            return await refused(topics, version, ErrorCode.UNKNOWN_SERVER_ERROR)
        errors = await parts.replicas.become_leader_or_follower(topics, parts.topics.config_of)
    return await aside(len(errors), answer, topics, version, errors)


def grouped(states: tuple[LeaderAndIsrPartitionState, ...]) -> Topics:
    """The flat list of the oldest versions, by topic."""
    by_topic: dict[str, list[LeaderAndIsrPartitionState]] = {}
    for state in states:
        by_topic.setdefault(state.topic_name, []).append(state)
    return tuple(
        LeaderAndIsrTopicState(topic_name=name, partition_states=tuple(found))
        for name, found in by_topic.items()
    )


async def refused(topics: Topics, version: int, code: ErrorCode) -> LeaderAndIsrResponse:
    """The whole request, and so each of its partitions."""
    size = sum(1 + len(topic.partition_states) for topic in topics)
    return await aside(size, all_refused, topics, version, code)


def all_refused(topics: Topics, version: int, code: ErrorCode) -> LeaderAndIsrResponse:
    errors = {
        TopicPartition(topic.topic_name, state.partition_index): code
        for topic in topics
        for state in topic.partition_states
    }
    return answer(topics, version, errors, code)


def answer(
    topics: Topics,
    version: int,
    errors: dict[TopicPartition, ErrorCode],
    code: ErrorCode = ErrorCode.NONE,
) -> LeaderAndIsrResponse:
    if version < TOPIC_IDS_SINCE:
        flat = tuple(LeaderAndIsrPartitionError(*tp, error) for tp, error in errors.items())
        return LeaderAndIsrResponse(error_code=code, partition_errors=flat)
    ids = {topic.topic_name: topic.topic_id for topic in topics}
    by_id: dict[str, list[LeaderAndIsrPartitionError]] = {}
    for (name, index), error in errors.items():
        by_id.setdefault(name, []).append(
            LeaderAndIsrPartitionError(partition_index=index, error_code=error)
        )
    return LeaderAndIsrResponse(
        error_code=code,
        topics=tuple(
            LeaderAndIsrTopicError(ids[name], tuple(each)) for name, each in by_id.items()
        ),
    )


# ---- UpdateMetadata


async def update_metadata(
    parts: BrokerParts, request: UpdateMetadataRequest, _: RequestHeader, connection: Connection
) -> UpdateMetadataResponse:
    control = parts.control
    who = ("UpdateMetadata", request.controller_id)
    if not may_act_for_the_cluster(connection):
        return UpdateMetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if error := await control.broker_error(*who, request.broker_epoch):
        return UpdateMetadataResponse(error_code=error)
    if not await control.recognises(*who, request.controller_epoch):
        return UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    async with control.lock:
        if error := control.controller_error(*who, request.controller_epoch):
            return UpdateMetadataResponse(error_code=error)
        metadata = parts.metadata
        known: dict[str, TopicState] = {}
        if request.broker_epoch > control.updated_in:
            control.updated_in = BrokerEpoch(request.broker_epoch)
            known = dict(metadata.topics)
        # Whoever else changes the topics holds the lock.
        size = len(request.live_brokers) + len(request.ungrouped_partition_states)
        size += sum(1 + len(topic.partition_states) for topic in request.topic_states)
        removed = metadata.take_over(request, await aside(size, metadata.merged, request))
        if removed:
            parts.topics.forget({topic for topic, _ in removed if topic not in metadata.topics})
            parts.group_parts.partitions_deleted(removed)
            logger.info("forgot partitions=%d controller=%d", len(removed), request.controller_id)
    if known:
        parts.replicas.tasks.start("deleted-topics", forget_deleted(parts, known))
    return UpdateMetadataResponse()


async def forget_deleted(parts: BrokerParts, known: Mapping[str, TopicState]) -> None:
    """Drop the topics from the metadata that were deleted while this broker was not registered.

    A controller reports a deletion to registered brokers only. From the first UpdateMetadata of a registration on, this
    broker is one of them.
    """
    try:
        await catch_up(parts.registry)
        existing = set(await parts.registry.children(znodes.TOPICS))
    except RegistryError as error:
        # The session is over. The next registration brings this up again.
        logger.warning("cannot look for deleted topics error=%s", error)
        return
    metadata = parts.metadata
    async with parts.control.lock:
        removed = []
        for name, topic in known.items():
            now = metadata.topics.get(name)
            if name not in existing and now is not None and now.topic_id == topic.topic_id:
                removed += [TopicPartition(name, index) for index in now.partitions]
                metadata.remove_topic(name)
        if removed:
            parts.topics.forget({topic for topic, _ in removed})
            parts.group_parts.partitions_deleted(removed)
            metadata.wake()
            logger.info("forgot partitions=%d deleted while not registered", len(removed))


# ---- StopReplica


async def stop_replica(
    parts: BrokerParts, request: StopReplicaRequest, _: RequestHeader, connection: Connection
) -> StopReplicaResponse:
    control = parts.control
    who = ("StopReplica", request.controller_id)
    if not may_act_for_the_cluster(connection):
        return StopReplicaResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if error := await control.broker_error(*who, request.broker_epoch):
        return StopReplicaResponse(error_code=error)
    if not await control.recognises(*who, request.controller_epoch):
        return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    async with control.lock:
        if error := control.controller_error(*who, request.controller_epoch):
            return StopReplicaResponse(error_code=error)
        errors = await parts.replicas.stop_replicas(dict(to_stop(request)))
    return StopReplicaResponse(
        partition_errors=tuple(
            StopReplicaPartitionError(*tp, error) for tp, error in errors.items()
        )
    )


def to_stop(
    request: StopReplicaRequest,
) -> Iterator[tuple[TopicPartition, StopReplicaPartitionState]]:
    """All three shapes of the request as the newest one: the older two have no epochs."""
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield TopicPartition(topic.topic_name, state.partition_index), state
    flat = [(each.topic_name, each.partition_index) for each in request.ungrouped_partitions]
    flat += [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    for name, index in flat:
        state = StopReplicaPartitionState(index, NO_EPOCH, request.delete_partitions)
        yield TopicPartition(name, index), state
