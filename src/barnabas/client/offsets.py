"""Offset lookup with ListOffsets: log start offset, high watermark, and the first offset at or after a timestamp."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.client.blocking import BlockingConnection
from barnabas.client.cluster import Cluster
from barnabas.client.core import build_topics, error_of
from barnabas.errors import ApiError
from barnabas.model import TopicPartition
from barnabas.wire.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)


class FoundOffset(NamedTuple):
    """Result for one partition. `offset` is -1 if no record has the timestamp or a later one."""

    offset: int
    timestamp: int
    leader_epoch: int


def earliest_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    return offset_values(list_offsets(cluster, dict.fromkeys(partitions, EARLIEST_TIMESTAMP)))


def latest_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, committed: bool = False
) -> dict[TopicPartition, int]:
    """Return the high watermarks or, with `committed`, the last stable offsets."""
    timestamps = dict.fromkeys(partitions, LATEST_TIMESTAMP)
    return offset_values(list_offsets(cluster, timestamps, committed=committed))


def list_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, FoundOffset]:
    """Return the first offset at or after each timestamp. Special timestamps of ListOffsets are allowed.

    `committed` selects the isolation level read_committed.
    """

    def ask(
        connection: BlockingConnection, led: list[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, FoundOffset | ApiError]]:
        partitions = {
            each: ListOffsetsPartition(each.partition, timestamp=timestamps[each]) for each in led
        }
        request = ListOffsetsRequest(
            isolation_level=int(committed), topics=build_topics(ListOffsetsTopic, partitions)
        )
        response = connection.exchange(request, ListOffsetsResponse, timeout_s=cluster.timeout_s)
        for topic in response.topics:
            for found in topic.partitions:
                partition = TopicPartition(topic.name, found.partition_index)
                error = error_of(found.error_code, f"offsets of {partition}")
                answer = FoundOffset(found.offset, found.timestamp, found.leader_epoch)
                yield partition, error or answer

    return cluster.ask_leaders(timestamps, ask)


def offset_values(found: Mapping[TopicPartition, FoundOffset]) -> dict[TopicPartition, int]:
    return {partition: offset.offset for partition, offset in found.items()}
