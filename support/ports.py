"""Free ports for servers that keep their port across restarts."""

from __future__ import annotations

import random
import socket

PORTS = range(10_000, 20_000)
"""Outside the range for outgoing connections, and outside the range that ZooKeeperServers chooses from."""
BLOCK = 500
UNUSED: list[int] = []


def free_port() -> int:
    """Return a port without a listener. Each port is returned only once.

    The system does not use these ports for outgoing connections. Otherwise a client of a stopped broker could get the
    broker's port as its own, or even connect to itself.
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
    """Return BLOCK ports in random order. No other test run gets them while this process runs: it keeps the UDP port
    with the first number of the block open, as a lock."""
    for first in random.sample(PORTS[::BLOCK], len(PORTS) // BLOCK):
        lock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            lock.bind(("127.0.0.1", first))
        except OSError:
            lock.close()
            continue
        lock.detach()  # keeps it open until this process ends
        return random.sample(range(first, first + BLOCK), BLOCK)
    raise AssertionError(f"other runs reserved all ports from {PORTS.start} to {PORTS.stop}")
