"""Requests for OAuth tokens with client credentials, and their responses."""

from __future__ import annotations

import base64
import json

import pytest

from barnabas.errors import ConfigError
from barnabas.security.token_request import (
    TokenRequest,
    parse_token_request,
    parse_token_response,
    token_path,
)

URL = "https://login.example.com/token"


def jwt(claims: dict[str, int]) -> bytes:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")
    return b"e30." + payload + b".c2ln"


def test_request_has_the_credentials_and_the_scope() -> None:
    options = {"clientId": "me", "clientSecret": "a:b+é", "scope": "read all"}
    request = parse_token_request(URL, options, "sasl.jaas.config")
    assert request == TokenRequest(URL, "me", "a:b+é", "read all")
    assert request.headers["Authorization"] == "Basic bWU6YTpiK8Op"
    assert request.body == b"grant_type=client_credentials&scope=read+all"
    assert TokenRequest(URL, "me", "x").body == b"grant_type=client_credentials"


def test_credentials_are_encoded_on_request() -> None:
    options = {"clientId": "me", "clientSecret": "p%w+d:1"}
    request = parse_token_request(URL, options, "sasl.jaas.config", encodes_credentials=True)
    assert base64.b64decode(request.headers["Authorization"].split()[1]) == b"me:p%25w%2Bd%3A1"


def test_tls_options_are_refused() -> None:
    options = {"clientId": "me", "clientSecret": "x", "ssl.truststore.location": "/ca.pem"}
    with pytest.raises(
        ConfigError, match=r"ssl.truststore.location is not supported.*SSL_CERT_FILE"
    ):
        parse_token_request(URL, options, "sasl.jaas.config")


def test_secret_is_not_shown() -> None:
    request = TokenRequest("https://login.example.com/hidden", "me", "hidden")
    assert "hidden" not in repr(request)
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


@pytest.mark.parametrize(
    "url",
    [
        "https://[::1/hidden",
        "https://a:b/hidden",
        "https://me:hidden@a/",
        "https://a/b c?hidden",
        "https://a/\nhidden",
        "ftp://a/hidden",
    ],
)
def test_errors_do_not_quote_the_url(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        token_path(url)
    assert "hidden" not in str(raised.value)


def test_file_url_has_a_path() -> None:
    assert token_path("file:///run/a%20token") == "/run/a token"
    assert token_path(URL) is None


@pytest.mark.parametrize(
    ("document", "token", "lifetime_s"),
    [
        (b'{"access_token": " a.b.c ", "expires_in": 60}', "a.b.c", 60),
        (b'{"access_token": "a"}', "a", 0),
        (b'{"access_token": "a", "expires_in": "60"}', "a", 60),
        (b'{"access_token": "a", "expires_in": Infinity}', "a", 0),
        (b'{"access_token": "a", "expires_in": 1%s}' % (b"0" * 400), "a", 0),
        (
            b'{"access_token": "%s"}' % jwt({"iat": 1000, "exp": 1060}),
            jwt({"iat": 1000, "exp": 1060}).decode(),
            60,
        ),
        (b'{"access_token": "%s"}' % jwt({"exp": 1060}), jwt({"exp": 1060}).decode(), 0),
        (b'{"access_token": "a.%s.c"}' % (b"W" * 1000), "a." + "W" * 1000 + ".c", 0),
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
