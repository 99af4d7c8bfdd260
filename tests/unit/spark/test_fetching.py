from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from barnabas.batch.records import Record, build_batch
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import ZERO_ID
from barnabas.spark import fetching
from barnabas.spark.fetching import read_range
from barnabas.spark.kept_clients import kept_clusters
from barnabas.spark.ranges import DataLoss, OffsetRange, parse_fetch_settings
from barnabas.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tests.unit.client.scripted_broker import ScriptedBroker

ID = UUID(int=7)
OTHER_ID = UUID(int=8)


def batch(base: int, count: int = 5) -> bytes:
    made = [Record(offset, 1_000, None, b"%d" % offset) for offset in range(base, base + count)]
    return build_batch(made, base_offset=base)


class ScriptedLog:
    """Partition with offsets 10 to 20 in two batches, and the responses of the next fetches."""

    def __init__(self) -> None:
        self.start = 10
        self.end = 20
        self.batches = {10: batch(10), 15: batch(15)}
        self.topic_id = ID
        self.next_responses: list[FetchResponse | None] = []

    def fetch(self, request: FetchRequest) -> FetchResponse | None:
        if self.next_responses:
            return self.next_responses.pop(0)
        offset = request.topics[0].partitions[0].fetch_offset
        if not self.start <= offset <= self.end:
            return answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        found = [data for base, data in self.batches.items() if base + 5 > offset]
        return answer(records=found[0] if found else b"", high_watermark=self.end)

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        timestamp = request.topics[0].partitions[0].timestamp
        offset = self.end if timestamp == -1 else self.start
        found = ListOffsetsPartitionResponse(partition_index=0, offset=offset, timestamp=timestamp)
        return ListOffsetsResponse(
            topics=(ListOffsetsTopicResponse(name="orders", partitions=(found,)),)
        )


def answer(**data: Any) -> FetchResponse:
    found = PartitionData(partition_index=0, **data)
    return FetchResponse(
        responses=(FetchableTopicResponse(topic="orders", topic_id=ID, partitions=(found,)),)
    )


def corrupt(data: bytes) -> bytes:
    return data[:-2] + bytes((data[-2] ^ 1,)) + data[-1:]


@pytest.fixture
def log() -> ScriptedLog:
    return ScriptedLog()


@pytest.fixture
def broker(log: ScriptedLog) -> Iterator[ScriptedBroker]:
    broker = ScriptedBroker({FetchRequest: log.fetch, ListOffsetsRequest: log.list_offsets})

    def metadata(request: MetadataRequest) -> MetadataResponse:
        plain = ScriptedBroker.metadata(broker, request)
        topics = tuple(
            MetadataResponseTopic(
                error_code=topic.error_code,
                name=topic.name,
                topic_id=log.topic_id if not topic.error_code else ZERO_ID,
                partitions=topic.partitions,
            )
            for topic in plain.topics
        )
        return MetadataResponse(
            brokers=plain.brokers,
            cluster_id=plain.cluster_id,
            controller_id=plain.controller_id,
            topics=topics,
        )

    broker.answers[MetadataRequest] = metadata
    with broker:
        yield broker
        kept_clusters.close_idle()


def offsets(
    broker: ScriptedBroker,
    start: int = 10,
    end: int = 20,
    topic_id: UUID | None = ID,
    *,
    fail_on_data_loss: bool = True,
    **client: str,
) -> list[int]:
    settings = parse_fetch_settings(
        {
            "bootstrap.servers": broker.address,
            "retry.backoff.ms": "1",
            **{name.replace("_", "."): value for name, value in client.items()},
        },
        ("offset",),
        fail_on_data_loss=fail_on_data_loss,
    )
    offset_range = OffsetRange(topic="orders", partition=0, start=start, end=end, topic_id=topic_id)
    return [
        offset
        for found in read_range(offset_range, settings)
        for offset in found.column("offset").to_pylist()
    ]


def test_range_may_start_and_end_inside_batches(broker: ScriptedBroker) -> None:
    assert offsets(broker, 12, 17) == [12, 13, 14, 15, 16]


def test_empty_range_sends_no_request(broker: ScriptedBroker) -> None:
    assert offsets(broker, 12, 12) == []
    assert broker.requests == []


def test_next_fetch_is_sent_before_records_are_consumed(broker: ScriptedBroker) -> None:
    settings = parse_fetch_settings({"bootstrap.servers": broker.address}, ("offset",))
    offset_range = OffsetRange(topic="orders", partition=0, start=10, end=20, topic_id=ID)
    reading = read_range(offset_range, settings)
    next(reading)
    next(reading)
    offsets = [
        request.topics[0].partitions[0].fetch_offset for request in broker.received(FetchRequest)
    ]
    assert offsets == [10, 15]
    reading.close()


def test_second_task_reuses_connection_and_metadata(broker: ScriptedBroker) -> None:
    offsets(broker)
    before = len(broker.requests)
    offsets(broker)
    assert [type(request) for request in broker.requests[before:]] == [FetchRequest, FetchRequest]
    assert len(broker.connections) == 1


def test_abandoned_task_leaves_no_response_behind(broker: ScriptedBroker) -> None:
    settings = parse_fetch_settings({"bootstrap.servers": broker.address}, ("offset",))
    offset_range = OffsetRange(topic="orders", partition=0, start=10, end=20, topic_id=ID)
    reading = read_range(offset_range, settings)
    next(reading)
    reading.close()
    assert offsets(broker, 12, 14) == [12, 13]


@pytest.mark.parametrize(
    "response",
    [
        None,
        answer(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        answer(error_code=ErrorCode.FENCED_LEADER_EPOCH),
        answer(error_code=ErrorCode.KAFKA_STORAGE_ERROR),
        answer(error_code=ErrorCode.UNKNOWN_TOPIC_ID),
        answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
        answer(records=corrupt(batch(10)), high_watermark=20),
        answer(records=b"", high_watermark=20),
    ],
)
def test_retriable_failures_are_retried(
    broker: ScriptedBroker, log: ScriptedLog, response: FetchResponse | None
) -> None:
    log.next_responses = [response, response]
    assert offsets(broker) == list(range(10, 20))


def test_deadline_ends_retries(broker: ScriptedBroker, log: ScriptedLog) -> None:
    log.next_responses = [answer(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 10_000
    with pytest.raises(ApiError, match=r"no progress for 200 ms \(default.api.timeout.ms\)"):
        offsets(broker, default_api_timeout_ms="200")


def test_persistent_corruption_names_the_batch(broker: ScriptedBroker, log: ScriptedLog) -> None:
    log.batches[15] = corrupt(batch(15))
    with pytest.raises(ApiError, match="orders-0: the batch at offset 15 is corrupt") as raised:
        offsets(broker)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_fatal_error_is_raised_at_once(broker: ScriptedBroker, log: ScriptedLog) -> None:
    log.next_responses = [answer(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(ApiError) as raised:
        offsets(broker)
    assert raised.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_offsets_below_log_start_are_data_loss(broker: ScriptedBroker) -> None:
    with pytest.raises(
        DataLoss, match=r"offsets 3 to 9 of orders-0 are gone: the log begins at 10"
    ):
        offsets(broker, start=3)


def test_allowed_data_loss_is_skipped_with_warning(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert offsets(broker, start=3, fail_on_data_loss=False) == list(range(10, 20))
    assert "offsets 3 to 9 of orders-0 are gone" in caplog.text


def test_range_after_log_end_is_data_loss(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "UNKNOWN_TOPIC_TIMEOUT_S", 0.1)
    with pytest.raises(
        DataLoss, match=r"offsets 30 to 39 of orders-0 are gone: the log ends at 20"
    ):
        offsets(broker, start=30, end=40)


def test_short_log_is_awaited_then_data_loss(broker: ScriptedBroker) -> None:
    with pytest.raises(DataLoss, match=r"offsets 20 to 29 .* log ends at 20"):
        offsets(broker, end=30, default_api_timeout_ms="300")


@pytest.mark.parametrize("fails", [True, False])
def test_recreated_topic_is_data_loss(
    broker: ScriptedBroker, log: ScriptedLog, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    log.topic_id = OTHER_ID
    if fails:
        with pytest.raises(DataLoss, match="deleted and created again"):
            offsets(broker)
    else:
        assert offsets(broker, fail_on_data_loss=False) == []
        assert "offsets 10 to 19 of orders-0 are gone" in caplog.text


def test_recreated_topic_is_noticed_on_cached_connection(
    broker: ScriptedBroker, log: ScriptedLog
) -> None:
    offsets(broker)
    log.topic_id = OTHER_ID
    log.next_responses = [answer(error_code=ErrorCode.UNKNOWN_TOPIC_ID)]
    with pytest.raises(DataLoss, match="deleted and created again"):
        offsets(broker)


def test_deleted_topic_is_data_loss(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "UNKNOWN_TOPIC_TIMEOUT_S", 0.1)
    broker.topics.clear()
    with pytest.raises(DataLoss, match="offsets 10 to 19 of orders-0 are gone: the topic was del"):
        offsets(broker)


def test_gaps_at_both_ends_are_no_data_loss(broker: ScriptedBroker, log: ScriptedLog) -> None:
    """Compaction removes whole batches: the next batch starts after the range."""
    log.batches = {15: batch(15)}
    assert offsets(broker, 10, 12) == []
    assert offsets(broker, 10, 16) == [15]


def test_missing_records_without_gap_are_data_loss(
    broker: ScriptedBroker, log: ScriptedLog
) -> None:
    log.batches = {10: batch(10)}
    with pytest.raises(DataLoss, match=r"offsets 15 to 19 .* returns no data; its log ends at 20"):
        offsets(broker, default_api_timeout_ms="200")


def test_log_start_above_position_is_data_loss(broker: ScriptedBroker, log: ScriptedLog) -> None:
    log.next_responses = [answer(records=batch(15), high_watermark=20, log_start_offset=15)]
    with pytest.raises(DataLoss, match="offsets 10 to 14 of orders-0 are gone"):
        offsets(broker)


def test_topic_name_is_used_without_topic_id(broker: ScriptedBroker, log: ScriptedLog) -> None:
    log.topic_id = ZERO_ID
    assert offsets(broker, topic_id=None) == list(range(10, 20))
    assert broker.received(FetchRequest)[0].topics[0].topic == "orders"


def test_settings_reach_the_request(broker: ScriptedBroker) -> None:
    offsets(broker, fetch_max_bytes="1000", fetch_max_wait_ms="7")
    request = broker.received(FetchRequest)[0]
    assert request.max_bytes == request.topics[0].partitions[0].partition_max_bytes == 1000
    assert request.max_wait_ms == 7


@pytest.mark.parametrize("value", ["many", "-1", "0", "99999999999"])
def test_invalid_number_names_the_setting(value: str) -> None:
    settings = {"bootstrap.servers": "x:1", "fetch.max.bytes": value}
    with pytest.raises(ConfigError, match=r"kafka\.fetch\.max\.bytes"):
        parse_fetch_settings(settings, ("offset",))


def test_task_arguments_can_be_pickled() -> None:
    settings = parse_fetch_settings({"bootstrap.servers": "x:1", "client.id": "me"}, ("offset",))
    offset_range = OffsetRange(topic="orders", partition=0, start=1, end=2, topic_id=ID)
    loss = DataLoss("orders", 0, 1, 2, "why")
    assert pickle.loads(pickle.dumps((settings, offset_range))) == (settings, offset_range)
    assert str(pickle.loads(pickle.dumps(loss))) == str(loss)


def test_unreachable_cluster_is_retried_until_deadline() -> None:
    settings = parse_fetch_settings(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "default.api.timeout.ms": "300",
            "retry.backoff.ms": "50",
        },
        ("offset",),
    )
    offset_range = OffsetRange(topic="orders", partition=0, start=1, end=2, topic_id=ID)
    with pytest.raises(ApiError, match=r"orders-0 \[1, 2\) at 1: no broker reached: 127.0.0.1:1"):
        list(read_range(offset_range, settings))
    kept_clusters.close_idle()
