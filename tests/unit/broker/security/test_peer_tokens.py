"""Tokens with which a broker logs in at others."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from barnabas.broker.security.peer_tokens import PeerTokens
from barnabas.security.token_request import TokenRequest

REQUEST = TokenRequest("https://login.example.com/token", "broker", "hidden")


class FakeServer:
    """Implements `Downloader`. Issues the tokens t1, t2, …"""

    def __init__(self, lifetime_s: float) -> None:
        self.lifetime_s = lifetime_s
        self.issued = 0
        self.error: ConnectionError | None = None

    def get(self, url: str, *, timeout_s: float, bytes_max: int) -> bytes:
        return b"from-file\n"

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float, bytes_max: int
    ) -> bytes:
        if self.error is not None:
            raise self.error
        self.issued += 1
        document = {"access_token": f"t{self.issued}", "expires_in": self.lifetime_s}
        return json.dumps(document).encode()


async def test_logins_share_a_token() -> None:
    tokens = PeerTokens(FakeServer(600))
    assert [await tokens.find(REQUEST) for _ in range(3)] == ["t1"] * 3
    other = TokenRequest(REQUEST.url, "broker", "changed")
    assert await tokens.find(other) == "t2"


async def test_former_token_is_used_while_the_server_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("barnabas.security.cached_token.USED_PART", 0.0)
    server = FakeServer(600)
    tokens = PeerTokens(server)
    assert await tokens.find(REQUEST) == "t1"
    server.error = ConnectionError("the server is down")
    assert await tokens.find(REQUEST) == "t1"
    assert "no new OAuth token, using the former one error=the server is down" in caplog.text


async def test_failure_without_a_valid_token_is_raised() -> None:
    server = FakeServer(0)
    tokens = PeerTokens(server)
    assert await tokens.find(REQUEST) == "t1"
    server.error = ConnectionError("the server is down")
    with pytest.raises(ConnectionError, match="is down"):
        await tokens.find(REQUEST)


async def test_refused_token_is_replaced() -> None:
    tokens = PeerTokens(FakeServer(600))
    tokens.discard(await tokens.find(REQUEST))
    assert await tokens.find(REQUEST) == "t2"


async def test_token_of_a_file_is_read_each_time() -> None:
    assert await PeerTokens(FakeServer(0)).find("file:///token") == "from-file"
