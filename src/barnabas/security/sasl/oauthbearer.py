r"""OAUTHBEARER (RFC 7628): the client sends a token of an OAuth server.

    n,a=<authorization id>,\x01auth=Bearer <token>\x01<name>=<value>\x01\x01

The server answers a valid token with an empty message, and an invalid one with a JSON object. The client then sends
\x01, and the server ends the login. The server verifies the token elsewhere: broker/security/bearer_tokens.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.security.sasl.mechanism import OAUTHBEARER, SaslFailed

TOKEN_CHARS = r"[-_\.~+/A-Za-z0-9]+=*"
MESSAGE_BYTES_MAX = 36 * 1024
ABORT = b"\x01"
INVALID_TOKEN = b'{"status":"invalid_token"}'
EXTENSION = r"[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01"
MESSAGE = re.compile(
    rf"n,(?:a=(?P<authorization>[^\0,]*))?,\x01(?P<pairs>(?:{EXTENSION})+)\x01\Z", re.ASCII
)
BEARER = re.compile(rf"bearer +({TOKEN_CHARS})\Z", re.IGNORECASE)
AUTH = "auth"


class BearerClient:
    """Implements SaslClient. `find_token` returns the token: a fixed one, or a new one for each login."""

    mechanism = OAUTHBEARER

    def __init__(
        self, find_token: Callable[[], str], extensions: Mapping[str, str] | None = None
    ) -> None:
        self.find_token = find_token
        self.extensions = dict(extensions or {})

    def start(self) -> bytes:
        token = self.find_token().strip()
        if not re.fullmatch(TOKEN_CHARS, token):
            raise SaslFailed("the OAuth token is empty or has invalid characters")
        pairs = {AUTH: f"Bearer {token}", **self.extensions}
        text = "".join(f"{name}={value}\x01" for name, value in pairs.items())
        return f"n,,\x01{text}\x01".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        return ABORT if challenge else None


class BearerMessage(NamedTuple):
    token: str
    authorization_id: str
    extensions: dict[str, str]

    def __repr__(self) -> str:
        return "BearerMessage()"


def parse_bearer(message: bytes) -> BearerMessage:
    """Parse the first message of a client. Raises SaslFailed."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise SaslFailed(f"the message has {len(message)} bytes")
    try:
        found = MESSAGE.match(message.decode())
    except UnicodeDecodeError:
        raise SaslFailed("the message is not UTF-8") from None
    if found is None:
        raise SaslFailed("invalid OAUTHBEARER message")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    bearer = BEARER.match(pairs.pop(AUTH, ""))
    if bearer is None:
        raise SaslFailed("the message has no bearer token")
    return BearerMessage(bearer[1], found["authorization"] or "", pairs)
