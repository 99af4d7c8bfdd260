"""The offsets a group has committed: how they are asked for, set, and found in the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.client.core import error_of, raise_if
from barnabas.errors import ApiError
from barnabas.model import TopicPartition
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_fetch import (
    NO_OFFSET,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

ONE_GROUP = 7
"""The last version of OffsetFetch that asks for a single group."""


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def fetch_request(
    group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
) -> tuple[OffsetFetchRequest, int]:
    """The request, of all partitions that have an offset if they are None, and the newest version to put it in. Who is
    about to read from there on needs what is stable; who only looks does not wait for commits that are under way."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions or ():
        topics.setdefault(topic, []).append(number)
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=None
        if partitions is None
        else tuple(OffsetFetchRequestTopic(name, tuple(each)) for name, each in topics.items()),
        require_stable=require_stable,
    )
    return request, ONE_GROUP


def committed_in(
    response: OffsetFetchResponse, group_id: str
) -> dict[TopicPartition, CommittedOffset]:
    raise_if(response.error_code, f"offsets of group {group_id}")
    found = {}
    for topic in response.topics:
        for number, offset, leader_epoch, metadata, code in topic.partitions:
            partition = TopicPartition(topic.name, number)
            raise_if(code, f"offset of group {group_id} in {partition}")
            if offset != NO_OFFSET:
                found[partition] = CommittedOffset(offset, leader_epoch, metadata or "")
    return found


def commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    generation: int = -1,
    member_id: str = "",
) -> OffsetCommitRequest:
    """Without a member it is somebody from outside who sets the offsets of a group nobody is in."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        topics.setdefault(topic, []).append(OffsetCommitRequestPartition(number, offset))
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=tuple(OffsetCommitRequestTopic(name, tuple(each)) for name, each in topics.items()),
    )


def refused_in(response: OffsetCommitResponse) -> dict[TopicPartition, ApiError]:
    found = {}
    for topic in response.topics:
        for number, code in topic.partitions:
            partition = TopicPartition(topic.name, number)
            error = error_of(code, f"offset of {partition}")
            if error is not None:
                found[partition] = error
    return found
