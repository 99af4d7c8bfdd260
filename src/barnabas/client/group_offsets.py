"""Requests and responses for the committed offsets of a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.client.core import build_topics, raise_if
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

SINGLE_GROUP_VERSION = 7
"""The last version of OffsetFetch with a single group."""
RETENTION_VERSION = 4
"""The last version of OffsetCommit in which the client chooses how long the broker keeps the offsets."""


class GroupOffset(NamedTuple):
    """The committed offset of a group in one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def offset_fetch_request(
    group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
) -> OffsetFetchRequest:
    """Build an OffsetFetch for versions up to SINGLE_GROUP_VERSION. `partitions=None` requests all committed offsets.

    `require_stable` prevents stale offsets while a commit is pending: Barnabas waits, Kafka returns a retriable error.
    """
    topics = None
    if partitions is not None:
        topics = build_topics(
            OffsetFetchRequestTopic, {each: each.partition for each in partitions}
        )
    return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)


def parse_committed_offsets(
    response: OffsetFetchResponse, group_id: str
) -> dict[TopicPartition, GroupOffset]:
    """Return the offsets of the partitions that have one. Raises ApiError for the first error in the response."""
    raise_if(response.error_code, f"offsets of group {group_id}")
    found = {}
    for topic in response.topics:
        for number, offset, leader_epoch, metadata, code in topic.partitions:
            partition = TopicPartition(topic.name, number)
            raise_if(code, f"offset of group {group_id} in {partition}")
            if offset != NO_OFFSET:
                found[partition] = GroupOffset(offset, leader_epoch, metadata or "")
    return found


def offset_commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    generation: int = -1,
    member_id: str = "",
    metadata: str = "",
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    """Build an OffsetCommit. Without a member id, the broker accepts it only if the group has no members.

    A `retention_ms` other than -1 needs RETENTION_VERSION.
    """
    partitions = {
        each: OffsetCommitRequestPartition(each.partition, offset, committed_metadata=metadata)
        for each, offset in sorted(offsets.items())
    }
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        retention_time_ms=retention_ms,
        topics=build_topics(OffsetCommitRequestTopic, partitions),
    )


def commit_codes(response: OffsetCommitResponse) -> list[int]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def raise_commit_error(response: OffsetCommitResponse) -> None:
    """Raise ApiError for the first partition whose commit failed."""
    for topic in response.topics:
        for number, code in topic.partitions:
            raise_if(code, f"offset of {TopicPartition(topic.name, number)}")
