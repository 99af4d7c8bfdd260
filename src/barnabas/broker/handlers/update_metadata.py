"""UpdateMetadata: the controller sends the list of live brokers, and the partitions that have changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.control_plane import catch_up
from barnabas.broker.unassigned_replicas import find_unassigned, remove_unassigned
from barnabas.errors import RegistryError
from barnabas.metadata import znodes
from barnabas.metadata.cache import TopicMetadata
from barnabas.model import BrokerEpoch, TopicPartition
from barnabas.tasks import in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

logger = logging.getLogger("barnabas.control")


async def handle(
    context: BrokerContext, request: UpdateMetadataRequest, _: RequestHeader, connection: Connection
) -> UpdateMetadataResponse:
    control = context.control
    async with control.admit("UpdateMetadata", request, connection) as error:
        if error:
            return UpdateMetadataResponse(error_code=error)
        metadata = context.metadata
        known: dict[str, TopicMetadata] = {}
        if request.broker_epoch > control.last_update_broker_epoch:
            control.last_update_broker_epoch = BrokerEpoch(request.broker_epoch)
            known = dict(metadata.topics)
        # A thread may read the topics: all code that changes them holds the lock.
        size = len(request.live_brokers) + len(request.ungrouped_partition_states)
        size += sum(1 + len(topic.partition_states) for topic in request.topic_states)
        removed = metadata.apply(request, await in_thread_if_large(size, metadata.merge, request))
        if removed:
            context.topics.forget({topic for topic, _ in removed if topic not in metadata.topics})
            context.lazy_groups.partitions_deleted(removed)
            logger.info("removed partitions=%d controller=%d", len(removed), request.controller_id)
        unassigned = await in_thread_if_large(size, find_unassigned, context.replicas, request)
    if unassigned:
        context.replicas.tasks.start("unassigned", remove_unassigned(context, unassigned))
    if known:
        context.replicas.tasks.start("deleted-topics", drop_deleted_topics(context, known))
    return UpdateMetadataResponse()


async def drop_deleted_topics(context: BrokerContext, known: Mapping[str, TopicMetadata]) -> None:
    """Remove the topics of `known` from the metadata that were deleted while this broker was not registered.

    The controller reports a deletion only to registered brokers.
    """
    try:
        await catch_up(context.registry)
        existing = set(await context.registry.children(znodes.TOPICS))
    except RegistryError as error:
        # The session has expired. The next registration does this again.
        logger.warning("cannot look for deleted topics error=%s", error)
        return
    metadata = context.metadata
    async with context.control.lock:
        removed = []
        for name, topic in known.items():
            now = metadata.topics.get(name)
            if name not in existing and now is not None and now.topic_id == topic.topic_id:
                removed += [TopicPartition(name, index) for index in now.partitions]
                metadata.remove_topic(name)
        if removed:
            context.topics.forget({topic for topic, _ in removed})
            context.lazy_groups.partitions_deleted(removed)
            metadata.wake()
            logger.info("removed partitions=%d deleted while not registered", len(removed))
