"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords, in every version."""

from collections.abc import Callable

import pytest

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
from barnabas.wire.records import Record, build_batch
from tests.compatibility.raw import TIMESTAMP, Raw, batch_of, values_in

NewTopic = Callable[..., str]

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
VERSIONS = APIS[2].versions


@pytest.fixture
def filled(raw: Raw, topic: str) -> str:
    """Offsets 0 to 4; the timestamps are one second apart, but for the last, which is of the past."""
    times = [TIMESTAMP + 1000 * number for number in range(4)]
    raw.produce(topic, build_batch([Record(i, at, None, b"x") for i, at in enumerate(times)]))
    raw.produce(topic, batch_of(b"late", timestamp=TIMESTAMP - 5000))
    return topic


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_every_version_finds_the_ends_and_a_time(raw: Raw, filled: str, version: int) -> None:
    def find(timestamp: int) -> tuple[int, int, int]:
        found = raw.list_offset(filled, timestamp, version=version)
        assert found.error_code == ErrorCode.NONE
        return found.offset, found.timestamp, found.leader_epoch

    epoch = 0 if version >= 4 else -1
    assert find(LATEST) == (5, -1, epoch)
    assert find(EARLIEST) == (0, -1, epoch)
    assert find(TIMESTAMP + 1000) == (1, TIMESTAMP + 1000, epoch)
    assert find(TIMESTAMP + 1001) == (2, TIMESTAMP + 2000, epoch)
    assert find(TIMESTAMP - 9000) == (0, TIMESTAMP, epoch)
    assert find(TIMESTAMP + 9000) == (-1, -1, -1)


def test_the_record_of_the_latest_time_is_found_since_version_7(raw: Raw, filled: str) -> None:
    found = raw.list_offset(filled, MAX_TIMESTAMP, version=7)
    assert (found.offset, found.timestamp) == (3, TIMESTAMP + 3000)
    refused = raw.list_offset(filled, MAX_TIMESTAMP, version=6)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_the_ends_of_tiered_storage_are_those_of_a_log_without_it(raw: Raw, filled: str) -> None:
    assert raw.list_offset(filled, EARLIEST_LOCAL, version=8).offset == 0
    found = raw.list_offset(filled, LATEST_TIERED, version=9)
    assert (found.error_code, found.offset) == (ErrorCode.NONE, -1)
    for timestamp, version in ((EARLIEST_LOCAL, 7), (LATEST_TIERED, 8)):
        refused = raw.list_offset(filled, timestamp, version=version)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_an_empty_log_begins_and_ends_at_0_and_has_no_times(raw: Raw, topic: str) -> None:
    assert raw.list_offset(topic, EARLIEST).offset == 0
    assert raw.list_offset(topic, LATEST).offset == 0
    assert raw.list_offset(topic, 0).offset == -1
    assert raw.list_offset(topic, MAX_TIMESTAMP).offset == -1


def test_version_0_lists_the_segments_newest_first(raw: Raw, new_topic: NewTopic) -> None:
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


def test_a_partition_asked_for_twice_is_refused(raw: Raw, topic: str) -> None:
    twice = (ListOffsetsPartition(0, timestamp=LATEST), ListOffsetsPartition(0, timestamp=EARLIEST))
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(topic, twice),))
    answer = raw.ask(request, ListOffsetsResponse)
    assert {found.error_code for found in answer.topics[0].partitions} == {
        ErrorCode.INVALID_REQUEST
    }


def test_unknown_partitions_and_epochs_have_their_errors(raw: Raw, topic: str) -> None:
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
def test_the_current_epoch_ends_where_the_log_ends(raw: Raw, filled: str, version: int) -> None:
    found = end_of_epoch(raw, filled, 0, version)
    assert (found.error_code, found.end_offset) == (ErrorCode.NONE, 5)
    if version >= 1:
        assert found.leader_epoch == 0
    unknown = end_of_epoch(raw, filled, 9, version)
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
def test_the_log_starts_where_records_were_deleted_up_to(
    raw: Raw, filled: str, version: int
) -> None:
    answer = delete_records(raw, filled, 3, version=version)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 3)
    assert raw.list_offset(filled, EARLIEST).offset == 3
    assert raw.fetch(filled, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    # The batch of offset 3 comes whole; it is for the reader to leave out what it did not ask for.
    assert values_in(raw.fetch(filled, 3))[-1] == b"late"
    assert raw.fetch(filled, 3).log_start_offset == 3


def test_minus_1_deletes_everything(raw: Raw, filled: str) -> None:
    assert delete_records(raw, filled, -1).low_watermark == 5
    found = raw.fetch(filled, 5)
    assert (found.error_code, found.log_start_offset, values_in(found)) == (0, 5, [])
    assert raw.produce(filled, batch_of(b"new")).base_offset == 5


def test_deleting_below_the_start_changes_nothing(raw: Raw, filled: str) -> None:
    delete_records(raw, filled, 3)
    answer = delete_records(raw, filled, 1)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 3)


@pytest.mark.parametrize("offset", [6, 2**62, -2])
def test_records_that_do_not_exist_cannot_be_deleted(raw: Raw, filled: str, offset: int) -> None:
    answer = delete_records(raw, filled, offset)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert raw.list_offset(filled, EARLIEST).offset == 0


def test_a_topic_that_is_only_compacted_refuses_deletion(raw: Raw, new_topic: NewTopic) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    assert delete_records(raw, topic, 0).error_code == ErrorCode.POLICY_VIOLATION
    both = new_topic(**{"cleanup.policy": "compact,delete"})
    assert delete_records(raw, both, 0).error_code == ErrorCode.NONE


def test_records_of_an_unknown_partition_cannot_be_deleted(raw: Raw, topic: str) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_records(raw, "nowhere", 0).error_code == unknown
    assert delete_records(raw, topic, 0, partition=7).error_code == unknown
