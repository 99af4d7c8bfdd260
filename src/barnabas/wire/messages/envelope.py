"""Envelope: a request that one broker forwards to the controller for a client."""

from __future__ import annotations

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bytes, Int16


class EnvelopeRequest(ApiMessage, frozen=True, kw_only=True):
    request_data: Bytes
    request_principal: Bytes | None = None
    client_host_address: Bytes


class EnvelopeResponse(ApiMessage, frozen=True, kw_only=True):
    response_data: Bytes | None = None
    error_code: Int16 = 0
