"""WriteTxnMarkers: a transaction coordinator ends transactions in the logs of their partitions."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Int16, Int32, Int64


class WritableTxnMarkerTopic(NamedTuple):
    name: str
    partition_indexes: tuple[Int32, ...]


class WritableTxnMarker(NamedTuple):
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    """True for a commit, False for an abort."""
    topics: tuple[WritableTxnMarkerTopic, ...]
    coordinator_epoch: Int32


class WriteTxnMarkersRequest(ApiMessage, frozen=True, kw_only=True):
    markers: tuple[WritableTxnMarker, ...]


class WritableTxnMarkerPartitionResult(NamedTuple):
    partition_index: Int32
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(NamedTuple):
    name: str
    partitions: tuple[WritableTxnMarkerPartitionResult, ...]


class WritableTxnMarkerResult(NamedTuple):
    producer_id: Int64
    topics: tuple[WritableTxnMarkerTopicResult, ...]


class WriteTxnMarkersResponse(ApiMessage, frozen=True, kw_only=True):
    markers: tuple[WritableTxnMarkerResult, ...] = ()
