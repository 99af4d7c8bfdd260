from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.core import (
    API_VERSIONS_REQUEST,
    ClientProtocol,
    error_of,
    frame_size,
    negotiate_version,
)
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.wire.codec import encode
from barnabas.wire.headers import decode_request_header
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse

ALL_TOPICS = MetadataRequest(topics=None, allow_auto_topic_creation=False)


def conversation_with(versions: dict[int, tuple[int, int]]) -> ClientProtocol:
    protocol = ClientProtocol("me")
    protocol.set_versions(
        ApiVersionsResponse(
            api_keys=tuple(
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in versions.items()
            )
        )
    )
    return protocol


def test_request_is_framed_with_header() -> None:
    sent = conversation_with({3: (0, 12)}).encode_request(ALL_TOPICS, MetadataResponse)
    (size,) = struct.unpack_from(">i", sent.data)
    assert size == len(sent.data) - 4
    header, _ = decode_request_header(memoryview(sent.data)[4:])
    assert header == (3, 12, sent.correlation_id, "me")


def test_api_versions_is_sent_in_version_3() -> None:
    sent = ClientProtocol("me").encode_request(API_VERSIONS_REQUEST, ApiVersionsResponse)
    header, _ = decode_request_header(memoryview(sent.data)[4:])
    assert (header.api_key, header.api_version) == (18, 3)


def test_unsupported_api_versions_is_answered_in_version_0() -> None:
    protocol = ClientProtocol("me")
    sent = protocol.encode_request(API_VERSIONS_REQUEST, ApiVersionsResponse)
    refusal = ApiVersionsResponse(
        error_code=35, api_keys=(ApiVersion(api_key=18, min_version=0, max_version=2),)
    )
    frame = struct.pack(">i", sent.correlation_id) + encode(refusal, 0)
    found, message = protocol.decode_response(memoryview(frame))
    assert found == sent.correlation_id
    assert message == refusal


def test_responses_are_matched_by_correlation_id() -> None:
    protocol = conversation_with({3: (0, 8)})
    first = protocol.encode_request(ALL_TOPICS, MetadataResponse).correlation_id
    second = protocol.encode_request(ALL_TOPICS, MetadataResponse).correlation_id
    for correlation_id in (second, first):
        answer = MetadataResponse(controller_id=correlation_id)
        frame = struct.pack(">i", correlation_id) + encode(answer, 8)
        assert protocol.decode_response(memoryview(frame)) == (correlation_id, answer)


def test_unexpected_response_is_rejected() -> None:
    protocol = conversation_with({3: (0, 8)})
    with pytest.raises(RemoteWireError, match="was not sent"):
        protocol.decode_response(memoryview(struct.pack(">i", 99)))
    with pytest.raises(RemoteWireError):
        protocol.decode_response(memoryview(b"\0"))


@given(st.binary(max_size=60), st.integers(0, 12))
def test_random_bytes_are_decoded_or_rejected(data: bytes, version: int) -> None:
    protocol = conversation_with({3: (0, version)})
    sent = protocol.encode_request(MetadataRequest(topics=()), MetadataResponse)
    with contextlib.suppress(RemoteWireError):
        found, _ = protocol.decode_response(
            memoryview(struct.pack(">i", sent.correlation_id) + data)
        )
        assert found == sent.correlation_id


def test_highest_common_version_is_used() -> None:
    assert negotiate_version(MetadataRequest, {3: range(6)}) == 5
    assert negotiate_version(MetadataRequest, {3: range(4, 40)}) == MetadataRequest.VERSIONS[-1]
    assert negotiate_version(MetadataRequest, {3: range(40)}, max_version=7) == 7
    assert negotiate_version(ApiVersionsRequest, {}) == 3


@pytest.mark.parametrize("versions", [{}, {3: range(30, 40)}])
def test_missing_common_version_names_the_api(versions: dict[int, range]) -> None:
    with pytest.raises(ApiError, match="Metadata") as caught:
        negotiate_version(MetadataRequest, versions)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_invalid_frame_size_is_rejected() -> None:
    assert frame_size(struct.pack(">i", 100)) == 100
    for size in (-1, 3, 0x1503_0300, 0x4854_5450):
        with pytest.raises(RemoteWireError):
            frame_size(struct.pack(">i", size))


def test_unknown_error_code_is_still_an_error() -> None:
    assert error_of(0) is None
    unknown = error_of(9_999, "well")
    assert unknown is not None
    assert unknown.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "9999" in unknown.message


def test_correlation_id_wraps_to_positive() -> None:
    protocol = conversation_with({3: (0, 8)})
    protocol.last_correlation_id = 0x7FFF_FFFF
    assert protocol.encode_request(ALL_TOPICS, MetadataResponse).correlation_id == 1
