"""OffsetCommit and OffsetFetch version 0, as clients older than `__consumer_offsets` sent them.

    /consumers/<group>/offsets/<topic>/<partition>      the offset, as a decimal number

There is no group behind them and no coordinator: any broker answers, and nothing expires.
"""

from __future__ import annotations

from contextlib import suppress

from barnabas.broker.parts import BrokerParts
from barnabas.errors import ApiError, ErrorCode, NodeExists, NoNode, RegistryError
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.wire.messages.group_offsets import (
    NO_OFFSET,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

OFFSET_MAX = 2**63 - 1


async def commit(parts: BrokerParts, request: OffsetCommitRequest) -> OffsetCommitResponse:
    topics = []
    for name, partitions in request.topics:
        answers = []
        for each in partitions:
            code = ErrorCode.NONE
            note = each.committed_metadata or ""
            if not parts.metadata.knows(name, each.partition_index):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(note) > parts.config.offset_metadata_max_bytes:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                code = await write(
                    parts.registry,
                    (request.group_id, "offsets", name, str(each.partition_index)),
                    each.committed_offset,
                )
            answers.append(OffsetCommitResponsePartition(each.partition_index, code))
        topics.append(OffsetCommitResponseTopic(name, tuple(answers)))
    return OffsetCommitResponse(topics=tuple(topics))


async def fetch(parts: BrokerParts, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """A partition without an offset is told as one that is not known, as this version always did."""
    topics = []
    for name, indexes in request.topics or ():
        answers = []
        for index in indexes:
            answer = OffsetFetchResponsePartition(
                index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            if parts.metadata.knows(name, index):
                try:
                    path = path_of((request.group_id, "offsets", name, str(index)))
                    offset = read((await parts.registry.get(path))[0])
                    answer = OffsetFetchResponsePartition(index, offset)
                except NoNode:
                    pass
                except ApiError as error:
                    answer = OffsetFetchResponsePartition(index, error_code=error.code)
                except RegistryError:
                    answer = OffsetFetchResponsePartition(
                        index, error_code=ErrorCode.UNKNOWN_SERVER_ERROR
                    )
            answers.append(answer)
        topics.append(OffsetFetchResponseTopic(name, tuple(answers)))
    return OffsetFetchResponse(topics=tuple(topics))


async def write(registry: RegistryClient, names: tuple[str, ...], offset: int) -> ErrorCode:
    data = b"%d" % offset
    try:
        path = path_of(names)
        try:
            await registry.set(path, data)
        except NoNode:
            for depth in range(1, len(names)):
                with suppress(NodeExists):
                    await registry.create(path_of(names[:depth]))
            try:
                await registry.create(path, data)
            except NodeExists:  # somebody else commits, too: the later one is right
                await registry.set(path, data)
    except ApiError as error:
        return error.code
    except RegistryError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def path_of(names: tuple[str, ...]) -> str:
    group_id = names[0]
    if not group_id or "/" in group_id or group_id in (".", ".."):
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "it cannot be the name of a znode")
    return "/".join((znodes.CONSUMERS, *names))


def read(data: bytes) -> int:
    """What others have written there may be no number."""
    text = data.decode("ascii", "replace")
    offset = int(text) if text.isdigit() else NO_OFFSET
    return offset if offset <= OFFSET_MAX else NO_OFFSET
