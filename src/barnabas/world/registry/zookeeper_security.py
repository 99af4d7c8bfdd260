"""Security of the connections to a ZooKeeper: TLS, a login, and whether new znodes get ACLs."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, Protocol

from kazoo.protocol import serialization
from msgspec import Struct

from barnabas.errors import AuthFailed, BarnabasError

TOKENS_MAX = 10
ADD_LOGINS = "add a section Server to its JAAS file, or remove the login of this client"
CHECK_LOGIN = (
    "check the user and the password in the section Client of the JAAS file, or in "
    "barnabas.zookeeper.sasl.jaas.config, and the section Server of ZooKeeper's JAAS file"
)


class Login(Protocol):
    """Client half of one SASL login. `str()` of it names the user, for errors."""

    def respond(self, token: bytes) -> bytes | None:
        """Return the next token for the server, or None when the login is complete. Raises BarnabasError."""


class ZooKeeperSecurity(Struct, frozen=True, kw_only=True):
    tls: Callable[[], ssl.SSLContext] | None = None
    """Returns the TLS settings of the next connection, so that renewed certificates are used. Must not raise."""
    start_login: Callable[[], Login] | None = None
    """Starts the login of a connection."""
    set_acl: bool = False


NO_SECURITY = ZooKeeperSecurity()


def log_in(connection: Any, login: Login, host: str, timeout_s: float) -> None:
    """Log in on a new connection of kazoo, before it sends requests. Raises AuthFailed."""
    token: bytes | None = b""
    for number in range(1, TOKENS_MAX + 1):
        connection._submit(serialization.SASL(token), timeout_s, number)
        header, body, offset = connection._read_header(timeout_s)
        if header.err:
            raise AuthFailed("", f"ZooKeeper at {host} refused the login of {login}: {CHECK_LOGIN}")
        challenge = serialization.SASL.deserialize(body, offset)[0]
        if not challenge:
            raise AuthFailed("", f"ZooKeeper at {host} does not support SASL logins: {ADD_LOGINS}")
        try:
            token = login.respond(challenge)
        except BarnabasError as error:
            raise AuthFailed("", f"ZooKeeper at {host}: {error}") from None
        if token is None:
            return
    raise AuthFailed("", f"ZooKeeper at {host} did not complete the login of {login}")
