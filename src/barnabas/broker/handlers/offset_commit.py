"""OffsetCommit: a consumer group commits offsets to its coordinator.

A commit is acknowledged when the in-sync replicas of `__consumer_offsets` have it. OffsetFetch returns it from then on.
Errors are per partition. If the group rejects the commit, all existing partitions get the same error. Version 0 keeps
offsets in the registry (registry_offsets.py).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple

from barnabas.broker.bounded_work import Work, call_in_thread_if_large
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.handlers import registry_offsets
from barnabas.errors import ApiError, ErrorCode, LocalWireError
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.coordinator_timers import AnyGroup
from barnabas.groups.group import Group, GroupState
from barnabas.groups.records import KeyValue, OffsetCommitValue, offset_record
from barnabas.groups.store import COMMIT_ERROR_CODES, translate_error
from barnabas.model import NO_TIMESTAMP, TopicPartition
from barnabas.security.acl.model import Operation
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

DEFAULT_RETENTION = -1
TIMESTAMP_MAX = 2**63 - 1
Codes = dict[TopicPartition, ErrorCode]
Commits = dict[TopicPartition, OffsetCommitValue]


class PendingCommit(NamedTuple):
    """Commits that are in the log and wait for replicas, and the error codes of the other partitions."""

    commits: Commits
    codes: Codes
    result: Awaitable[ErrorCode]


def handle(
    context: BrokerContext,
    request: OffsetCommitRequest,
    header: RequestHeader,
    connection: Connection,
) -> Work[OffsetCommitResponse | Awaitable[OffsetCommitResponse]]:
    if header.api_version == 0:
        return registry_offsets.commit_to_registry(context, request, connection)
    codes: Codes | PendingCommit
    if context.security.access.allows_group(connection, Operation.READ, request.group_id):
        codes = yield from commit_offsets(context, request, header.api_version, connection)
    else:
        codes = yield from reject_all(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if isinstance(codes, PendingCommit):
        return finish_commit(request, codes)
    size = sum(1 + len(partitions) for _, partitions in request.topics)
    return (yield from call_in_thread_if_large(size, build_offset_commit_response, request, codes))


def reject_all(request: OffsetCommitRequest, code: ErrorCode) -> Work[Codes]:
    codes: Codes = {}
    for name, partitions in request.topics:
        for each in partitions:
            codes[TopicPartition(name, each.partition_index)] = code
            yield None
    return codes


def commit_offsets(
    context: BrokerContext, request: OffsetCommitRequest, version: int, connection: Connection
) -> Work[Codes | PendingCommit]:
    """Append the commits. Return the error codes by partition, where no code means success, or a PendingCommit."""
    commits, oversized, unknown = yield from select_commits(context, request, connection)
    if not commits and not oversized:
        return unknown
    try:
        group = find_group_for_commit(context, request, version)
    except ApiError as error:
        return dict.fromkeys([*commits, *oversized], error.code) | unknown
    codes = oversized | unknown
    if not commits:
        return codes
    try:
        records = yield from encode_commits(request.group_id, commits)
        # The group may have rebalanced between the turns.
        group = find_group_for_commit(context, request, version)
        group.offsets.begin(commits)
        try:
            appended = context.group_store.begin_append(request.group_id, records)
        except ApiError as error:
            group.offsets.fail(commits)
            raise translate_error(error, COMMIT_ERROR_CODES) from error
    except ApiError as error:
        return dict.fromkeys(commits, error.code) | codes
    if appended.waits:
        result = context.groups.commits.complete_when_replicated(group.offsets, commits, appended)
        return PendingCommit(commits, codes, result)
    group.offsets.complete(commits, appended.first_offset)
    return codes


def select_commits(
    context: BrokerContext, request: OffsetCommitRequest, connection: Connection
) -> Work[tuple[Commits, Codes, Codes]]:
    """Return the offsets to commit, and the error codes of oversized metadata and of unknown or denied partitions.

    Oversized metadata is reported only if the group accepts the commit.
    """
    commits: Commits = {}
    oversized: Codes = {}
    unknown: Codes = {}
    now_ms = context.clock.now_ms()
    expires = NO_TIMESTAMP
    if request.retention_time_ms != DEFAULT_RETENTION:
        expires = max(0, min(now_ms + request.retention_time_ms, TIMESTAMP_MAX))
    metadata_max = context.config.offset_metadata_max_bytes
    for name, partitions in request.topics:
        topic, code = context.metadata.topics.get(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not context.security.access.allows_topic(connection, Operation.READ, name):
            topic, code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        yield None
        for index, offset, leader_epoch, timestamp, metadata in partitions:
            if topic is None or index not in topic.partitions:
                unknown[TopicPartition(name, index)] = code
            elif metadata and is_longer(metadata, metadata_max):
                oversized[TopicPartition(name, index)] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                at = now_ms if timestamp == NO_TIMESTAMP else timestamp
                # The name from the metadata cache is one string for all groups, which saves memory.
                commits[TopicPartition(topic.name, index)] = OffsetCommitValue(
                    offset, leader_epoch, metadata or "", at, expires
                )
            yield None
    return commits, oversized, unknown


def is_longer(text: str, length_max: int) -> bool:
    """Whether the text has more than `length_max` UTF-16 units. Kafka counts these for offset.metadata.max.bytes."""
    return len(text) > length_max or (
        not text.isascii() and len(text.encode("utf-16-le", "surrogatepass")) // 2 > length_max
    )


def find_group_for_commit(
    context: BrokerContext, request: OffsetCommitRequest, version: int
) -> AnyGroup:
    coordinator = context.groups
    generation = request.generation_id_or_member_epoch
    group = coordinator.find(request.group_id, allow_empty_id=True)
    if group is None:
        if generation >= 0:
            raise ApiError(
                ErrorCode.ILLEGAL_GENERATION, f"group '{request.group_id}' does not exist"
            )
        group = coordinator.find_or_create(request.group_id, allow_empty_id=True)
    if isinstance(group, ConsumerGroup):
        code = group.commit_error(request.member_id, generation, version)
    else:
        code = group.commit_error(request.member_id, request.group_instance_id, generation)
    if code is not ErrorCode.NONE:
        raise ApiError(code)
    if isinstance(group, Group) and group.state is not GroupState.EMPTY:
        coordinator.restart_session(group, request.member_id)
    return group


def encode_commits(group_id: str, commits: Commits) -> Work[list[KeyValue]]:
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
    return build_offset_commit_response(
        request, dict.fromkeys(pending.commits, await pending.result) | pending.codes
    )


def build_offset_commit_response(
    request: OffsetCommitRequest, codes: Codes
) -> OffsetCommitResponse:
    """Return the response. A partition without an error code was committed."""
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
