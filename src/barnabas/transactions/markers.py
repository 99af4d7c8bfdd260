"""Which broker gets which markers, and what their responses mean. Pure; marker_channels.py sends them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from barnabas.errors import ErrorCode
from barnabas.model import BrokerId, TopicPartition
from barnabas.transactions.records import group_by_topic
from barnabas.transactions.transaction import Transaction
from barnabas.transactions.transaction_events import (
    MarkerResult,
    ProducerIdentity,
    classify_marker,
)
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

DELETED = BrokerId(-2)
"""Route of partitions that do not exist any more. They need no marker."""
UNKNOWN_LEADER = BrokerId(-1)
"""Route of partitions without a reachable leader. Their markers wait."""


class MarkerEntry(NamedTuple):
    """The markers of one transaction for the partitions of one broker."""

    transaction: Transaction
    producer: ProducerIdentity
    is_commit: bool
    coordinator_epoch: int
    partitions: frozenset[TopicPartition]


class MarkerOutcome(NamedTuple):
    """Partitions of a MarkerEntry by their result."""

    written: frozenset[TopicPartition]
    retried: frozenset[TopicPartition]
    superseded: dict[TopicPartition, ErrorCode]


def route_markers(
    entry: MarkerEntry, leader_of: Callable[[TopicPartition], BrokerId]
) -> dict[BrokerId, MarkerEntry]:
    """Split an entry by the leaders of its partitions. `leader_of` may return DELETED or UNKNOWN_LEADER."""
    routes: dict[BrokerId, list[TopicPartition]] = {}
    for partition in sorted(entry.partitions):
        routes.setdefault(leader_of(partition), []).append(partition)
    return {
        broker: entry._replace(partitions=frozenset(partitions))
        for broker, partitions in routes.items()
    }


def build_markers_request(entries: Iterable[MarkerEntry]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=tuple(
            WritableTxnMarker(
                producer_id=entry.producer.producer_id,
                producer_epoch=entry.producer.epoch,
                transaction_result=entry.is_commit,
                topics=tuple(
                    WritableTxnMarkerTopic(name, indexes)
                    for name, indexes in group_by_topic(entry.partitions)
                ),
                coordinator_epoch=entry.coordinator_epoch,
            )
            for entry in entries
        )
    )


def read_marker_results(
    entries: Sequence[MarkerEntry], response: WriteTxnMarkersResponse
) -> list[MarkerOutcome]:
    """Return the outcome of each entry. A partition that the response lacks is retried."""
    codes = {
        (marker.producer_id, TopicPartition(topic.name, result.partition_index)): result.error_code
        for marker in response.markers
        for topic in marker.topics
        for result in topic.partitions
    }
    outcomes = []
    for entry in entries:
        by_result: dict[MarkerResult, dict[TopicPartition, ErrorCode]] = {
            result: {} for result in MarkerResult
        }
        for partition in sorted(entry.partitions):
            found = codes.get((entry.producer.producer_id, partition))
            code = ErrorCode.UNKNOWN_SERVER_ERROR if found is None else ErrorCode(found)
            by_result[classify_marker(code)][partition] = code
        outcomes.append(
            MarkerOutcome(
                frozenset(by_result[MarkerResult.WRITTEN]),
                frozenset(by_result[MarkerResult.RETRY]),
                by_result[MarkerResult.SUPERSEDED],
            )
        )
    return outcomes
