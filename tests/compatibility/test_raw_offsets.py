"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords, in every version."""

from collections.abc import Callable

import pytest

from barnabas.batch.records import Record, build_batch
from barnabas.errors import ErrorCode
from barnabas.wire.apis import APIS
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.compatibility.raw import TIMESTAMP, Raw, batch_of, values_in

NewTopic = Callable[..., str]

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
VERSIONS = APIS[2].versions


@pytest.fixture
def filled_topic(raw: Raw, topic: str) -> str:
    """A topic with offsets 0 to 4. Timestamps are one second apart, except the last, which is in the past."""
    times = [TIMESTAMP + 1000 * number for number in range(4)]
    raw.produce(topic, build_batch([Record(i, at, None, b"x") for i, at in enumerate(times)]))
    raw.produce(topic, batch_of(b"late", timestamp=TIMESTAMP - 5000))
    return topic


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_every_version_lists_start_end_and_timestamp_offsets(
    raw: Raw, filled_topic: str, version: int
) -> None:
    def find(timestamp: int) -> tuple[int, int, int]:
        found = raw.list_offset(filled_topic, timestamp, version=version)
        assert found.error_code == ErrorCode.NONE
        return found.offset, found.timestamp, found.leader_epoch

    epoch = 0 if version >= 4 else -1
    assert find(LATEST) == (5, -1, epoch)
    assert find(EARLIEST) == (0, -1, epoch)
    assert find(TIMESTAMP + 1000) == (1, TIMESTAMP + 1000, epoch)
    assert find(TIMESTAMP + 1001) == (2, TIMESTAMP + 2000, epoch)
    assert find(TIMESTAMP - 9000) == (0, TIMESTAMP, epoch)
    assert find(TIMESTAMP + 9000) == (-1, -1, -1)


def test_max_timestamp_requires_v7(raw: Raw, filled_topic: str) -> None:
    found = raw.list_offset(filled_topic, MAX_TIMESTAMP, version=7)
    assert (found.offset, found.timestamp) == (3, TIMESTAMP + 3000)
    refused = raw.list_offset(filled_topic, MAX_TIMESTAMP, version=6)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_tiered_storage_offsets_without_tiered_storage(raw: Raw, filled_topic: str) -> None:
    assert raw.list_offset(filled_topic, EARLIEST_LOCAL, version=8).offset == 0
    found = raw.list_offset(filled_topic, LATEST_TIERED, version=9)
    assert (found.error_code, found.offset) == (ErrorCode.NONE, -1)
    for timestamp, version in ((EARLIEST_LOCAL, 7), (LATEST_TIERED, 8)):
        refused = raw.list_offset(filled_topic, timestamp, version=version)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_offsets_of_empty_log(raw: Raw, topic: str) -> None:
    assert raw.list_offset(topic, EARLIEST).offset == 0
    assert raw.list_offset(topic, LATEST).offset == 0
    assert raw.list_offset(topic, 0).offset == -1
    assert raw.list_offset(topic, MAX_TIMESTAMP).offset == -1


def test_version_0_lists_segments_newest_first(raw: Raw, new_topic: NewTopic) -> None:
    topic = new_topic(**{"segment.bytes": "1000"})
    for _ in range(4):  # one batch fills a segment
        raw.produce(topic, batch_of(b"x" * 800))

    def offsets(timestamp: int, count: int) -> tuple[int, ...]:
        found = raw.list_offset(topic, timestamp, version=0, count=count)
        assert found.error_code == ErrorCode.NONE
        return found.old_style_offsets

    assert offsets(LATEST, 10) == (4, 3, 2, 1, 0)
    assert offsets(LATEST, 2) == (4, 3)
    assert offsets(EARLIEST, 10) == (0,)
    assert offsets(0, 10) == ()


def test_duplicate_partition_is_rejected(raw: Raw, topic: str) -> None:
    twice = (ListOffsetsPartition(0, timestamp=LATEST), ListOffsetsPartition(0, timestamp=EARLIEST))
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(topic, twice),))
    answer = raw.ask(request, ListOffsetsResponse)
    assert {found.error_code for found in answer.topics[0].partitions} == {
        ErrorCode.INVALID_REQUEST
    }


def test_unknown_partition_or_epoch_returns_error(raw: Raw, topic: str) -> None:
    unknown = raw.list_offset("nowhere", LATEST)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    newer = raw.list_offset(topic, LATEST, current_leader_epoch=3)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


# ---- leader epochs


def end_of_epoch(raw: Raw, topic: str, epoch: int, version: int) -> EpochEndOffset:
    wanted = OffsetForLeaderPartition(0, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic, (wanted,)),))
    return raw.ask(request, OffsetForLeaderEpochResponse, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", APIS[23].versions)
def test_current_epoch_ends_at_log_end_offset(raw: Raw, filled_topic: str, version: int) -> None:
    found = end_of_epoch(raw, filled_topic, 0, version)
    assert (found.error_code, found.end_offset) == (ErrorCode.NONE, 5)
    if version >= 1:
        assert found.leader_epoch == 0
    unknown = end_of_epoch(raw, filled_topic, 9, version)
    assert (unknown.error_code, unknown.end_offset) == (ErrorCode.NONE, -1)
    nowhere = end_of_epoch(raw, "nowhere", 0, version)
    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- deleting records


def delete_records(
    raw: Raw, topic: str, offset: int, *, partition: int = 0, version: int | None = None
) -> DeleteRecordsPartitionResult:
    wanted = DeleteRecordsTopic(topic, (DeleteRecordsPartition(partition, offset),))
    request = DeleteRecordsRequest(topics=(wanted,), timeout_ms=5000)
    return raw.ask(request, DeleteRecordsResponse, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", APIS[21].versions)
def test_delete_records_moves_log_start_offset(raw: Raw, filled_topic: str, version: int) -> None:
    answer = delete_records(raw, filled_topic, 3, version=version)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 3)
    assert raw.list_offset(filled_topic, EARLIEST).offset == 3
    assert raw.fetch(filled_topic, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    # The batch with offset 3 is returned whole; the reader skips the records before offset 3.
    assert values_in(raw.fetch(filled_topic, 3))[-1] == b"late"
    assert raw.fetch(filled_topic, 3).log_start_offset == 3


def test_delete_records_with_minus_1_deletes_all(raw: Raw, filled_topic: str) -> None:
    assert delete_records(raw, filled_topic, -1).low_watermark == 5
    found = raw.fetch(filled_topic, 5)
    assert (found.error_code, found.log_start_offset, values_in(found)) == (0, 5, [])
    assert raw.produce(filled_topic, batch_of(b"new")).base_offset == 5


def test_delete_records_below_log_start_changes_nothing(raw: Raw, filled_topic: str) -> None:
    delete_records(raw, filled_topic, 3)
    answer = delete_records(raw, filled_topic, 1)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 3)


@pytest.mark.parametrize("offset", [6, 2**62, -2])
def test_delete_records_beyond_log_end_is_out_of_range(
    raw: Raw, filled_topic: str, offset: int
) -> None:
    answer = delete_records(raw, filled_topic, offset)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert raw.list_offset(filled_topic, EARLIEST).offset == 0


def test_delete_records_of_compacted_topic_is_rejected(raw: Raw, new_topic: NewTopic) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    assert delete_records(raw, topic, 0).error_code == ErrorCode.POLICY_VIOLATION
    both = new_topic(**{"cleanup.policy": "compact,delete"})
    assert delete_records(raw, both, 0).error_code == ErrorCode.NONE


def test_delete_records_of_unknown_partition_is_rejected(raw: Raw, topic: str) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_records(raw, "nowhere", 0).error_code == unknown
    assert delete_records(raw, topic, 0, partition=7).error_code == unknown
