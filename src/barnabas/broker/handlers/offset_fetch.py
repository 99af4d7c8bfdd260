"""OffsetFetch: the committed offsets of consumer groups.

Before a consumer reads a partition, it sends a request with `require_stable`, which waits for commits in flight.
Version 0 reads offsets from the registry (registry_offsets.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from barnabas.broker.bounded_work import Work, call_in_thread_if_large, run_in_turns
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.handlers import registry_offsets
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.group import GroupState
from barnabas.groups.offsets import GroupOffsets
from barnabas.model import TopicPartition
from barnabas.security.acl.model import Operation
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

ERROR_OF_GROUP_SINCE = 2
MANY_GROUPS_SINCE = 8
Topics = tuple[OffsetFetchRequestTopic, ...]


class FetchedGroup(NamedTuple):
    """A group of a request. Members of the new consumer protocol send their id and epoch."""

    group_id: str
    topics: Topics | None
    member_id: str | None = None
    member_epoch: int = -1


def handle(
    context: BrokerContext,
    request: OffsetFetchRequest,
    header: RequestHeader,
    connection: Connection,
) -> Work[OffsetFetchResponse | Awaitable[OffsetFetchResponse]]:
    version = header.api_version
    if version == 0:
        return registry_offsets.fetch_from_registry(context, request, connection)
    if request.require_stable:
        for each in requested_groups(request, version):
            if is_unstable(context, each, connection):
                return fetch_when_stable(context, request, version, connection)
            yield None
    return (yield from fetch_offsets(context, request, version, connection))


def requested_groups(request: OffsetFetchRequest, version: int) -> Iterable[FetchedGroup]:
    if version >= MANY_GROUPS_SINCE:
        return (
            FetchedGroup(each.group_id, each.topics, each.member_id, each.member_epoch)
            for each in request.groups
        )
    return (FetchedGroup(request.group_id, request.topics),)


async def fetch_when_stable(
    context: BrokerContext, request: OffsetFetchRequest, version: int, connection: Connection
) -> OffsetFetchResponse:
    """Wait for the commits in flight, then return the offsets.

    Kafka returns UNSTABLE_OFFSET_COMMIT instead, so that the client retries. librdkafka treats that as no committed
    offset if it is assigned more partitions meanwhile.
    """
    for each in requested_groups(request, version):
        group = context.groups.groups.get(each.group_id)
        if group is not None:
            await context.groups.commits.wait_until_stable(
                group.offsets, partial(is_unstable, context, each, connection)
            )
    return await run_in_turns(fetch_offsets(context, request, version, connection))


def is_unstable(context: BrokerContext, fetched: FetchedGroup, connection: Connection) -> bool:
    """Whether a commit to one of these partitions is in flight. False if the client may not describe the group."""
    group_id, topics, *_ = fetched
    group = context.groups.groups.get(group_id)
    if group is None or not group.offsets.pending:
        return False
    if not context.security.access.allows_group(
        connection, Operation.DESCRIBE, group_id, is_audited=False
    ):
        return False
    pending = group.offsets.pending
    if topics is None:
        return not pending.keys().isdisjoint(group.offsets.committed)
    return any(
        TopicPartition(name, index) in pending for name, indexes in topics for index in indexes
    )


def fetch_offsets(
    context: BrokerContext, request: OffsetFetchRequest, version: int, connection: Connection
) -> Work[OffsetFetchResponse]:
    # A group that is requested again gets no second response: a small request could ask for a huge one.
    found: dict[FetchedGroup, OffsetFetchResponseGroup] = {}
    for each in requested_groups(request, version):
        if each not in found:
            found[each] = yield from fetch_allowed_offsets(
                context, each, connection, require_stable=request.require_stable
            )
        yield None
    if version >= MANY_GROUPS_SINCE:
        return OffsetFetchResponse(groups=tuple(found.values()))
    (only,) = found.values()
    if only.error_code and version < ERROR_OF_GROUP_SINCE:
        error = ErrorCode(only.error_code)
        return OffsetFetchResponse(topics=without_offsets(request.topics or (), error))
    return OffsetFetchResponse(topics=only.topics, error_code=only.error_code)


def fetch_allowed_offsets(
    context: BrokerContext, fetched: FetchedGroup, connection: Connection, *, require_stable: bool
) -> Work[OffsetFetchResponseGroup]:
    """Return the offsets of a group in the topics that the client may describe."""
    access = context.security.access
    if access.decider is None:
        return (yield from fetch_offsets_of_group(context, fetched, require_stable=require_stable))
    if not access.allows_group(connection, Operation.DESCRIBE, fetched.group_id):
        return OffsetFetchResponseGroup(fetched.group_id, (), ErrorCode.GROUP_AUTHORIZATION_FAILED)
    allowed: list[OffsetFetchRequestTopic] = []
    denied: list[OffsetFetchRequestTopic] = []
    for topic in fetched.topics or ():
        is_allowed = access.allows_topic(connection, Operation.DESCRIBE, topic.name)
        (allowed if is_allowed else denied).append(topic)
        yield None
    if fetched.topics is not None:
        fetched = fetched._replace(topics=tuple(allowed))
    found = yield from fetch_offsets_of_group(context, fetched, require_stable=require_stable)
    if found.error_code:
        return found
    if fetched.topics is not None:
        rejected = without_offsets(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return found._replace(topics=(*found.topics, *rejected))
    visible = []
    for each in found.topics:
        if access.allows_topic(connection, Operation.DESCRIBE, each.name, is_audited=False):
            visible.append(each)
        yield None
    return found._replace(topics=tuple(visible))


def fetch_offsets_of_group(
    context: BrokerContext, fetched: FetchedGroup, *, require_stable: bool
) -> Work[OffsetFetchResponseGroup]:
    """Return the offsets of a group: those of its topics, or all if None. `require_stable`: see find_stable."""
    group_id, topics, member_id, member_epoch = fetched
    try:
        group = context.groups.find(group_id, allow_empty_id=True)
    except ApiError as error:
        return OffsetFetchResponseGroup(group_id, (), error.code)
    if isinstance(group, ConsumerGroup):
        code = group.fetch_error(member_id, member_epoch)
        if code is not ErrorCode.NONE:
            return OffsetFetchResponseGroup(group_id, (), code)
    elif group is None or group.state is GroupState.DEAD:
        size = sum(1 + len(indexes) for _, indexes in topics or ())
        missing = yield from call_in_thread_if_large(size, without_offsets, topics or ())
        return OffsetFetchResponseGroup(group_id, missing)
    offsets = group.offsets
    if topics is None:
        by_topic: dict[str, list[int]] = {}
        for name, index in list(offsets.committed):
            by_topic.setdefault(name, []).append(index)
            yield None
        topics = tuple(
            OffsetFetchRequestTopic(name, tuple(indexes)) for name, indexes in by_topic.items()
        )
    find = find_stable if require_stable and offsets.pending else find_committed
    found = []
    for name, indexes in topics:
        partitions = yield from call_in_thread_if_large(len(indexes), find, offsets, name, indexes)
        found.append(OffsetFetchResponseTopic(name, partitions))
        yield None
    return OffsetFetchResponseGroup(group_id, tuple(found))


def find_committed(
    offsets: GroupOffsets, topic: str, indexes: Iterable[int]
) -> tuple[OffsetFetchResponsePartition, ...]:
    """Return the committed offsets of these partitions.

    A request may have ten thousand partitions, and other requests wait meanwhile, so this loop is optimized for speed.
    """
    get: Any = offsets.committed.get
    new, result_type = tuple.__new__, OffsetFetchResponsePartition
    none = ErrorCode.NONE
    return tuple(
        [
            new(result_type, (index, value[0], value[1], value[2], none))
            if (value := get((topic, index)))
            else result_type(index)
            for index in indexes
        ]
    )


def find_stable(
    offsets: GroupOffsets, topic: str, indexes: Iterable[int]
) -> tuple[OffsetFetchResponsePartition, ...]:
    """Like find_committed, but with UNSTABLE_OFFSET_COMMIT for partitions with a commit in flight."""
    return tuple(
        OffsetFetchResponsePartition(
            found.partition_index, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
        if (topic, found.partition_index) in offsets.pending
        else found
        for found in find_committed(offsets, topic, indexes)
    )


def without_offsets(
    topics: Sequence[OffsetFetchRequestTopic], error: ErrorCode = ErrorCode.NONE
) -> tuple[OffsetFetchResponseTopic, ...]:
    return tuple(
        OffsetFetchResponseTopic(
            name,
            tuple(OffsetFetchResponsePartition(index, error_code=error) for index in indexes),
        )
        for name, indexes in topics
    )
