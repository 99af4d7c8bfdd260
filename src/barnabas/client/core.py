"""One conversation with a broker, without the socket: who is asked what, in which version, and whose answer this is.

    request(message)  ─► (correlation id, bytes to send)
    response(frame)   ─► (correlation id, message)

The first exchange is ApiVersions; `learn` keeps what the broker speaks, and from then on every request goes out in the
highest version both sides know. A broker answers one connection in order, but nothing here relies on it: answers are
matched by correlation id.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from barnabas import __version__
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.wire.apis import api_name
from barnabas.wire.codec import Message, decode, encode_parts
from barnabas.wire.headers import (
    CORRELATION,
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SIZE = struct.Struct(">i")
RESPONSE_BYTES_MAX = 256 << 20
CORRELATION_MAX = 0x7FFF_FFFF
FIRST_API_VERSIONS = 3
"""Known to every broker since Kafka 2.4, and it tells the broker our name."""

HELLO = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)


class Outgoing(NamedTuple):
    correlation_id: int
    data: bytes


class Incoming(NamedTuple):
    correlation_id: int
    message: Message


class Expected(NamedTuple):
    response: type[Message]
    version: int


class Conversation:
    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.versions: dict[int, range] = {}
        self.expected: dict[int, Expected] = {}
        self.last_correlation_id = 0

    def learn(self, response: ApiVersionsResponse) -> None:
        self.versions = {
            api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys
        }

    def request(
        self,
        message: Message,
        response: type[Message] | None,
        *,
        at_most: int | None = None,
        body: bytes | None = None,
    ) -> Outgoing:
        """The bytes of a request. `response` is None for what is never answered (Produce with acks=0). `body` is the
        message in this very version, for who has encoded it already."""
        version = common_version(type(message), self.versions, at_most)
        self.last_correlation_id = correlation_id = self.last_correlation_id % CORRELATION_MAX + 1
        head = encode_request_header(
            RequestHeader(message.API_KEY, version, correlation_id, self.client_id)
        )
        parts = [head, *(encode_parts(message, version) if body is None else (body,))]
        if response is not None:
            self.expected[correlation_id] = Expected(response, version)
        return Outgoing(correlation_id, b"".join([SIZE.pack(sum(map(len, parts))), *parts]))

    def response(self, frame: memoryview) -> Incoming:
        """The answer in a frame (without its four bytes of size). RemoteWireError if nobody asked for it."""
        if len(frame) < CORRELATION.size:
            raise RemoteWireError(f"a response of {len(frame)} bytes")
        (correlation_id,) = CORRELATION.unpack_from(frame)
        expected = self.expected.pop(correlation_id, None)
        if expected is None:
            raise RemoteWireError(f"an answer to request {correlation_id}, which was never asked")
        response, version = expected
        _, at = decode_response_header(response.API_KEY, version, frame)
        if response is ApiVersionsResponse and speaks_no_such_version(frame, at):
            version = 0
        return Incoming(correlation_id, decode(response, version, frame, at))


def speaks_no_such_version(frame: memoryview, at: int) -> bool:
    """A broker that does not know our version of ApiVersions answers in version 0: before a client has learnt what the
    broker speaks, it could read nothing else."""
    return frame[at : at + 2] == struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)


def common_version(
    request: type[Message], versions: Mapping[int, range], at_most: int | None = None
) -> int:
    """The highest version we have, the broker has, and the caller can use."""
    ours = request.VERSIONS
    highest = ours[-1] if at_most is None else min(ours[-1], at_most)
    if request is ApiVersionsRequest and not versions:
        return min(highest, FIRST_API_VERSIONS)
    theirs = versions.get(request.API_KEY)
    name = api_name(request.API_KEY)
    if theirs is None:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"this broker does not offer {name}")
    version = min(highest, theirs[-1])
    if version < max(ours[0], theirs[0]):
        ranges = f"{ours[0]}–{highest} here, {theirs[0]}–{theirs[-1]} there"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"no common version of {name}: {ranges}")
    return version


def frame_size(head: bytes | bytearray) -> int:
    """The size that stands before a frame. RemoteWireError for one that no broker would send."""
    size: int = SIZE.unpack(head)[0]
    if not CORRELATION.size <= size <= RESPONSE_BYTES_MAX:
        raise RemoteWireError(f"a response of {size} bytes; this is not a plaintext Kafka listener")
    return size


def error_of(code: int, message: str | None = None) -> ApiError | None:
    """The error in an answer, if there is one. A code newer than our table is still an error."""
    if not code:
        return None
    try:
        return ApiError(ErrorCode(code), message or "")
    except ValueError:
        why = f"error code {code}" + (f": {message}" if message else "")
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why)


def raise_if(code: int, message: str | None = None) -> None:
    error = error_of(code, message)
    if error is not None:
        raise error
