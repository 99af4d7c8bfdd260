from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse

from barnabas.errors import LocalWireError, RemoteWireError
from barnabas.wire.apis import APIS
from barnabas.wire.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)

KNOWN = [(api.key, version) for api in APIS.values() for version in api.versions]


@given(
    st.sampled_from(KNOWN),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(max_size=300),
    st.binary(max_size=20),
)
def test_request_header_round_trips(
    known: tuple[int, int], correlation_id: int, client_id: str | None, body: bytes
) -> None:
    if known == (7, 0):
        client_id = None  # ControlledShutdown v0 has no client id
    header = RequestHeader(*known, correlation_id, client_id)
    data = encode_request_header(header)
    assert decode_request_header(memoryview(data + body)) == (header, len(data))
    assert header.is_served


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("client_id", ["rdkafka", "", None])
def test_kafka_python_writes_same_request_header(version: int, client_id: str | None) -> None:
    request = MetadataRequest(version=version, topics=[])
    request.with_header(correlation_id=77, client_id=client_id)
    golden = request.encode_header(flexible=version >= 9)
    header = RequestHeader(3, version, 77, client_id)
    assert encode_request_header(header) == golden
    assert decode_request_header(memoryview(golden + b"\x01")) == (header, len(golden))


@pytest.mark.parametrize("version", [8, 9])
def test_kafka_python_writes_same_response_header(version: int) -> None:
    response = MetadataResponse(version=version)
    response.with_header(correlation_id=77)
    golden = response.encode_header(flexible=version >= 9)
    assert encode_response_header(3, version, 77) == golden
    assert decode_response_header(3, version, memoryview(golden)) == (77, len(golden))


@pytest.mark.parametrize("version", range(5))
def test_api_versions_response_header_has_no_tags(version: int) -> None:
    response = ApiVersionsResponse(version=version)
    response.with_header(correlation_id=77)
    golden = response.encode_header(flexible=version >= 3)
    assert encode_response_header(18, version, 77) == golden == struct.pack(">i", 77)
    assert decode_response_header(18, version, memoryview(golden)) == (77, 4)


@pytest.mark.parametrize("known", [(18, 99), (18, -1), (999, 0), (-1, -1), (0, 12)])
def test_header_of_unknown_request_can_be_answered(known: tuple[int, int]) -> None:
    data = struct.pack(">hhi", *known, 42) + b"whatever\xff"
    header, body = decode_request_header(memoryview(data))
    assert header == RequestHeader(*known, 42)
    assert not header.is_served
    assert body == len(data)


def test_tags_in_request_header_are_skipped() -> None:
    data = encode_request_header(RequestHeader(3, 12, 5, "c"))[:-1] + b"\x02\x00\x01z\x07\x00body"
    header, body = decode_request_header(memoryview(data))
    assert header == RequestHeader(3, 12, 5, "c")
    assert data[body:] == b"body"


@pytest.mark.parametrize("known", [(3, 8), (3, 12)])
def test_every_truncation_of_header_is_rejected(known: tuple[int, int]) -> None:
    data = encode_request_header(RequestHeader(*known, 5, "client"))
    for size in range(len(data)):
        with pytest.raises(RemoteWireError):
            decode_request_header(memoryview(data[:size]))
    data = encode_response_header(*known, 5)
    for size in range(len(data)):
        with pytest.raises(RemoteWireError):
            decode_response_header(*known, memoryview(data[:size]))


@given(st.binary(max_size=40))
def test_random_bytes_are_a_header_or_rejected(data: bytes) -> None:
    for ahead in (b"", b"\x00\x03\x00\x0c", b"\x00\x03\x00\x01"):
        with suppress(RemoteWireError):
            decode_request_header(memoryview(ahead + data))
    with suppress(RemoteWireError):
        decode_response_header(3, 12, memoryview(data))


def test_invalid_client_id_is_rejected() -> None:
    for client_id in (b"\x00\x01\xff", b"\xff\xfe", b"\x00\x05abc"):
        with pytest.raises(RemoteWireError):
            decode_request_header(memoryview(struct.pack(">hhi", 3, 1, 0) + client_id))


def test_unencodable_client_id_is_a_local_error() -> None:
    for client_id in ("x" * 40_000, "\ud800"):
        with pytest.raises(LocalWireError):
            encode_request_header(RequestHeader(3, 1, 0, client_id))
