from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import RemoteWireError
from barnabas.wire.apis import APIS
from barnabas.wire.codec import Message, decode, decode_from, encode
from barnabas.wire.headers import decode_request_header
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.primitives import uvarint
from tests.unit.wire.random_messages import ALL, CLASSES, name_of, random_message

cases = st.sampled_from(ALL)
randoms = st.randoms(use_true_random=False)


@settings(max_examples=300)
@given(cases, randoms)
def test_every_message_round_trips(case: tuple[type[Message], int], random: Random) -> None:
    cls, version = case
    message = random_message(random, cls, version)
    data = encode(message, version)
    assert decode_from(cls, version, data) == (message, len(data))


@pytest.mark.parametrize(("cls", "version"), ALL, ids=name_of)
def test_every_truncation_of_message_is_rejected(cls: type[Message], version: int) -> None:
    random = Random(1)
    samples = (encode(random_message(random, cls, version, most=2), version) for _ in range(60))
    data = max((each for each in samples if len(each) < 400), key=len)
    for size in range(len(data)):
        with pytest.raises(RemoteWireError):
            decode(cls, version, data[:size])


@settings(max_examples=1000)
@given(cases, st.binary(max_size=200))
def test_random_bytes_are_a_message_or_rejected(
    case: tuple[type[Message], int], data: bytes
) -> None:
    cls, version = case
    with suppress(RemoteWireError):
        decode(cls, version, data)


@settings(max_examples=1000)
@given(cases, st.binary(max_size=100))
def test_random_frame_is_a_request_or_rejected(
    case: tuple[type[Message], int], data: bytes
) -> None:
    cls, version = case
    for frame in (data, struct.pack(">hh", cls.API_KEY, version) + data):
        with suppress(RemoteWireError):
            header, body = decode_request_header(memoryview(frame))
            if header.is_served:
                decode(APIS[header.api_key].request, header.api_version, frame, body)


def test_memory_is_proportional_to_received_bytes() -> None:
    count = 50_000
    frame = uvarint(count + 1) + b"\x01\x00" * count + bytes(4)  # topics without a name
    tracemalloc.start()
    try:
        request = decode(MetadataRequest, 9, frame)
        assert tracemalloc.get_traced_memory()[1] < 60 * len(frame)
    finally:
        tracemalloc.stop()
    assert request.topics is not None
    assert len(request.topics) == count


@pytest.mark.parametrize("cls", CLASSES, ids=name_of)
def test_message_with_changed_bytes_is_read_or_rejected(cls: type[Message]) -> None:
    random = Random(2)
    for _ in range(300):
        version = random.choice(cls.VERSIONS)
        data = bytearray(encode(random_message(random, cls, version, most=2), version))
        for _ in range(random.randint(1, 4)):
            if data:
                data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
        with suppress(RemoteWireError):
            decode(cls, version, bytes(data))
