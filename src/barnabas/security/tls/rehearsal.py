"""A handshake in memory, to find out whether brokers with these certificates can connect to each other."""

from __future__ import annotations

import ssl
from contextlib import suppress

ROUNDS_MAX = 20


def connect_in_memory(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Perform a handshake, and send a byte in both directions. Raises ssl.SSLError if it fails.

    The context of the client must not verify the host name.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(ROUNDS_MAX):
        steps = [continue_handshake(end) for end in ends]
        if all(steps):
            break
    for end in ends:
        end.write(b"x")
    for end in ends:
        # With TLS 1.3, the client learns only now that the server rejects its certificate.
        with suppress(ssl.SSLWantReadError):
            end.read(1)


def continue_handshake(end: ssl.SSLObject) -> bool:
    """Return whether the handshake is complete."""
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
