"""A TCP port that stays reserved while its broker is not running.

A killed broker restarts on the port that its clients know. Meanwhile the system could assign that port to an outgoing
connection, even to a client's own attempt to reach the broker, which would then connect to itself. A bound socket that
never listens reserves the port. Connections to it are refused, and a broker may bind and listen on the same port.
"""

from __future__ import annotations

from barnabas.world.network import bind, bind_error


class HeldPort:
    """A reserved port, until `release()`."""

    def __init__(self, host: str, port: int = 0) -> None:
        """Reserve a port. Port 0 lets the system choose one. Raises AddressInUse."""
        try:
            self.sock = bind(host, port)
        except OSError as error:
            raise bind_error(host, port, error) from error
        self.port: int = self.sock.getsockname()[1]

    def release(self) -> None:
        self.sock.close()
