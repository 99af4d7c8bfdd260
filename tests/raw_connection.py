"""One socket and the codec: the base of the hand-driven test clients."""

from __future__ import annotations

import socket
import struct
from typing import Self, TypeVar

from barnabas.wire.codec import Message, decode, encode
from barnabas.wire.headers import RequestHeader, decode_response_header, encode_request_header

M = TypeVar("M", bound=Message)

SIZE = struct.Struct(">i")


def with_size(payload: bytes) -> bytes:
    return SIZE.pack(len(payload)) + payload


def frame(request: Message, version: int, correlation_id: int = 1) -> bytes:
    header = RequestHeader(request.API_KEY, version, correlation_id, "raw")
    return with_size(encode_request_header(header) + encode(request, version))


class RawConnection:
    """A connection to a broker. Raises ConnectionError if the broker closes it."""

    def __init__(
        self, address: tuple[str, int], timeout: float = 30.0, source: str = "127.0.0.1"
    ) -> None:
        self.socket = socket.create_connection(address, timeout, source_address=(source, 0))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """Receive one whole frame without its length."""
        return self.receive_exactly(SIZE.unpack(self.receive_exactly(4))[0])

    def receive_exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            chunk = self.socket.recv(size - len(found))
            if not chunk:
                raise ConnectionError("closed by the broker")
            found += chunk
        return bytes(found)

    def is_hung_up(self) -> bool:
        """Wait for the broker; True if it closes the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def answer(self, response: type[M], version: int, correlation_id: int = 1) -> M:
        data = memoryview(self.receive())
        found, at = decode_response_header(response.API_KEY, version, data)
        assert found == correlation_id
        return decode(response, version, data, at)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
