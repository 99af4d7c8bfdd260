"""SaslHandshake: a client names the SASL mechanism of its login.

After version 0 the client sends the messages of the mechanism as frames without a header. After version 1 it sends
SaslAuthenticate requests.
"""

from __future__ import annotations

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16


class SaslHandshakeRequest(ApiMessage, frozen=True, kw_only=True):
    mechanism: str


class SaslHandshakeResponse(ApiMessage, frozen=True, kw_only=True):
    """`mechanisms` are those that the listener has enabled."""

    error_code: Int16 = 0
    mechanisms: tuple[str, ...] = ()
