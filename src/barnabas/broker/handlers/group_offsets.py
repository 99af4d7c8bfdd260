"""OffsetCommit, OffsetFetch, OffsetDelete: how far a group has read, kept by its coordinator.

A commit is answered when the replicas of `__consumer_offsets` have it, and only then it is what OffsetFetch tells. Who
asks for what is stable, as consumers do that are given a partition, is answered when the commits under way have ended.
The partitions of a request are refused one by one, or all alike if the group does not take commits of whoever sent it.
Version 0 of both is older than that topic: it keeps offsets in the registry (registry_offsets.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from barnabas.broker.bounded_work import Work, aside, run_in_turns
from barnabas.broker.connection import Connection
from barnabas.broker.handlers import registry_offsets
from barnabas.broker.parts import BrokerParts
from barnabas.errors import ApiError, ErrorCode, LocalWireError
from barnabas.groups.group import Group, GroupState
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import NEVER, CommittedOffset, KeyValue, offset_record
from barnabas.groups.store import OF_COMMITS, translated
from barnabas.model import NO_TIMESTAMP, TopicPartition
from barnabas.wire.consumer_protocol import PROTOCOL_TYPE
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

ERROR_OF_GROUP_SINCE = 2
MANY_GROUPS_SINCE = 8
KEPT_AS_LONG_AS_BROKER_SAYS = -1
FOR_EVER = 2**63 - 1

Codes = dict[TopicPartition, ErrorCode]
Commits = dict[TopicPartition, CommittedOffset]
Topics = tuple[OffsetFetchRequestTopic, ...]
AskedFor = tuple[str, Topics | None]


# ---- OffsetCommit


class PendingCommit(NamedTuple):
    """Offsets that are in the log and wait for its replicas, and the codes of the others."""

    commits: Commits
    codes: Codes
    result: Awaitable[ErrorCode]


def offset_commit(
    parts: BrokerParts, request: OffsetCommitRequest, header: RequestHeader, _: Connection
) -> Work[OffsetCommitResponse | Awaitable[OffsetCommitResponse]]:
    if header.api_version == 0:
        return registry_offsets.commit(parts, request)
    codes = yield from commit(parts, request)
    if isinstance(codes, PendingCommit):
        return finish_commit(request, codes)
    size = sum(1 + len(partitions) for _, partitions in request.topics)
    return (yield from aside(size, partial(committed, request, codes)))


def commit(parts: BrokerParts, request: OffsetCommitRequest) -> Work[Codes | PendingCommit]:
    """The error codes by partition. A partition without one is committed."""
    commits, oversized, unknown = yield from wished(parts, request)
    if not commits and not oversized:
        return unknown
    try:
        group = group_to_commit_to(parts, request)
    except ApiError as error:
        return dict.fromkeys([*commits, *oversized], error.code) | unknown
    codes = oversized | unknown
    if not commits:
        return codes
    try:
        records = yield from records_of(request.group_id, commits)
        group = group_to_commit_to(parts, request)  # it may have rebalanced between the turns
        group.offsets.begin(commits)
        try:
            appended = parts.group_store.begin_append(request.group_id, records)
        except ApiError as error:
            group.offsets.fail(commits)
            raise translated(error, OF_COMMITS) from error
    except ApiError as error:
        return dict.fromkeys(commits, error.code) | codes
    if appended.waits:
        result = parts.groups.commits.finish(group.offsets, commits, appended)
        return PendingCommit(commits, codes, result)
    group.offsets.complete(commits, appended.first_offset)
    return codes


def wished(parts: BrokerParts, request: OffsetCommitRequest) -> Work[tuple[Commits, Codes, Codes]]:
    """The offsets to commit, and the codes of the others: metadata too long (reported to members only), unknown."""
    commits: Commits = {}
    oversized: Codes = {}
    unknown: Codes = {}
    now_ms = parts.clock.now_ms()
    expires = NEVER
    if request.retention_time_ms != KEPT_AS_LONG_AS_BROKER_SAYS:
        expires = max(0, min(now_ms + request.retention_time_ms, FOR_EVER))
    note_max = parts.config.offset_metadata_max_bytes
    for name, partitions in request.topics:
        topic = parts.metadata.topics.get(name)
        yield None
        for index, offset, leader_epoch, timestamp, note in partitions:
            if topic is None or index not in topic.partitions:
                unknown[TopicPartition(name, index)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif note and is_longer(note, note_max):
                oversized[TopicPartition(name, index)] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                at = now_ms if timestamp == NO_TIMESTAMP else timestamp
                # A thousand groups share the topic's name.
                commits[TopicPartition(topic.name, index)] = CommittedOffset(
                    offset, leader_epoch, note or "", at, expires
                )
            yield None
    return commits, oversized, unknown


def is_longer(note: str, length_max: int) -> bool:
    """In UTF-16 units, as the setting counts in spite of its name."""
    return len(note) > length_max or (
        not note.isascii() and len(note.encode("utf-16-le", "surrogatepass")) // 2 > length_max
    )


def group_to_commit_to(parts: BrokerParts, request: OffsetCommitRequest) -> Group:
    coordinator = parts.groups
    generation = request.generation_id_or_member_epoch
    group = coordinator.find(request.group_id, may_be_empty=True)
    if group is None:
        if generation >= 0:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, "there is no such group")
        group = coordinator.find_or_make(request.group_id, may_be_empty=True)
    code = group.refusal_of_commit(request.member_id, request.group_instance_id, generation)
    if code is not ErrorCode.NONE:
        raise ApiError(code)
    if group.state is not GroupState.EMPTY:
        coordinator.heard_from(group, request.member_id)
    return group


def records_of(group_id: str, commits: Commits) -> Work[list[KeyValue]]:
    records = []
    try:
        for each, value in commits.items():
            records.append(offset_record(group_id, *each, value))
            yield None
    except LocalWireError as error:
        raise ApiError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, str(error)) from error
    return records


async def finish_commit(
    request: OffsetCommitRequest, pending: PendingCommit
) -> OffsetCommitResponse:
    return committed(request, dict.fromkeys(pending.commits, await pending.result) | pending.codes)


def committed(request: OffsetCommitRequest, codes: Codes) -> OffsetCommitResponse:
    """The response; a partition without a code was committed."""
    none = ErrorCode.NONE
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name,
                tuple(
                    OffsetCommitResponsePartition(each[0], codes.get((name, each[0]), none))  # type: ignore[call-overload]
                    for each in partitions
                ),
            )
            for name, partitions in request.topics
        )
    )


# ---- OffsetFetch


def offset_fetch(
    parts: BrokerParts, request: OffsetFetchRequest, header: RequestHeader, _: Connection
) -> Work[OffsetFetchResponse | Awaitable[OffsetFetchResponse]]:
    version = header.api_version
    if version == 0:
        return registry_offsets.fetch(parts, request)
    if request.require_stable:
        for each in asked_for(request, version):
            if unsettled(parts, *each):
                return fetched_when_settled(parts, request, version)
            yield None
    return (yield from fetched(parts, request, version))


def asked_for(request: OffsetFetchRequest, version: int) -> Iterable[AskedFor]:
    if version >= MANY_GROUPS_SINCE:
        return ((each.group_id, each.topics) for each in request.groups)
    return ((request.group_id, request.topics),)


async def fetched_when_settled(
    parts: BrokerParts, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    """A commit that is under way is about to be true, and its sender to be told so. Clients are not told to ask again,
    as Kafka does: librdkafka takes that for no offset at all if it is given more partitions in the meantime."""
    for group_id, topics in asked_for(request, version):
        group = parts.groups.groups.get(group_id)
        if group is not None:
            await parts.groups.commits.settled(
                group.offsets, partial(unsettled, parts, group_id, topics)
            )
    return await run_in_turns(fetched(parts, request, version))


def unsettled(parts: BrokerParts, group_id: str, topics: Topics | None) -> bool:
    """Whether one of these is being committed."""
    group = parts.groups.groups.get(group_id)
    if group is None or not group.offsets.pending:
        return False
    pending = group.offsets.pending
    if topics is None:
        return not pending.keys().isdisjoint(group.offsets.committed)
    return any(
        TopicPartition(name, index) in pending for name, indexes in topics for index in indexes
    )


def fetched(
    parts: BrokerParts, request: OffsetFetchRequest, version: int
) -> Work[OffsetFetchResponse]:
    found: dict[AskedFor, OffsetFetchResponseGroup] = {}
    asked = []
    for each in asked_for(request, version):
        asked.append(each)
        if each not in found:
            found[each] = yield from fetched_of_group(
                parts, *each, is_stable=request.require_stable
            )
        yield None
    if version >= MANY_GROUPS_SINCE:
        return OffsetFetchResponse(groups=tuple(found[each] for each in asked))
    only = found[asked[0]]
    if only.error_code and version < ERROR_OF_GROUP_SINCE:
        error = ErrorCode(only.error_code)
        return OffsetFetchResponse(topics=without_offsets(request.topics or (), error))
    return OffsetFetchResponse(topics=only.topics, error_code=only.error_code)


def fetched_of_group(
    parts: BrokerParts, group_id: str, topics: Topics | None, *, is_stable: bool
) -> Work[OffsetFetchResponseGroup]:
    """`topics` of None: all committed offsets of the group. `is_stable`: only those without a pending commit."""
    try:
        group = parts.groups.find(group_id, may_be_empty=True)
    except ApiError as error:
        return OffsetFetchResponseGroup(group_id, (), error.code)
    if group is None or group.state is GroupState.DEAD:
        size = sum(1 + len(indexes) for _, indexes in topics or ())
        answers = yield from aside(size, partial(without_offsets, topics or ()))
        return OffsetFetchResponseGroup(group_id, answers)
    offsets = group.offsets
    if topics is None:
        by_topic: dict[str, list[int]] = {}
        for name, index in list(offsets.committed):
            by_topic.setdefault(name, []).append(index)
            yield None
        topics = tuple(
            OffsetFetchRequestTopic(name, tuple(indexes)) for name, indexes in by_topic.items()
        )
    find = find_stable if is_stable and offsets.pending else find_all
    found = []
    for name, indexes in topics:
        of_topic = yield from aside(len(indexes), partial(find, offsets, name, indexes))
        found.append(OffsetFetchResponseTopic(name, of_topic))
        yield None
    return OffsetFetchResponseGroup(group_id, tuple(found))


def find_all(
    offsets: GroupOffsets, topic: str, indexes: Iterable[int]
) -> tuple[OffsetFetchResponsePartition, ...]:
    """Some ask for ten thousand, and everybody else waits meanwhile: so it is done in one loop, without the calls and
    names that others can afford."""
    get: Any = offsets.committed.get
    new, made = tuple.__new__, OffsetFetchResponsePartition
    none = ErrorCode.NONE
    return tuple(
        [
            new(made, (index, value[0], value[1], value[2], none))
            if (value := get((topic, index)))
            else made(index)
            for index in indexes
        ]
    )


def find_stable(
    offsets: GroupOffsets, topic: str, indexes: Iterable[int]
) -> tuple[OffsetFetchResponsePartition, ...]:
    """Those that are being committed anew are not told."""
    return tuple(
        OffsetFetchResponsePartition(
            found.partition_index, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
        if (topic, found.partition_index) in offsets.pending
        else found
        for found in find_all(offsets, topic, indexes)
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


# ---- OffsetDelete


def offset_delete(
    parts: BrokerParts, request: OffsetDeleteRequest, _: RequestHeader, __: Connection
) -> Work[OffsetDeleteResponse]:
    try:
        codes = yield from delete_offsets(parts, request)
    except ApiError as error:
        return OffsetDeleteResponse(error_code=error.code)
    size = sum(1 + len(partitions) for _, partitions in request.topics)
    return (yield from aside(size, partial(deleted, request, codes)))


def deleted(request: OffsetDeleteRequest, codes: Codes) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=tuple(
            OffsetDeleteResponseTopic(
                name,
                tuple(
                    OffsetDeleteResponsePartition(index, codes[TopicPartition(name, index)])
                    for (index,) in partitions
                ),
            )
            for name, partitions in request.topics
        )
    )


def delete_offsets(parts: BrokerParts, request: OffsetDeleteRequest) -> Work[Codes]:
    """Raises ApiError if the group as a whole does not allow it."""
    group_to_delete_from(parts, request)
    codes: Codes = {}
    known: dict[TopicPartition, None] = {}
    for name, partitions in request.topics:
        yield None
        for (index,) in partitions:
            partition = TopicPartition(name, index)
            codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if parts.metadata.knows(name, index):
                codes[partition] = ErrorCode.NONE
                known[partition] = None
            yield None
    # The group may have changed between the turns. What follows is one turn.
    group = group_to_delete_from(parts, request)
    if group.state is not GroupState.EMPTY:
        for each in known:
            if group.is_subscribed_to(each.topic):
                codes[each] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    allowed = [each for each in known if codes[each] is ErrorCode.NONE]
    if allowed:
        found = group.offsets.among(allowed)
        parts.groups.forget(group, found)
    return codes


def group_to_delete_from(parts: BrokerParts, request: OffsetDeleteRequest) -> Group:
    group = parts.groups.find(request.group_id)
    if group is None or group.state is GroupState.DEAD:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not GroupState.EMPTY and group.protocol_type != PROTOCOL_TYPE:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP)
    return group
