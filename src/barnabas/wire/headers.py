"""The header of every request and every response.

    request:   api key (2) | api version (2) | correlation id (4) | client id | tagged fields, if flexible
    response:  correlation id (4) | tagged fields, if flexible

The client id is a string with a two-byte size, even in flexible versions. An ApiVersions response never has tagged
fields, because its receiver may not know the version yet. A ControlledShutdown request of version 0 has no client id.
The first eight bytes of a request can be decoded for any key and version.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from barnabas.errors import LocalWireError, RemoteWireError
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.primitives import STRING_MAX, read_tags

API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
CONTROLLED_SHUTDOWN: Final = int(ApiKey.CONTROLLED_SHUTDOWN)

FIXED: Final = struct.Struct(">hhi")
FIXED_AND_SIZE: Final = struct.Struct(">hhih")
SIZE: Final = struct.Struct(">h")
CORRELATION: Final = struct.Struct(">i")

SERVED_REQUESTS: Final = frozenset(
    (int(api.key), version) for api in APIS.values() for version in api.versions
)
FLEXIBLE_REQUESTS: Final = frozenset(
    (key, version) for key, version in SERVED_REQUESTS if version >= APIS[key].flexible_since
)


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None

    @property
    def is_served(self) -> bool:
        """Whether a broker serves this API in this version."""
        return (self.api_key, self.api_version) in SERVED_REQUESTS


def decode_request_header(data: memoryview) -> tuple[RequestHeader, int]:
    """Return the header and the position of the body.

    An unknown key or version is not an error: the header then has no client id, and the body begins at the end of the
    data. The caller must check `is_served`. Raises RemoteWireError for an invalid header.
    """
    try:
        api_key, api_version, correlation_id = FIXED.unpack_from(data)
        if (api_key, api_version) not in SERVED_REQUESTS:
            return RequestHeader(api_key, api_version, correlation_id), len(data)
        if api_key == CONTROLLED_SHUTDOWN and api_version == 0:
            return RequestHeader(api_key, api_version, correlation_id), 8
        (size,) = SIZE.unpack_from(data, 8)
        at = 10
        client_id = None
        if size >= 0:
            at += size
            if at > len(data):
                raise RemoteWireError(f"client id has {size} bytes, frame has {len(data)} bytes")
            client_id = str(data[10:at], "utf-8")
        elif size != -1:
            raise RemoteWireError(f"client id has size {size}")
        if (api_key, api_version) in FLEXIBLE_REQUESTS:
            at = at + 1 if not data[at] else read_tags(data, at)[1]
    except (struct.error, IndexError) as error:
        raise RemoteWireError(f"request header ends too early, after {len(data)} bytes") from error
    except UnicodeDecodeError as error:
        raise RemoteWireError("client id is not UTF-8") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), at


def encode_request_header(header: RequestHeader) -> bytes:
    api_key, api_version, correlation_id, client_id = header
    tags = b"\x00" if (api_key, api_version) in FLEXIBLE_REQUESTS else b""
    try:
        if api_key == CONTROLLED_SHUTDOWN and api_version == 0:
            return FIXED.pack(api_key, api_version, correlation_id)
        if client_id is None:
            return FIXED_AND_SIZE.pack(api_key, api_version, correlation_id, -1) + tags
        raw = client_id.encode()
        if len(raw) > STRING_MAX:
            raise LocalWireError(
                f"client id has {len(raw)} bytes; at most {STRING_MAX} are allowed"
            )
        return FIXED_AND_SIZE.pack(api_key, api_version, correlation_id, len(raw)) + raw + tags
    except (struct.error, UnicodeEncodeError) as error:
        raise LocalWireError(f"request header: {error}") from error


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    packed = CORRELATION.pack(correlation_id)
    return packed + b"\x00" if response_has_tags(api_key, api_version) else packed


def decode_response_header(api_key: int, api_version: int, data: memoryview) -> tuple[int, int]:
    """Return the correlation id and the position of the body."""
    try:
        (correlation_id,) = CORRELATION.unpack_from(data)
        if not response_has_tags(api_key, api_version):
            return correlation_id, 4
        return correlation_id, read_tags(data, 4)[1]
    except (struct.error, IndexError) as error:
        raise RemoteWireError(f"response header ends too early, after {len(data)} bytes") from error


def response_has_tags(api_key: int, api_version: int) -> bool:
    return (api_key, api_version) in FLEXIBLE_REQUESTS and api_key != API_VERSIONS
