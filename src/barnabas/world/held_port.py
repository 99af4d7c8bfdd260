"""A TCP port that stays ours while nobody listens on it.

A broker that was killed comes back to the port its clients know. Meanwhile the system could give that port to an
outgoing connection, even to a client's own attempt to reach the broker, which would then reach itself. A socket that is
bound and never listens keeps the port: connections to it are refused, and a broker of ours may listen there beside it.
"""

from __future__ import annotations

from barnabas.world.network import bind, refusal


class HeldPort:
    def __init__(self, host: str, port: int = 0) -> None:
        """Port 0 lets the system choose. Raises AddressInUse."""
        try:
            self.sock = bind(host, port)
        except OSError as error:
            raise refusal(host, port, error) from error
        self.port: int = self.sock.getsockname()[1]

    def release(self) -> None:
        self.sock.close()
