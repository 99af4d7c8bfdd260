"""Requests for OAuth tokens with client credentials (RFC 6749, section 4.4), as Kafka's clients and brokers send them.

    POST <sasl.oauthbearer.token.endpoint.url>
    Authorization: Basic <clientId:clientSecret of the JAAS line>

    grant_type=client_credentials&scope=<scope of the JAAS line>

The response is a JSON object with the field `access_token`. Pure: the caller sends the request.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from msgspec import Struct

from barnabas.errors import ConfigError

TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID, CLIENT_SECRET, SCOPE = "clientId", "clientSecret", "scope"
EXTENSION_PREFIX = "extension_"
TLS_PREFIX = "ssl."
RESPONSE_BYTES_MAX = 1 << 20
REQUEST_SECONDS = 10.0


class TokenRequest(Struct, frozen=True):
    url: str
    client_id: str
    client_secret: str
    scope: str = ""
    encodes_credentials: bool = False
    """Whether the id and the secret are percent-encoded, as RFC 6749 requires but few servers expect."""

    def __repr__(self) -> str:
        return f"TokenRequest({web_server(self.url)!r}, {self.client_id!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("server", web_server(self.url)), ("client_id", self.client_id)]

    @property
    def headers(self) -> dict[str, str]:
        pair = (self.client_id, self.client_secret)
        text = ":".join(map(quote_plus, pair) if self.encodes_credentials else pair)
        return {
            "Authorization": f"Basic {base64.b64encode(text.encode()).decode()}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }

    @property
    def body(self) -> bytes:
        pairs = {"grant_type": "client_credentials"}
        if self.scope:
            pairs["scope"] = self.scope
        return urlencode(pairs).encode()


class IssuedToken(NamedTuple):
    token: str
    lifetime_s: float
    """0 if it is unknown."""

    def __repr__(self) -> str:
        return "IssuedToken()"


def web_server(url: str) -> str:
    """Return the scheme and the host of a URL, for errors and logs. The rest of it may contain a secret.

    >>> web_server("https://me:hidden@login.example.com/token?key=hidden"), web_server("https://[::1/token")
    ('https://login.example.com', 'an invalid URL')
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return "an invalid URL"
    return f"{parts.scheme}://{host}"


def token_path(url: str) -> str | None:
    """Return the path of a `file:` URL, or None for another URL. Raises ConfigError unless tokens can be read there.

    Errors do not quote the URL.

    >>> token_path("file:///run/token"), token_path("https://login.example.com/token")
    ('/run/token', None)
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError for an invalid one
    except ValueError:
        raise ConfigError(TOKEN_URL, "is not a valid URL") from None
    if not url.isprintable() or " " in url:
        raise ConfigError(TOKEN_URL, "has a space or a control character; percent-encode it")
    if parts.scheme == "file" and parts.path:
        return unquote(parts.path)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ConfigError(TOKEN_URL, "must begin with https://, http:// or file://")
    if "@" in parts.netloc:
        why = f"must not contain a user; use the options {CLIENT_ID} and {CLIENT_SECRET} of the JAAS line"
        raise ConfigError(TOKEN_URL, why)
    return None


def parse_token_request(
    url: str, options: Mapping[str, str], jaas_key: str, *, encodes_credentials: bool = False
) -> TokenRequest:
    """Build the request from the options of a JAAS line, the value of setting `jaas_key`. Raises ConfigError."""
    for name in options:
        if name.startswith(TLS_PREFIX):
            why = f"the option {name} is not supported; the environment variable SSL_CERT_FILE names a file"
            raise ConfigError(jaas_key, f"{why} with the authorities of the OAuth server")
    client_id, secret = (options.get(name, "").strip() for name in (CLIENT_ID, CLIENT_SECRET))
    if not client_id or not secret:
        why = f"{TOKEN_URL} needs the options {CLIENT_ID} and {CLIENT_SECRET}, as in"
        raise ConfigError(
            jaas_key, f'{why}: …OAuthBearerLoginModule required clientId="…" clientSecret="…";'
        )
    scope = options.get(SCOPE, "").strip()
    return TokenRequest(url, client_id, secret, scope, encodes_credentials)


def parse_extensions(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the SASL extensions in the options of a JAAS line.

    >>> parse_extensions({"clientId": "a", "extension_team": "b"})
    (('team', 'b'),)
    """
    return tuple(
        (name.removeprefix(EXTENSION_PREFIX), value)
        for name, value in options.items()
        if name.startswith(EXTENSION_PREFIX)
    )


def parse_token_response(document: bytes) -> IssuedToken:
    """Raises ValueError. Its text does not contain the document: it may have a token."""
    try:
        content = json.loads(document)
        token = content["access_token"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("the response of the OAuth server has no access_token") from None
    if not isinstance(token, str) or not token.strip():
        raise ValueError("the access_token of the OAuth server is not a text")
    token = token.strip()
    lifetime_s = parse_seconds(content.get("expires_in")) or claimed_lifetime_s(token)
    return IssuedToken(token, lifetime_s)


def parse_seconds(value: object) -> float:
    """Return a number of seconds. Some servers send it as a text. 0 if it is invalid or negative.

    >>> parse_seconds(60), parse_seconds("60"), parse_seconds(-1), parse_seconds("inf"), parse_seconds(None)
    (60.0, 60.0, 0.0, 0.0, 0.0)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0.0
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def claimed_lifetime_s(token: str) -> float:
    """Return the lifetime in the claims of a JSON Web Token, which are not verified. 0 if it is unknown."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        expires_s, issued_s = claims["exp"], claims["iat"]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return 0.0
    return max(0.0, parse_seconds(expires_s) - parse_seconds(issued_s))
