"""Requests for OAuth tokens with client credentials, and their responses."""

from __future__ import annotations

import pytest

from barnabas.errors import ConfigError
from barnabas.security.token_request import (
    TokenRequest,
    parse_token_request,
    parse_token_response,
    token_path,
)

URL = "https://login.example.com/token"


def test_request_has_the_credentials_and_the_scope() -> None:
    options = {"clientId": "me", "clientSecret": "a:b+é", "scope": "read all"}
    request = parse_token_request(URL, options, "sasl.jaas.config")
    assert request == TokenRequest(URL, "me", "a:b+é", "read all")
    assert request.headers["Authorization"] == "Basic bWU6YTpiK8Op"
    assert request.body == b"grant_type=client_credentials&scope=read+all"
    assert TokenRequest(URL, "me", "x").body == b"grant_type=client_credentials"


def test_secret_is_not_shown() -> None:
    assert "hidden" not in repr(TokenRequest(URL, "me", "hidden"))
    assert "hidden" not in repr(parse_token_response(b'{"access_token": "hidden"}'))


@pytest.mark.parametrize(
    "options", [{}, {"clientId": "me"}, {"clientId": " ", "clientSecret": "x"}]
)
def test_credentials_are_required(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="needs the options clientId and clientSecret") as raised:
        parse_token_request(URL, options, "sasl.jaas.config")
    assert raised.value.key == "sasl.jaas.config"


@pytest.mark.parametrize("url", ["ftp://a/b", "https:///token", "token", "file:"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="must begin with https://"):
        token_path(url)


def test_file_url_has_a_path() -> None:
    assert token_path("file:///run/a%20token") == "/run/a token"
    assert token_path(URL) is None


@pytest.mark.parametrize(
    ("document", "token", "lifetime_s"),
    [
        (b'{"access_token": " a.b.c ", "expires_in": 60}', "a.b.c", 60),
        (b'{"access_token": "a"}', "a", 0),
        (b'{"access_token": "a", "expires_in": "60"}', "a", 0),
        (b'{"access_token": "a", "expires_in": -1}', "a", 0),
        (b'{"access_token": "a", "expires_in": true}', "a", 0),
    ],
)
def test_token_of_a_response(document: bytes, token: str, lifetime_s: float) -> None:
    issued = parse_token_response(document)
    assert (issued.token, issued.lifetime_s) == (token, lifetime_s)


@pytest.mark.parametrize(
    "document",
    [b"", b"hidden", b"[]", b"{}", b'{"access_token": 1}', b'{"access_token": ""}', b"[" * 100_000],
)
def test_response_without_a_token_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match="access_token") as raised:
        parse_token_response(document)
    assert "hidden" not in str(raised.value)
