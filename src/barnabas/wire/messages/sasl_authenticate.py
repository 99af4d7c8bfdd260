"""SaslAuthenticate: one message of a SASL mechanism in each direction."""

from __future__ import annotations

from typing import Annotated

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bytes, Int16, Int64, Since


class SaslAuthenticateRequest(ApiMessage, frozen=True, kw_only=True):
    auth_bytes: Bytes


class SaslAuthenticateResponse(ApiMessage, frozen=True, kw_only=True):
    """`session_lifetime_ms` is the time until the client must log in again; 0: never."""

    error_code: Int16 = 0
    error_message: str | None = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, Since(1)] = 0
