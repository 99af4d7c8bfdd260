"""The completed login of a connection."""

from __future__ import annotations

from barnabas.security.principal import Principal


class Session:
    """`expires_at` is in seconds of the event loop; None: the login does not expire."""

    __slots__ = ("expires_at", "is_token", "mechanism", "principal", "renewed_at")

    def __init__(self, mechanism: str, principal: Principal, *, is_token: bool) -> None:
        self.mechanism = mechanism
        self.principal = principal
        self.is_token = is_token
        """Whether the client has used a delegation token."""
        self.expires_at: float | None = None
        self.renewed_at = 0.0
        """Time of the last login on a connection that had logged in before."""
