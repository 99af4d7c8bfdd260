"""OffsetForLeaderEpoch: the end offset of a leader epoch in the leader's log."""

from __future__ import annotations

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ApiError, ErrorCode
from barnabas.security.acl.model import Operation
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(
    context: BrokerContext,
    request: OffsetForLeaderEpochRequest,
    _: RequestHeader,
    connection: Connection,
) -> Work[OffsetForLeaderEpochResponse]:
    """Consumers need permission to describe the topics. Brokers need permission for the whole cluster instead."""
    access = context.security.access
    is_broker = access.allows_cluster(connection, Operation.CLUSTER_ACTION, is_audited=False)

    def find_end_offset(
        name: str, wanted: OffsetForLeaderPartition, is_allowed: bool
    ) -> EpochEndOffset:
        index = wanted.partition
        try:
            if not is_allowed:
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            partition = context.replicas.find(name, index)
            partition.require_leader(wanted.current_leader_epoch)
            epoch, end = partition.end_offset_for(wanted.leader_epoch)
        except ApiError as error:
            return EpochEndOffset(partition=index, error_code=error.code)
        return EpochEndOffset(error_code=0, partition=index, leader_epoch=epoch, end_offset=end)

    topics = []
    for topic in request.topics:
        is_allowed = is_broker or access.allows_topic(connection, Operation.DESCRIBE, topic.topic)
        found = []
        for wanted in topic.partitions:
            found.append(find_end_offset(topic.topic, wanted, is_allowed))
            yield None
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(found)))
        yield None
    return OffsetForLeaderEpochResponse(topics=tuple(topics))
