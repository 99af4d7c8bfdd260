"""An OAuth token that several logins share, and when to request the next one. Pure.

now   store ────────── renew_at ─────────── expires_at
        the token is used │ the next login requests a token. If that fails, the old one is still used
"""

from __future__ import annotations

from barnabas.security.token_request import IssuedToken

USED_PART = 0.5
"""Part of the lifetime in which no other token is requested. So a new login with the token does not expire at once."""
RETRY_SECONDS = 5.0
"""Time between two requests while the OAuth server fails and the old token is still valid."""


class CachedToken:
    """Times are monotonic, in seconds."""

    def __init__(self) -> None:
        self.token = ""
        self.renew_at = self.expires_at = 0.0

    def current(self, now: float) -> str | None:
        """Return the token, or None if a new one must be requested."""
        return self.token if now < self.renew_at else None

    def store(self, issued: IssuedToken, requested_at: float) -> None:
        self.token = issued.token
        self.renew_at = requested_at + USED_PART * issued.lifetime_s
        self.expires_at = requested_at + issued.lifetime_s

    def request_failed(self, now: float) -> str | None:
        """Return the old token if it is still valid. The next request is due after RETRY_SECONDS."""
        if now >= self.expires_at:
            return None
        self.renew_at = min(now + RETRY_SECONDS, self.expires_at)
        return self.token

    def discard(self, token: str) -> None:
        """Do not use this token again: a broker has refused it."""
        if token == self.token:
            self.renew_at = self.expires_at = 0.0
