"""Requests for OAuth tokens with client credentials (RFC 6749, section 4.4), as Kafka's clients and brokers send them.

    POST <sasl.oauthbearer.token.endpoint.url>
    Authorization: Basic <clientId:clientSecret of the JAAS line>

    grant_type=client_credentials&scope=<scope of the JAAS line>

The response is a JSON object with the field `access_token`. Pure: the caller sends the request.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlencode, urlsplit

from msgspec import Struct

from barnabas.errors import ConfigError

TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID, CLIENT_SECRET, SCOPE = "clientId", "clientSecret", "scope"
EXTENSION_PREFIX = "extension_"
RESPONSE_BYTES_MAX = 1 << 20
REQUEST_SECONDS = 10.0


class TokenRequest(Struct, frozen=True):
    url: str
    client_id: str
    client_secret: str
    scope: str = ""

    def __repr__(self) -> str:
        return f"TokenRequest({self.url!r}, {self.client_id!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("url", self.url), ("client_id", self.client_id)]

    @property
    def headers(self) -> dict[str, str]:
        credentials = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        return {
            "Authorization": f"Basic {credentials}",
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
    """0 if the server does not report it."""

    def __repr__(self) -> str:
        return "IssuedToken()"


def token_path(url: str) -> str | None:
    """Return the path of a `file:` URL, or None for another URL. Raises ConfigError unless tokens can be read there.

    >>> token_path("file:///run/token"), token_path("https://login.example.com/token")
    ('/run/token', None)
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path:
        return unquote(parts.path)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ConfigError(TOKEN_URL, f"{url} must begin with https://, http:// or file://")
    return None


def parse_token_request(url: str, options: Mapping[str, str], jaas_key: str) -> TokenRequest:
    """Build the request from the options of a JAAS line, the value of setting `jaas_key`. Raises ConfigError."""
    client_id, secret = (options.get(name, "").strip() for name in (CLIENT_ID, CLIENT_SECRET))
    if not client_id or not secret:
        why = f"{TOKEN_URL} needs the options {CLIENT_ID} and {CLIENT_SECRET}, as in"
        raise ConfigError(
            jaas_key, f'{why}: …OAuthBearerLoginModule required clientId="…" clientSecret="…";'
        )
    return TokenRequest(url, client_id, secret, options.get(SCOPE, "").strip())


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
    lifetime = content.get("expires_in")
    is_number = isinstance(lifetime, int | float) and not isinstance(lifetime, bool)
    return IssuedToken(token.strip(), max(0.0, float(lifetime)) if is_number else 0.0)
