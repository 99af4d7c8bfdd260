"""TxnOffsetCommit: commits offsets of a consumer group as part of a transaction.

The offsets are appended to `__consumer_offsets` as a batch of the transaction. They count when the transaction
coordinator writes the commit marker there (write_txn_markers.py). Until then OffsetFetch reports them as unstable.
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.bounded_work import Work, call_in_thread_if_large
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.handlers.offset_commit import encode_commits, is_longer
from barnabas.broker.transaction_verification import fenced_code
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.consumer_group import COMMIT_WITH_MEMBER_EPOCH_SINCE, ConsumerGroup
from barnabas.groups.coordinator_timers import AnyGroup
from barnabas.groups.group import GroupState
from barnabas.groups.records import OffsetCommitValue
from barnabas.groups.store import COMMIT_ERROR_CODES, AppendResult, translate_error
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.model import NO_TIMESTAMP, TopicPartition
from barnabas.security.acl.model import Operation
from barnabas.storage.producers import NO_SEQUENCE, OPEN, Verification
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

LOAD_ERROR_SINCE = 2  # older clients do not retry COORDINATOR_LOAD_IN_PROGRESS
ABORTABLE_SINCE = 4
VERIFICATION_ERROR_CODES = COMMIT_ERROR_CODES | {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
}
"""Error code of a failed verification → error code of the commit."""

Codes = dict[TopicPartition, ErrorCode]
Commits = dict[TopicPartition, OffsetCommitValue]


def handle(
    context: BrokerContext,
    request: TxnOffsetCommitRequest,
    header: RequestHeader,
    connection: Connection,
) -> Work[TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]]:
    commits, codes = yield from select_offsets(context, request, connection)
    if commits:
        try:
            group, appended = yield from append_commits(
                context, request, commits, header.api_version
            )
        except ApiError as error:
            codes |= dict.fromkeys(commits, error.code)
        else:
            partition = context.group_store.partition_for(request.group_id)
            group.offsets.begin_in_transaction(request.producer_id, commits, appended.first_offset)
            context.groups.transactional.add(partition, request.producer_id, group.offsets)
            if appended.waits:
                return finish_txn_offset_commit(
                    context, request, commits, codes, appended, header.api_version
                )
    size = sum(1 + len(partitions) for _, partitions in request.topics)
    return (
        yield from call_in_thread_if_large(
            size, build_txn_offset_commit_response, request, codes, header.api_version
        )
    )


def append_commits(
    context: BrokerContext, request: TxnOffsetCommitRequest, commits: Commits, version: int
) -> Work[tuple[AnyGroup, AppendResult]]:
    """Append the commits to the log as a batch of the transaction. Raises ApiError."""
    if request.producer_id < 0:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the request has no producer id")
    context.groups.find(request.group_id)
    verification = yield from verify_commit(context, request, version)
    if request.producer_epoch < 0:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the request has no producer epoch")
    records = yield from encode_commits(request.group_id, commits)
    group = find_group_for_transaction(context, request)
    try:
        appended = context.group_store.begin_append_in_transaction(
            request.group_id,
            records,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            verification=verification,
        )
    except ApiError as error:
        raise translate_error(error, COMMIT_ERROR_CODES) from error
    return group, appended


def select_offsets(
    context: BrokerContext, request: TxnOffsetCommitRequest, connection: Connection
) -> Work[tuple[Commits, Codes]]:
    """Return the offsets to commit, and the error codes of the other partitions."""
    denial = find_denial(context, request, connection)
    commits: Commits = {}
    codes: Codes = {}
    now_ms = context.clock.now_ms()
    metadata_max = context.config.offset_metadata_max_bytes
    for name, partitions in request.topics:
        topic, code = context.metadata.topics.get(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if denial is not ErrorCode.NONE:
            topic, code = None, denial
        elif not context.security.access.allows_topic(connection, Operation.READ, name):
            topic, code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        yield None
        for index, offset, leader_epoch, metadata in partitions:
            if topic is None or index not in topic.partitions:
                codes[TopicPartition(name, index)] = code
            elif metadata and is_longer(metadata, metadata_max):
                codes[TopicPartition(name, index)] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                commits[TopicPartition(topic.name, index)] = OffsetCommitValue(
                    offset, leader_epoch, metadata or "", now_ms, NO_TIMESTAMP
                )
            yield None
    return commits, codes


def find_denial(
    context: BrokerContext, request: TxnOffsetCommitRequest, connection: Connection
) -> ErrorCode:
    """Return the error if the principal may not use the transactional id or the group, NONE otherwise."""
    access = context.security.access
    if not access.allows_transactional_id(connection, Operation.WRITE, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not access.allows_group(connection, Operation.READ, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def verify_commit(
    context: BrokerContext, request: TxnOffsetCommitRequest, version: int
) -> Work[Verification | None]:
    """Verify that the transaction includes the partition of the group. Return None if that is not required."""
    verifier = context.verifier
    if verifier is None or not context.config.transaction_partition_verification_enable:
        return None
    key = TopicPartition(CONSUMER_OFFSETS, context.group_store.partition_for(request.group_id))
    producer = request.producer_id, request.producer_epoch
    producers = context.replicas.find(*key).log.producers
    verification = producers.verify(*producer, NO_SEQUENCE)
    if verification is not OPEN:
        codes = yield verifier.verify(request.transactional_id, *producer, [key])
        code = codes.get(key, ErrorCode.NONE)
        if code is not ErrorCode.NONE:
            code = fenced_code(code, knows_abortable=version >= ABORTABLE_SINCE)
            raise ApiError(VERIFICATION_ERROR_CODES.get(code, code))
    return verification


def find_group_for_transaction(context: BrokerContext, request: TxnOffsetCommitRequest) -> AnyGroup:
    """Return the group, which is created if necessary. Raises ApiError if it rejects the commit.

    Unlike OffsetCommit, a group with members accepts the commit of a client that does not say which member it is.
    """
    group = context.groups.find_or_create(request.group_id)
    code = rejection(group, request)
    if code is not ErrorCode.NONE:
        raise ApiError(code)
    return group


def rejection(group: AnyGroup, request: TxnOffsetCommitRequest) -> ErrorCode:
    member_id, instance_id = request.member_id, request.group_instance_id
    is_anonymous = request.generation_id < 0 and not member_id and instance_id is None
    if isinstance(group, ConsumerGroup):
        if is_anonymous:
            return ErrorCode.NONE
        code = group.commit_error(member_id, request.generation_id, COMMIT_WITH_MEMBER_EPOCH_SINCE)
        # TxnOffsetCommit has no version that knows STALE_MEMBER_EPOCH.
        return ErrorCode.ILLEGAL_GENERATION if code is ErrorCode.STALE_MEMBER_EPOCH else code
    is_simple = request.generation_id < 0 and group.state is GroupState.EMPTY
    if group.state is not GroupState.DEAD and (is_anonymous or is_simple):
        return ErrorCode.NONE
    return group.generation_error(member_id, instance_id, request.generation_id)


async def finish_txn_offset_commit(
    context: BrokerContext,
    request: TxnOffsetCommitRequest,
    commits: Commits,
    codes: Codes,
    appended: AppendResult,
    version: int,
) -> TxnOffsetCommitResponse:
    """Wait for the replicas. The offsets are in the log even if this fails: the marker decides about them."""
    try:
        await context.group_store.wait_for(appended)
    except ApiError as error:
        codes |= dict.fromkeys(commits, translate_error(error, COMMIT_ERROR_CODES).code)
    return build_txn_offset_commit_response(request, codes, version)


def build_txn_offset_commit_response(
    request: TxnOffsetCommitRequest, codes: Codes, version: int
) -> TxnOffsetCommitResponse:
    """Return the response. A partition without an error code was committed."""

    def code_of(key: TopicPartition) -> ErrorCode:
        code = codes.get(key, ErrorCode.NONE)
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOAD_ERROR_SINCE:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return code

    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name,
                tuple(
                    TxnOffsetCommitResponsePartition(
                        each.partition_index, code_of(TopicPartition(name, each.partition_index))
                    )
                    for each in partitions
                ),
            )
            for name, partitions in request.topics
        )
    )
