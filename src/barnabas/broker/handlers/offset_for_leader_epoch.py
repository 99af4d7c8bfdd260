"""OffsetForLeaderEpoch: the end offset of a leader epoch in the leader's log."""

from __future__ import annotations

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ApiError
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(
    context: BrokerContext, request: OffsetForLeaderEpochRequest, _: RequestHeader, __: Connection
) -> Work[OffsetForLeaderEpochResponse]:
    def find_end_offset(name: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
        index = wanted.partition
        try:
            partition = context.replicas.find(name, index)
            partition.require_leader(wanted.current_leader_epoch)
            epoch, end = partition.end_offset_for(wanted.leader_epoch)
        except ApiError as error:
            return EpochEndOffset(partition=index, error_code=error.code)
        return EpochEndOffset(error_code=0, partition=index, leader_epoch=epoch, end_offset=end)

    topics = []
    for topic in request.topics:
        found = []
        for wanted in topic.partitions:
            found.append(find_end_offset(topic.topic, wanted))
            yield None
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(found)))
        yield None
    return OffsetForLeaderEpochResponse(topics=tuple(topics))
