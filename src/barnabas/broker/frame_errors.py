"""Errors of invalid frames, with their likely cause."""

from __future__ import annotations

from barnabas.errors import RemoteWireError

TLS_HANDSHAKE = 0x1603
"""The first two bytes of a TLS connection."""
HTTP_METHODS = {b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE"}


def bad_frame_length(size: int, maximum: int) -> RemoteWireError:
    """Return the error for a frame whose length is not between 0 and `maximum`."""
    if size >> 16 == TLS_HANDSHAKE:
        return RemoteWireError(
            "this looks like TLS, but the listener has none; connect to an SSL or SASL_SSL listener, "
            "or set security.protocol=PLAINTEXT on the client"
        )
    if size > 0 and size.to_bytes(4, "big") in HTTP_METHODS:
        return RemoteWireError("this looks like HTTP, but the listener speaks Kafka's protocol")
    return RemoteWireError(
        f"frame length {size} is not between 0 and {maximum} (socket.request.max.bytes)"
    )
