"""Client half of the SASL mechanism DIGEST-MD5 (RFC 2831), with which clients log in to ZooKeeper.

    client                                server
    empty token             ──►
                            ◄──           challenge: realm, nonce
    digest of the password  ──►
                            ◄──           rspauth: proof that the server knows the password, too

The exchange is not encrypted and MD5 is weak: use it over TLS if others can read the network.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from hashlib import md5

from barnabas.errors import BarnabasError

CHALLENGE_BYTES_MAX = 2048  # limit of RFC 2831
DIRECTIVE = re.compile(rb'\s*([A-Za-z0-9-]+)=(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)')
FIRST_USE = "00000001"  # of the server's nonce
LATIN_1_MAX = "\xff"


class DigestMd5Error(BarnabasError):
    """The server's token is invalid, or does not prove that the server knows the password."""


class DigestMd5Client:
    """One login. Send `b""`, then each token that `respond` returns, until it returns None."""

    def __init__(
        self, user: str, password: str, *, service: str, host: str, client_nonce: str
    ) -> None:
        """`client_nonce` is random, of 64 bits or more."""
        self.user = user
        self.password = password
        self.uri = f"{service}/{host}"
        self.client_nonce = client_nonce
        self.proof: str | None = None
        """The rspauth that the server must send; None before its challenge."""

    def __repr__(self) -> str:
        return f"<DigestMd5Client user={self.user!r}>"

    def __str__(self) -> str:
        return f"user '{self.user}'"

    def respond(self, token: bytes) -> bytes | None:
        """Return the next token for the server, or None when the login is complete. Raises DigestMd5Error."""
        directives = parse_directives(token)
        if self.proof is None:
            return self.answer(directives)
        sent = directives.get("rspauth", "")
        if not hmac.compare_digest(sent.encode(), self.proof.encode()):
            raise DigestMd5Error("the server did not prove that it knows the password")
        return None

    def answer(self, challenge: Mapping[str, str]) -> bytes:
        nonce = challenge.get("nonce")
        if not nonce:
            raise DigestMd5Error("the challenge of the server has no nonce")
        if challenge.get("algorithm") != "md5-sess":
            raise DigestMd5Error("the challenge of the server is not for md5-sess")
        if "auth" not in challenge.get("qop", "auth").split(","):
            raise DigestMd5Error("the server does not offer qop=auth")
        charset = "utf-8" if challenge.get("charset") == "utf-8" else "iso-8859-1"
        realm = challenge.get("realm", "")
        secret = md5(hashed_text((self.user, realm, self.password), charset)).digest()
        session = hexadecimal(
            secret + f":{nonce}:{self.client_nonce}".encode(charset, errors="replace")
        )

        def proof(method: str) -> str:
            action = hexadecimal(f"{method}:{self.uri}".encode())
            text = f"{session}:{nonce}:{FIRST_USE}:{self.client_nonce}:auth:{action}"
            return hexadecimal(text.encode(charset, errors="replace"))

        self.proof = proof("")
        directives = {
            "username": quoted(self.user),
            "realm": quoted(realm),
            "nonce": quoted(nonce),
            "nc": FIRST_USE,
            "cnonce": quoted(self.client_nonce),
            "digest-uri": quoted(self.uri),
            "maxbuf": "65536",
            "response": proof("AUTHENTICATE"),
            "qop": "auth",
        }
        if charset == "utf-8":
            directives = {"charset": charset, **directives}
        text = ",".join(f"{name}={value}" for name, value in directives.items())
        try:
            return text.encode(charset)
        except UnicodeEncodeError:
            raise DigestMd5Error(
                "the server does not support the characters of the user name"
            ) from None


def parse_directives(token: bytes) -> dict[str, str]:
    r"""Parse the directives of a token. Raises DigestMd5Error.

    >>> parse_directives(rb'realm="a \"b\"",nonce="x,y",charset=utf-8')
    {'realm': 'a "b"', 'nonce': 'x,y', 'charset': 'utf-8'}
    """
    if len(token) > CHALLENGE_BYTES_MAX:
        raise DigestMd5Error(
            f"the token of the server has {len(token)} bytes, more than {CHALLENGE_BYTES_MAX}"
        )
    found: dict[str, str] = {}
    at = 0
    while at < len(token):
        match = DIRECTIVE.match(token, at)
        if match is None:
            raise DigestMd5Error(f"the token of the server is invalid at byte {at}")
        at = match.end()
        value = match[3] if match[2] is None else re.sub(rb"\\(.)", rb"\1", match[2])
        found.setdefault(match[1].decode().lower(), value.decode("utf-8", errors="replace"))
    return found


def hashed_text(parts: Sequence[str], charset: str) -> bytes:
    """Encode `user:realm:password`. RFC 2831 requires ISO 8859-1 for each part that it can represent.

    >>> hashed_text(("é", "r", "語"), "utf-8").hex()
    'e93a723ae8aa9e'
    """
    return b":".join(
        part.encode("iso-8859-1" if max(part, default="") <= LATIN_1_MAX else charset, "replace")
        for part in parts
    )


def quoted(text: str) -> str:
    r"""
    >>> quoted('a"b')
    '"a\\"b"'
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def hexadecimal(data: bytes) -> str:
    return md5(data).hexdigest()
