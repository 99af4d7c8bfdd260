"""OAuth tokens that several logins share."""

from __future__ import annotations

from barnabas.security.cached_token import RETRY_SECONDS, CachedToken
from barnabas.security.token_request import IssuedToken


def stored(lifetime_s: float, at: float = 100.0) -> CachedToken:
    cached = CachedToken()
    cached.store(IssuedToken("a", lifetime_s), at)
    return cached


def test_token_is_used_for_half_of_its_lifetime() -> None:
    cached = stored(60)
    assert cached.current(129.9) == "a"
    assert cached.current(130.0) is None


def test_token_without_a_lifetime_is_used_once() -> None:
    cached = stored(0)
    assert cached.current(100.0) is None
    assert cached.request_failed(100.0) is None


def test_valid_token_is_used_while_the_server_fails() -> None:
    cached = stored(60)
    assert cached.request_failed(131.0) == "a"
    assert cached.current(131.0 + RETRY_SECONDS - 0.1) == "a"
    assert cached.current(131.0 + RETRY_SECONDS) is None
    assert cached.request_failed(159.0) == "a"
    assert cached.current(160.0) is None
    assert cached.request_failed(160.0) is None


def test_refused_token_is_not_used_again() -> None:
    cached = stored(60)
    cached.discard("another")
    assert cached.current(101.0) == "a"
    cached.discard("a")
    assert cached.current(101.0) is None
    assert cached.request_failed(101.0) is None
