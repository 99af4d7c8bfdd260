"""OffsetCommit, OffsetFetch, OffsetDelete: how far a group has read, kept by its coordinator.

A commit is answered when the replicas of `__consumer_offsets` have it, and only then it is what OffsetFetch tells. The
partitions of a request are refused one by one, or all alike if the group does not take commits of whoever sent it.
Version 0 of both is older than that topic: it keeps offsets in the registry (registry_offsets.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence

from barnabas.broker.connection import Connection
from barnabas.broker.handlers import registry_offsets
from barnabas.broker.parts import BrokerParts
from barnabas.errors import ApiError, ErrorCode, LocalWireError
from barnabas.groups.expiry import forget
from barnabas.groups.group import Group, GroupState
from barnabas.groups.records import NEVER, CommittedOffset, KeyValue, offset_record
from barnabas.groups.store import OF_COMMITS, Appended, translated
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


# ---- OffsetCommit


def offset_commit(
    parts: BrokerParts, request: OffsetCommitRequest, header: RequestHeader, _: Connection
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    if header.api_version == 0:
        return registry_offsets.commit(parts, request)
    commits, codes = wished(parts, request)
    if not commits:
        return committed(request, codes)
    try:
        group = group_to_commit_to(parts, request)
        records = records_of(request.group_id, commits)
        group.offsets.begin(commits)
        try:
            appended = parts.group_store.begin_append(request.group_id, records)
        except ApiError as error:
            group.offsets.fail(commits)
            raise translated(error, OF_COMMITS) from error
    except ApiError as error:
        return committed(request, dict.fromkeys(commits, error.code) | codes)
    if appended.waits:
        return finish_commit(parts, request, group, commits, codes, appended)
    group.offsets.complete(commits, appended.first_offset)
    return committed(request, codes)


def wished(parts: BrokerParts, request: OffsetCommitRequest) -> tuple[Commits, Codes]:
    """What can be committed, and why the rest cannot."""
    commits: Commits = {}
    codes: Codes = {}
    now_ms = parts.clock.now_ms()
    expires = NEVER
    if request.retention_time_ms != KEPT_AS_LONG_AS_BROKER_SAYS:
        expires = max(0, min(now_ms + request.retention_time_ms, FOR_EVER))
    note_max = parts.config.offset_metadata_max_bytes
    for name, partitions in request.topics:
        topic = parts.metadata.topics.get(name)
        for index, offset, leader_epoch, timestamp, note in partitions:
            if topic is None or index not in topic.partitions:
                codes[TopicPartition(name, index)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif note and is_longer(note, note_max):
                codes[TopicPartition(name, index)] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                at = now_ms if timestamp == NO_TIMESTAMP else timestamp
                # A thousand groups share the topic's name.
                commits[TopicPartition(topic.name, index)] = CommittedOffset(
                    offset, leader_epoch, note or "", at, expires
                )
    return commits, codes


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


def records_of(group_id: str, commits: Commits) -> list[KeyValue]:
    try:
        return [offset_record(group_id, *each, value) for each, value in commits.items()]
    except LocalWireError as error:
        raise ApiError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, str(error)) from error


async def finish_commit(
    parts: BrokerParts,
    request: OffsetCommitRequest,
    group: Group,
    commits: Commits,
    codes: Codes,
    appended: Appended,
) -> OffsetCommitResponse:
    try:
        await parts.group_store.wait_for(appended)
    except ApiError as error:
        group.offsets.fail(commits)
        code = translated(error, OF_COMMITS).code
        return committed(request, dict.fromkeys(commits, code) | codes)
    group.offsets.complete(commits, appended.first_offset)
    return committed(request, codes)


def committed(request: OffsetCommitRequest, codes: Codes) -> OffsetCommitResponse:
    """Where there is no code it went well."""
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
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    version = header.api_version
    if version == 0:
        return registry_offsets.fetch(parts, request)
    if version >= MANY_GROUPS_SINCE:
        return OffsetFetchResponse(
            groups=tuple(fetched(parts, each.group_id, each.topics) for each in request.groups)
        )
    found = fetched(parts, request.group_id, request.topics)
    if found.error_code and version < ERROR_OF_GROUP_SINCE:
        error = ErrorCode(found.error_code)
        return OffsetFetchResponse(topics=without_offsets(request.topics or (), error))
    return OffsetFetchResponse(topics=found.topics, error_code=found.error_code)


def fetched(
    parts: BrokerParts, group_id: str, topics: Sequence[OffsetFetchRequestTopic] | None
) -> OffsetFetchResponseGroup:
    """No topics named: all that the group has. Offsets wait for nobody but transactions, and there are none: those
    that are being committed are not told before they are, so that `require_stable` changes nothing."""
    try:
        group = parts.groups.find(group_id, may_be_empty=True)
    except ApiError as error:
        return OffsetFetchResponseGroup(group_id, (), error.code)
    if group is None or group.state is GroupState.DEAD:
        return OffsetFetchResponseGroup(group_id, without_offsets(topics or ()))
    values = group.offsets.committed
    if topics is None:
        by_topic: dict[str, list[int]] = {}
        for name, index in values:
            by_topic.setdefault(name, []).append(index)
        topics = [
            OffsetFetchRequestTopic(name, tuple(indexes)) for name, indexes in by_topic.items()
        ]
    return OffsetFetchResponseGroup(
        group_id,
        tuple(
            OffsetFetchResponseTopic(
                name, tuple(fetched_partition(values, name, index) for index in indexes)
            )
            for name, indexes in topics
        ),
    )


def fetched_partition(
    values: Mapping[TopicPartition, CommittedOffset], name: str, index: int
) -> OffsetFetchResponsePartition:
    value = values.get(TopicPartition(name, index))
    if value is None:
        return OffsetFetchResponsePartition(index)
    return OffsetFetchResponsePartition(index, value.offset, value.leader_epoch, value.metadata)


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
) -> OffsetDeleteResponse:
    try:
        codes = delete_offsets(parts, request)
    except ApiError as error:
        return OffsetDeleteResponse(error_code=error.code)
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


def delete_offsets(parts: BrokerParts, request: OffsetDeleteRequest) -> Codes:
    """ApiError if the group as a whole lets nobody do that."""
    group = parts.groups.find(request.group_id)
    if group is None or group.state is GroupState.DEAD:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    is_empty = group.state is GroupState.EMPTY
    if not is_empty and group.protocol_type != PROTOCOL_TYPE:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP)
    codes: Codes = {}
    for name, partitions in request.topics:
        for (index,) in partitions:
            code = ErrorCode.NONE
            if not parts.metadata.knows(name, index):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif not is_empty and group.is_subscribed_to(name):
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            codes[TopicPartition(name, index)] = code
    allowed = [each for each, code in codes.items() if code is ErrorCode.NONE]
    if allowed:
        found = group.offsets.among(allowed)
        forget(parts.groups, parts.group_store, group, found)
    return codes
