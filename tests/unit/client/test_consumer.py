from __future__ import annotations

import pytest

from barnabas.batch.compression import Compression
from barnabas.batch.records import Record, build_batch
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import (
    Beginning,
    Consumer,
    End,
    FromEnd,
    FromOffset,
    FromTime,
    Start,
    decode_consumed_records,
    resolve_starts,
)
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import TopicPartition
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
from tests.unit.client.scripted_broker import ScriptedBroker

ORDERS = TopicPartition("orders", 0)
LOG = b"".join(
    build_batch(
        [Record(offset, 1_000 + offset, None, b"%d" % offset) for offset in range(base, base + 5)],
        base_offset=base,
        compression=codec,
    )
    for base, codec in [(10, Compression.NONE), (15, Compression.LZ4)]
)


def list_offsets(request: ListOffsetsRequest, end: int = 20) -> ListOffsetsResponse:
    """Answer for a log of offsets 10 to `end`, with one record per millisecond from 1010 on."""
    timestamp = request.topics[0].partitions[0].timestamp
    offset = {-1: end, -2: 10}.get(
        timestamp, max(10, timestamp - 1_000) if timestamp < 1_020 else -1
    )
    found = ListOffsetsPartitionResponse(partition_index=0, offset=offset, timestamp=timestamp)
    return ListOffsetsResponse(
        topics=(ListOffsetsTopicResponse(name="orders", partitions=(found,)),)
    )


def fetch_response(data: PartitionData) -> FetchResponse:
    return FetchResponse(responses=(FetchableTopicResponse(topic="orders", partitions=(data,)),))


def fetch(request: FetchRequest) -> FetchResponse:
    offset = request.topics[0].partitions[0].fetch_offset
    if not 10 <= offset <= 20:
        return fetch_response(
            PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        )
    data = LOG if offset < 20 else b""
    return fetch_response(PartitionData(partition_index=0, high_watermark=20, records=data))


def test_read_skips_earlier_records_and_partial_batch() -> None:
    found, position = decode_consumed_records(ORDERS, 12, memoryview(LOG[:-1]))
    assert [record.offset for record in found] == [12, 13, 14]
    assert position == 15
    found, position = decode_consumed_records(ORDERS, 15, memoryview(LOG))
    assert [record.value for record in found] == [b"15", b"16", b"17", b"18", b"19"]
    assert position == 20


def test_control_batch_advances_position_without_records() -> None:
    marker = build_batch([Record(7, 0, b"\0\0\0\1", b"")], base_offset=7, is_control=True)
    assert decode_consumed_records(ORDERS, 7, memoryview(marker)) == ([], 8)


def test_corrupt_batch_is_rejected() -> None:
    damaged = bytearray(LOG)
    damaged[70] ^= 1
    with pytest.raises(RemoteWireError, match="corrupt"):
        decode_consumed_records(ORDERS, 10, memoryview(damaged))


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        (Beginning(), 10),
        (End(), 20),
        (FromOffset(3), 3),
        (FromEnd(4), 16),
        (FromEnd(400), 10),
        (FromTime(1_013), 13),
        (FromTime(9_999), 20),
    ],
)
def test_start_positions_resolve_to_offsets(start: Start, offset: int) -> None:
    with (
        ScriptedBroker({ListOffsetsRequest: list_offsets}) as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
    ):
        assert resolve_starts(cluster, {ORDERS: start}) == {ORDERS: offset}


def test_record_written_during_the_lookup_by_time_comes_after_the_start() -> None:
    times: list[int] = []

    def growing(request: ListOffsetsRequest) -> ListOffsetsResponse:
        times.append(request.topics[0].partitions[0].timestamp)
        return list_offsets(request, end=19 + len(times))

    with (
        ScriptedBroker({ListOffsetsRequest: growing}) as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
    ):
        assert resolve_starts(cluster, {ORDERS: FromTime(9_999)}) == {ORDERS: 20}


def consume(broker: ScriptedBroker, start: Start, reset: Start | None = None) -> list[int]:
    with Cluster(broker.address, timeout_s=30) as cluster:
        consumer = Consumer(cluster, {ORDERS: start}, reset=reset)
        return [record.offset for record in consumer.records(stop_at_end=True)]


def test_consumer_reads_to_the_end() -> None:
    with ScriptedBroker({ListOffsetsRequest: list_offsets, FetchRequest: fetch}) as broker:
        assert consume(broker, Beginning()) == list(range(10, 20))


def test_offset_out_of_range_fails_or_resets() -> None:
    with ScriptedBroker({ListOffsetsRequest: list_offsets, FetchRequest: fetch}) as broker:
        with pytest.raises(ApiError) as caught:
            consume(broker, FromOffset(3))
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert consume(broker, FromOffset(3), reset=Beginning()) == list(range(10, 20))


def test_leader_change_and_disconnect_lose_no_record() -> None:
    failures: list[int | None] = [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        None,
        ErrorCode.FENCED_LEADER_EPOCH,
    ]

    def fail_first(request: FetchRequest) -> FetchResponse | None:
        if not failures:
            return fetch(request)
        code = failures.pop(0)
        return (
            None
            if code is None
            else fetch_response(PartitionData(partition_index=0, error_code=code))
        )

    with ScriptedBroker({ListOffsetsRequest: list_offsets, FetchRequest: fail_first}) as broker:
        assert consume(broker, FromOffset(13)) == list(range(13, 20))
    assert not failures
