"""Routes of markers, requests and their results."""

from __future__ import annotations

from barnabas.errors import ErrorCode
from barnabas.model import BrokerId, TopicPartition
from barnabas.transactions.markers import (
    DELETED,
    UNKNOWN_LEADER,
    MarkerEntry,
    MarkerOutcome,
    build_markers_request,
    read_marker_results,
    route_markers,
)
from barnabas.transactions.transaction_events import ProducerIdentity, create_transaction
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

P = [TopicPartition("orders", index) for index in range(4)]
OTHER = TopicPartition("pays", 0)


def entry(*partitions: TopicPartition, producer_id: int = 1000) -> MarkerEntry:
    return MarkerEntry(
        create_transaction("app", producer_id, 1000, 0),
        ProducerIdentity(producer_id, 5),
        True,
        7,
        frozenset(partitions),
    )


def test_markers_are_split_by_leader() -> None:
    leaders = {
        P[0]: BrokerId(1),
        P[1]: BrokerId(2),
        P[2]: BrokerId(1),
        P[3]: DELETED,
        OTHER: UNKNOWN_LEADER,
    }
    whole = entry(*P, OTHER)
    assert route_markers(whole, leaders.__getitem__) == {
        BrokerId(1): whole._replace(partitions=frozenset([P[0], P[2]])),
        BrokerId(2): whole._replace(partitions=frozenset([P[1]])),
        DELETED: whole._replace(partitions=frozenset([P[3]])),
        UNKNOWN_LEADER: whole._replace(partitions=frozenset([OTHER])),
    }


def test_entry_without_partitions_has_no_routes() -> None:
    assert route_markers(entry(), lambda _: BrokerId(1)) == {}


def test_request_has_one_marker_per_transaction() -> None:
    request = build_markers_request([entry(P[2], OTHER, P[0]), entry(P[1], producer_id=2000)])
    assert request == WriteTxnMarkersRequest(
        markers=(
            WritableTxnMarker(
                1000,
                5,
                True,
                (WritableTxnMarkerTopic("orders", (0, 2)), WritableTxnMarkerTopic("pays", (0,))),
                7,
            ),
            WritableTxnMarker(2000, 5, True, (WritableTxnMarkerTopic("orders", (1,)),), 7),
        )
    )


def response(producer_id: int, codes: dict[TopicPartition, ErrorCode]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id,
        tuple(
            WritableTxnMarkerTopicResult(
                each.topic, (WritableTxnMarkerPartitionResult(each.partition, code),)
            )
            for each, code in codes.items()
        ),
    )


def test_results_by_transaction() -> None:
    entries = [entry(*P), entry(P[0], OTHER, producer_id=2000)]
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    answer = WriteTxnMarkersResponse(
        markers=(
            response(2000, {P[0]: ErrorCode.REQUEST_TIMED_OUT, OTHER: ErrorCode.NONE}),
            response(
                1000,
                {
                    P[0]: ErrorCode.NONE,
                    P[1]: ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    P[2]: fenced,
                },
            ),
        )
    )
    assert read_marker_results(entries, answer) == [
        MarkerOutcome(frozenset([P[0]]), frozenset([P[1], P[3]]), {P[2]: fenced}),
        MarkerOutcome(frozenset([OTHER]), frozenset([P[0]]), {}),
    ], "partition 3 is missing in the response"
