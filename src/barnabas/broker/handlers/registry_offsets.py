"""OffsetCommit and OffsetFetch version 0: offsets in the registry, for clients older than `__consumer_offsets`.

    /consumers/<group>/offsets/<topic>/<partition>      the offset, as a decimal number

There is no group and no coordinator: any broker serves these requests, and offsets do not expire. A group is one
znode, so its id must not contain a slash.
"""

from __future__ import annotations

import re
from contextlib import suppress

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ApiError, ErrorCode, NodeExists, NoNode, RegistryError
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.security.acl.model import Operation
from barnabas.tasks import Turns
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

NUMBER = re.compile(rb"-?[0-9]{1,19}")
OFFSET_MAX = 2**63 - 1


async def commit_to_registry(
    context: BrokerContext, request: OffsetCommitRequest, connection: Connection
) -> OffsetCommitResponse:
    access = context.security.access
    is_denied = not access.allows_group(connection, Operation.READ, request.group_id)
    topics = []
    turns = Turns()
    for name, partitions in request.topics:
        results = []
        await turns.yield_if_due()
        denial = ErrorCode.GROUP_AUTHORIZATION_FAILED if is_denied else ErrorCode.NONE
        if not is_denied and not access.allows_topic(connection, Operation.READ, name):
            denial = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for each in partitions:
            await turns.yield_if_due()
            code: ErrorCode
            metadata = each.committed_metadata or ""
            if denial is not ErrorCode.NONE:
                code = denial
            elif not context.metadata.has_partition(name, each.partition_index):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata) > context.config.offset_metadata_max_bytes:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif "/" in request.group_id:  # would create a znode for each part of the id
                code = ErrorCode.UNKNOWN_SERVER_ERROR
            else:
                path = offset_path(request.group_id, name, each.partition_index)
                code = await write_offset(context.registry, path, each.committed_offset)
            results.append(OffsetCommitResponsePartition(each.partition_index, code))
        topics.append(OffsetCommitResponseTopic(name, tuple(results)))
    return OffsetCommitResponse(topics=tuple(topics))


async def fetch_from_registry(
    context: BrokerContext, request: OffsetFetchRequest, connection: Connection
) -> OffsetFetchResponse:
    """Return the offsets. In version 0 a partition without an offset gets UNKNOWN_TOPIC_OR_PARTITION."""
    access = context.security.access
    is_denied = not access.allows_group(connection, Operation.DESCRIBE, request.group_id)
    topics = []
    turns = Turns()
    for name, indexes in request.topics or ():
        results = []
        await turns.yield_if_due()
        denial = ErrorCode.GROUP_AUTHORIZATION_FAILED if is_denied else ErrorCode.NONE
        if not is_denied and not access.allows_topic(connection, Operation.DESCRIBE, name):
            denial = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for index in indexes:
            await turns.yield_if_due()
            offset, code = -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if denial is not ErrorCode.NONE:
                code = denial
            elif context.metadata.has_partition(name, index):
                try:
                    path = offset_path(request.group_id, name, index)
                    offset = parse_offset((await context.registry.get(path))[0])
                    code = ErrorCode.NONE
                except NoNode:
                    pass
                except (ApiError, RegistryError):
                    code = ErrorCode.UNKNOWN_SERVER_ERROR
            results.append(OffsetFetchResponsePartition(index, offset, error_code=code))
        topics.append(OffsetFetchResponseTopic(name, tuple(results)))
    return OffsetFetchResponse(topics=tuple(topics))


async def write_offset(registry: RegistryClient, path: str, offset: int) -> ErrorCode:
    data = b"%d" % offset
    try:
        try:
            await registry.set(path, data)
        except NoNode:
            names = path.split("/")
            for depth in range(2, len(names)):
                with suppress(NodeExists):
                    await registry.create("/".join(names[:depth]))
            try:
                await registry.create(path, data)
            except NodeExists:  # another client committed first; the later commit wins
                await registry.set(path, data)
    except RegistryError:  # also if the group id is not a valid znode name
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def offset_path(group_id: str, topic: str, partition: int) -> str:
    return f"{znodes.CONSUMERS}/{group_id}/offsets/{topic}/{partition}"


def parse_offset(data: bytes) -> int:
    """Return the offset in a znode. Raises ApiError if the content is not an offset."""
    offset = int(data) if NUMBER.fullmatch(data) else OFFSET_MAX + 1
    if not -OFFSET_MAX <= offset <= OFFSET_MAX:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the content of the znode is not an offset")
    return offset
