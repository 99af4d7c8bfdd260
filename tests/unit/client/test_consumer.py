from __future__ import annotations

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import (
    Beginning,
    Consumer,
    End,
    FromEnd,
    FromOffset,
    FromTime,
    Start,
    decode_records,
    resolve_starts,
)
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import TopicPartition
from barnabas.wire.compression import Compression
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
from barnabas.wire.records import Record, build_batch
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


def list_offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """A log from 10 to 20, with a record every millisecond from 1010 on."""
    asked = request.topics[0].partitions[0].timestamp
    offset = {-1: 20, -2: 10}.get(asked, max(10, asked - 1_000) if asked < 1_020 else -1)
    found = ListOffsetsPartitionResponse(partition_index=0, offset=offset, timestamp=asked)
    return ListOffsetsResponse(
        topics=(ListOffsetsTopicResponse(name="orders", partitions=(found,)),)
    )


def fetched(data: PartitionData) -> FetchResponse:
    return FetchResponse(responses=(FetchableTopicResponse(topic="orders", partitions=(data,)),))


def fetch(request: FetchRequest) -> FetchResponse:
    offset = request.topics[0].partitions[0].fetch_offset
    if not 10 <= offset <= 20:
        return fetched(PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    data = LOG if offset < 20 else b""
    return fetched(PartitionData(partition_index=0, high_watermark=20, records=data))


def test_records_before_the_position_are_left_out_and_a_cut_batch_is_read_later() -> None:
    found, position = decode_records(ORDERS, 12, memoryview(LOG[:-1]))
    assert [record.offset for record in found] == [12, 13, 14]
    assert position == 15
    found, position = decode_records(ORDERS, 15, memoryview(LOG))
    assert [record.value for record in found] == [b"15", b"16", b"17", b"18", b"19"]
    assert position == 20


def test_a_control_batch_moves_the_position_and_yields_nothing() -> None:
    marker = build_batch([Record(7, 0, b"\0\0\0\1", b"")], base_offset=7, is_control=True)
    assert decode_records(ORDERS, 7, memoryview(marker)) == ([], 8)


def test_a_damaged_batch_is_not_read() -> None:
    damaged = bytearray(LOG)
    damaged[70] ^= 1
    with pytest.raises(RemoteWireError, match="corrupt"):
        decode_records(ORDERS, 10, memoryview(damaged))


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
def test_every_start_becomes_an_offset(start: Start, offset: int) -> None:
    with (
        ScriptedBroker({ListOffsetsRequest: list_offsets}) as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
    ):
        assert resolve_starts(cluster, {ORDERS: start}) == {ORDERS: offset}


def consume(broker: ScriptedBroker, start: Start, reset: Start | None = None) -> list[int]:
    with Cluster(broker.address, timeout_s=30) as cluster:
        consumer = Consumer(cluster, {ORDERS: start}, reset=reset)
        return [record.offset for record in consumer.records(stop_at_end=True)]


def test_everything_is_read_to_the_end() -> None:
    with ScriptedBroker({ListOffsetsRequest: list_offsets, FetchRequest: fetch}) as broker:
        assert consume(broker, Beginning()) == list(range(10, 20))


def test_an_offset_that_is_gone_is_an_error_or_begins_anew() -> None:
    with ScriptedBroker({ListOffsetsRequest: list_offsets, FetchRequest: fetch}) as broker:
        with pytest.raises(ApiError) as caught:
            consume(broker, FromOffset(3))
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert consume(broker, FromOffset(3), reset=Beginning()) == list(range(10, 20))


def test_a_leader_that_steps_down_or_hangs_up_loses_no_record() -> None:
    trouble: list[int | None] = [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        None,
        ErrorCode.FENCED_LEADER_EPOCH,
    ]

    def troubled(request: FetchRequest) -> FetchResponse | None:
        if not trouble:
            return fetch(request)
        code = trouble.pop(0)
        return None if code is None else fetched(PartitionData(partition_index=0, error_code=code))

    with ScriptedBroker({ListOffsetsRequest: list_offsets, FetchRequest: troubled}) as broker:
        assert consume(broker, FromOffset(13)) == list(range(13, 20))
    assert not trouble
