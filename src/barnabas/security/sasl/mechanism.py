"""Names of the mechanisms, and what their client halves have in common."""

from __future__ import annotations

from typing import Protocol

from barnabas.errors import BarnabasError
from barnabas.security.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
SCRAM_MECHANISMS = (SCRAM_SHA_256, SCRAM_SHA_512)
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
"""The supported mechanisms. GSSAPI (Kerberos) is not one of them."""
LOGIN_MODULES = {
    PLAIN: PLAIN_MODULE,
    SCRAM_SHA_256: SCRAM_MODULE,
    SCRAM_SHA_512: SCRAM_MODULE,
    OAUTHBEARER: OAUTHBEARER_MODULE,
}
"""Login module of each mechanism in a JAAS line."""


class SaslFailed(BarnabasError):
    """A login cannot succeed. The text is for the log of this side and contains no secret."""


class SaslClient(Protocol):
    """The client half of one login. Use it once."""

    @property
    def mechanism(self) -> str: ...

    def start(self) -> bytes:
        """Return the first message to the server."""

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the answer to a message of the server, or None if the login is complete on this side.

        May take some milliseconds: SCRAM computes a hash in many iterations. Raises SaslFailed.
        """
