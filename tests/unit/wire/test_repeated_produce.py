"""Repeated Produce requests are read and answered exactly as by the ordinary path."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire import codec
from barnabas.wire.fast import RepeatedProduces, decode_produce, encode_produce_response
from barnabas.wire.headers import (
    RequestHeader,
    decode_request_header,
    encode_request_header,
    encode_response_header,
)
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
    TopicProduceResponse,
)

VERSIONS = range(5, 12)
OFFSETS = st.integers(-1, 2**62)


def frame_of(
    version: int,
    batch: bytes,
    *,
    correlation_id: int = 1,
    topic: str = "orders",
    index: int = 3,
    acks: int = 1,
    transactional_id: str | None = None,
) -> memoryview:
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=(TopicProduceData(topic, (PartitionProduceData(index, batch),)),),
    )
    header = encode_request_header(RequestHeader(0, version, correlation_id, "client"))
    return memoryview(header + codec.encode(request, version))


def learn(known: RepeatedProduces, frame: memoryview) -> None:
    header, at = decode_request_header(frame)
    known.learn(frame, header, decode_produce(header.api_version, frame, at))


@given(
    version=st.sampled_from(VERSIONS),
    first=st.binary(min_size=1, max_size=20_000),
    second=st.binary(min_size=1, max_size=20_000),
)
def test_next_batch_of_any_size_is_found(version: int, first: bytes, second: bytes) -> None:
    known = RepeatedProduces()
    learn(known, frame_of(version, first))
    frame = frame_of(version, second, correlation_id=77)
    found = known.find(frame)
    assert found is not None
    assert (found.key, found.acks, found.request.timeout_ms) == (("orders", 3), 1, 1000)
    assert bytes(known.batch(frame, found.is_flexible) or b"") == second


@given(version=st.sampled_from(VERSIONS), offsets=st.tuples(OFFSETS, OFFSETS, OFFSETS))
def test_response_equals_the_ordinary_one(version: int, offsets: tuple[int, int, int]) -> None:
    known = RepeatedProduces()
    frame = frame_of(version, b"batch")
    learn(known, frame)
    found = known.find(frame)
    assert found is not None
    body = encode_response_header(0, version, 42) + encode_produce_response(
        version,
        [TopicProduceResponse("orders", (PartitionProduceResponse(3, 0, *offsets),))],
    )
    assert found.encode_response(42, *offsets) == struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("version", VERSIONS)
def test_other_topic_partition_or_acks_is_another_shape(version: int) -> None:
    known = RepeatedProduces()
    learn(known, frame_of(version, b"batch"))
    assert known.find(frame_of(version, b"batch", topic="others")) is None
    assert known.find(frame_of(version, b"batch", index=4)) is None
    assert known.find(frame_of(version, b"batch", acks=-1)) is None
    learn(known, frame_of(version, b"batch", index=4))
    for index in (3, 4):
        found = known.find(frame_of(version, b"other batch", index=index))
        assert found is not None
        assert found.key == ("orders", index)


@pytest.mark.parametrize("version", range(12))
def test_unsupported_requests_are_not_remembered(version: int) -> None:
    known = RepeatedProduces()
    if version >= 3:
        learn(known, frame_of(version, b"batch", transactional_id="tx"))
    if version < 5:
        learn(known, frame_of(version, b"batch"))
    learn(known, frame_of(version, b""))
    assert known.shapes == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_frame_with_other_end_takes_ordinary_path(version: int) -> None:
    known = RepeatedProduces()
    frame = frame_of(version, b"x" * 200)
    learn(known, frame)
    whole = bytes(frame)
    for size in range(known.size_at, len(whole)):
        assert known.batch(memoryview(whole[:size]), version >= 9) is None
    assert known.batch(memoryview(whole + b"\x00"), version >= 9) is None
    if version >= 9:
        for tag in (1, 2, 3):
            tagged = bytearray(whole)
            tagged[-tag] = 1
            assert known.batch(memoryview(tagged), True) is None


def test_number_of_shapes_is_limited() -> None:
    known = RepeatedProduces()
    for index in range(2000):
        learn(known, frame_of(9, b"batch", index=index))
    assert len(known.shapes) <= 256
