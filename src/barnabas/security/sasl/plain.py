"""PLAIN (RFC 4616): user name and password in one message. Use it over TLS only.

authorization id NUL user name NUL password
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest
from typing import NamedTuple

from barnabas.security.sasl.mechanism import PLAIN, SaslFailed

USER_PREFIX = "user_"
MESSAGE_BYTES_MAX = 16 * 1024


class PlainClient:
    """Implements SaslClient."""

    mechanism = PLAIN

    def __init__(self, user: str, password: str) -> None:
        for name, value in (("user name", user), ("password", password)):
            if not value or "\0" in value:
                raise SaslFailed(f"the {name} is empty or contains a NUL character")
        self.user = user
        self.password = password

    def start(self) -> bytes:
        return f"\0{self.user}\0{self.password}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise SaslFailed("the broker sent an unexpected message during a PLAIN login")
        return None


class PlainMessage(NamedTuple):
    user: str
    password: str

    def __repr__(self) -> str:
        return f"PlainMessage({self.user!r})"


def parse_plain(message: bytes) -> PlainMessage:
    """Parse the message of a client. Raises SaslFailed."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise SaslFailed(f"the message has {len(message)} bytes")
    try:
        fields = message.decode().split("\0", 3)
    except UnicodeDecodeError:
        raise SaslFailed("the message is not UTF-8") from None
    if len(fields) != 3:
        raise SaslFailed("the message does not have 3 fields")
    authorization_id, user, password = fields
    if not user:
        raise SaslFailed("user name not specified")
    if not password:
        raise SaslFailed("password not specified")
    if authorization_id not in ("", user):
        raise SaslFailed("the authorization id differs from the user name")
    return PlainMessage(user, password)


def read_plain_users(options: Mapping[str, str]) -> dict[str, str]:
    """Return the passwords of the users in a JAAS line (user_alice="…"). Empty passwords are left out."""
    return {
        name.removeprefix(USER_PREFIX): password
        for name, password in options.items()
        if name.startswith(USER_PREFIX) and name != USER_PREFIX and password
    }


def check_password(users: Mapping[str, str], user: str, password: str) -> bool:
    """Whether the password is that of the user. Takes as long for an unknown user as for a wrong password."""
    expected = users.get(user)
    known = password if expected is None else expected
    is_equal = compare_digest(known.encode(), password.encode())
    return is_equal and expected is not None
