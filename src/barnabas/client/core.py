"""The client side of the Kafka protocol for one connection, without the socket.

    encode_request(message)  ─► (correlation id, bytes to send)
    decode_response(frame)   ─► (correlation id, message)

The first exchange is ApiVersions. `set_versions` stores the broker's version ranges. Every later request uses the
highest version that both sides support. Responses are matched to requests by correlation id.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from barnabas import __version__
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import TopicPartition
from barnabas.wire.apis import api_name
from barnabas.wire.codec import Message, decode, encode_parts
from barnabas.wire.headers import (
    CORRELATION,
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

P = TypeVar("P")
T = TypeVar("T")

FRAME_SIZE = struct.Struct(">i")
RESPONSE_BYTES_MAX = 256 << 20
CORRELATION_ID_MAX = 0x7FFF_FFFF
API_VERSIONS_VERSION = 3
"""Version of the first ApiVersions request. Kafka 2.4 and newer support it, and it carries the client's name."""

API_VERSIONS_REQUEST = ApiVersionsRequest(
    client_software_name="barnabas", client_software_version=__version__
)


class EncodedRequest(NamedTuple):
    correlation_id: int
    data: bytes


class DecodedResponse(NamedTuple):
    correlation_id: int
    message: Message


class PendingRequest(NamedTuple):
    """The response type and version of a request that has no response yet."""

    response: type[Message]
    version: int


class ClientProtocol:
    """Encodes requests and decodes responses of one connection. `versions` maps API keys to the broker's versions."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.versions: dict[int, range] = {}
        self.pending: dict[int, PendingRequest] = {}
        self.last_correlation_id = 0

    def set_versions(self, response: ApiVersionsResponse) -> None:
        self.versions = {
            api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys
        }

    def encode_request(
        self,
        message: Message,
        response: type[Message] | None,
        *,
        max_version: int | None = None,
        body: bytes | None = None,
    ) -> EncodedRequest:
        """Encode a request, with its 4-byte size. Raises ApiError UNSUPPORTED_VERSION if there is no common version.

        `response` is None if the broker sends no response (Produce with acks=0). `body` is the already encoded message;
        its version must be the one that `negotiate_version` returns.
        """
        version = negotiate_version(type(message), self.versions, max_version)
        self.last_correlation_id = correlation_id = (
            self.last_correlation_id % CORRELATION_ID_MAX + 1
        )
        head = encode_request_header(
            RequestHeader(message.API_KEY, version, correlation_id, self.client_id)
        )
        parts = [head, *(encode_parts(message, version) if body is None else (body,))]
        if response is not None:
            self.pending[correlation_id] = PendingRequest(response, version)
        return EncodedRequest(
            correlation_id, b"".join([FRAME_SIZE.pack(sum(map(len, parts))), *parts])
        )

    def decode_response(self, frame: memoryview) -> DecodedResponse:
        """Decode a response without its 4-byte size. Raises RemoteWireError if it is invalid or matches no request."""
        if len(frame) < CORRELATION.size:
            raise RemoteWireError(f"a response of {len(frame)} bytes is too short")
        (correlation_id,) = CORRELATION.unpack_from(frame)
        pending = self.pending.pop(correlation_id, None)
        if pending is None:
            raise RemoteWireError(f"response to request {correlation_id}, which was not sent")
        response, version = pending
        _, at = decode_response_header(response.API_KEY, version, frame)
        if response is ApiVersionsResponse and is_unsupported_version(frame, at):
            version = 0
        return DecodedResponse(correlation_id, decode(response, version, frame, at))


def is_unsupported_version(frame: memoryview, at: int) -> bool:
    """Whether an ApiVersions response has the error UNSUPPORTED_VERSION. It is then encoded in version 0."""
    return frame[at : at + 2] == struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)


def negotiate_version(
    request: type[Message], versions: Mapping[int, range], max_version: int | None = None
) -> int:
    """Return the highest common version up to `max_version`. Raises ApiError UNSUPPORTED_VERSION if there is none."""
    ours = request.VERSIONS
    highest = ours[-1] if max_version is None else min(ours[-1], max_version)
    if request is ApiVersionsRequest and not versions:
        return min(highest, API_VERSIONS_VERSION)
    theirs = versions.get(request.API_KEY)
    name = api_name(request.API_KEY)
    if theirs is None:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"the broker does not support {name}")
    version = min(highest, theirs[-1])
    if version < max(ours[0], theirs[0]):
        ranges = f"client {ours[0]}–{highest}, broker {theirs[0]}–{theirs[-1]}"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"no common version of {name}: {ranges}")
    return version


def frame_size(head: bytes | bytearray) -> int:
    """Decode the size before a frame. Raises RemoteWireError for a size that no Kafka broker sends."""
    size: int = FRAME_SIZE.unpack(head)[0]
    if not CORRELATION.size <= size <= RESPONSE_BYTES_MAX:
        raise RemoteWireError(
            f"a response of {size} bytes; the address is not a plaintext Kafka listener"
        )
    return size


def build_topics(
    topic: Callable[[str, tuple[P, ...]], T], partitions: Mapping[TopicPartition, P]
) -> tuple[T, ...]:
    """Group the partitions of a request by topic. `topic` builds the struct of one topic."""
    by_topic: dict[str, list[P]] = {}
    for (name, _), partition in partitions.items():
        by_topic.setdefault(name, []).append(partition)
    return tuple(topic(name, tuple(found)) for name, found in by_topic.items())


def error_of(code: int, message: str | None = None) -> ApiError | None:
    """Return the ApiError of an error code; None for 0, and UNKNOWN_SERVER_ERROR for an unknown code."""
    if not code:
        return None
    try:
        return ApiError(ErrorCode(code), message or "")
    except ValueError:
        why = f"error code {code}" + (f": {message}" if message else "")
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why)


def raise_if(code: int, message: str | None = None) -> None:
    """Raise the ApiError of a response's error code, unless the code is 0."""
    error = error_of(code, message)
    if error is not None:
        raise error
