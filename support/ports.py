"""Free ports for servers that keep their port across restarts."""

from __future__ import annotations

import random
import socket

PORTS = range(10_000, 20_000)
"""Outside the range for outgoing connections, and outside the range that ZooKeeperServers chooses from."""
BLOCK = 500
UNUSED: list[int] = []


def free_port() -> int:
    """A port without a listener, which this function returns only once.

    The system does not use it for outgoing connections. Otherwise a client that tries to reach a stopped broker could
    get the broker's port, or connect to itself.
    """
    while True:
        if not UNUSED:
            UNUSED.extend(reserve_block())
        port = UNUSED.pop()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def reserve_block() -> list[int]:
    """Ports in random order. No other run gets them while this process runs: it holds the UDP port with the first
    number of the block."""
    for first in random.sample(PORTS[::BLOCK], len(PORTS) // BLOCK):
        token = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            token.bind(("127.0.0.1", first))
        except OSError:
            token.close()
            continue
        token.detach()
        return random.sample(range(first, first + BLOCK), BLOCK)
    raise AssertionError(f"other runs hold all ports from {PORTS.start} to {PORTS.stop}")
