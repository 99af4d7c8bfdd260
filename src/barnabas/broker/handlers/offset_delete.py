"""OffsetDelete: deletes committed offsets of topics that the group does not subscribe to."""

from __future__ import annotations

from barnabas.broker.bounded_work import Work, call_in_thread_if_large
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.coordinator_timers import AnyGroup
from barnabas.groups.group import GroupState
from barnabas.model import TopicPartition
from barnabas.security.acl.model import Operation
from barnabas.wire.consumer_protocol import PROTOCOL_TYPE
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.offset_commit import (
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

Codes = dict[TopicPartition, ErrorCode]


def handle(
    context: BrokerContext, request: OffsetDeleteRequest, _: RequestHeader, connection: Connection
) -> Work[OffsetDeleteResponse]:
    if not context.security.access.allows_group(connection, Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        codes = yield from delete_offsets(context, request, connection)
    except ApiError as error:
        return OffsetDeleteResponse(error_code=error.code)
    size = sum(1 + len(partitions) for _, partitions in request.topics)
    return (yield from call_in_thread_if_large(size, build_offset_delete_response, request, codes))


def build_offset_delete_response(
    request: OffsetDeleteRequest, codes: Codes
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name,
                tuple(
                    OffsetCommitResponsePartition(index, codes[TopicPartition(name, index)])
                    for (index,) in partitions
                ),
            )
            for name, partitions in request.topics
        )
    )


def delete_offsets(
    context: BrokerContext, request: OffsetDeleteRequest, connection: Connection
) -> Work[Codes]:
    """Return the error codes by partition. Raises ApiError for an error of the whole group."""
    find_group_for_delete(context, request)
    codes: Codes = {}
    existing: dict[TopicPartition, None] = {}
    for name, partitions in request.topics:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not context.security.access.allows_topic(connection, Operation.READ, name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        yield None
        for (index,) in partitions:
            partition = TopicPartition(name, index)
            codes[partition] = code
            if code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED and context.metadata.has_partition(
                name, index
            ):
                codes[partition] = ErrorCode.NONE
                existing[partition] = None
            yield None
    # The group may have changed between the turns. The rest runs in one turn.
    group = find_group_for_delete(context, request)
    if not group.is_empty:
        for each in existing:
            if group.is_subscribed_to(each.topic):
                codes[each] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    allowed = [each for each in existing if codes[each] is ErrorCode.NONE]
    if allowed:
        context.groups.delete_offsets(group, group.offsets.partitions_with_offsets(allowed))
    return codes


def find_group_for_delete(context: BrokerContext, request: OffsetDeleteRequest) -> AnyGroup:
    group = context.groups.find(request.group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if group is None or group.state is GroupState.DEAD:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    if not group.is_empty and group.protocol_type != PROTOCOL_TYPE:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP)
    return group
