"""OAuth tokens with which this broker logs in at others: requested from an OAuth server, or read from a file.

The connections of a broker share a requested token (security/cached_token.py). A file is read for each login: another
program renews it.
"""

from __future__ import annotations

import asyncio
import logging

from barnabas.errors import reason
from barnabas.security.cached_token import CachedToken
from barnabas.security.token_request import (
    REQUEST_SECONDS,
    RESPONSE_BYTES_MAX,
    IssuedToken,
    TokenRequest,
    parse_token_response,
)
from barnabas.world.ports import Downloader

logger = logging.getLogger("barnabas.security")


class PeerTokens:
    """The tokens for one listener of the other brokers."""

    def __init__(self, downloader: Downloader) -> None:
        self.downloader = downloader
        self.request: TokenRequest | None = None
        """The request that `cached` is for."""
        self.cached = CachedToken()
        self.requesting = asyncio.Lock()

    async def find(self, source: TokenRequest | str) -> str:
        """Return a token for a login. `source` is a request, or the file:// URL of a token. Raises ConnectionError."""
        if isinstance(source, str):
            return (await asyncio.to_thread(self.read, source)).strip()
        loop = asyncio.get_running_loop()
        async with self.requesting:
            if source != self.request:
                self.request, self.cached = source, CachedToken()
            token = self.cached.current(loop.time())
            if token is not None:
                return token
            requested_at = loop.time()
            try:
                # If this is cancelled, the thread ends after REQUEST_SECONDS, and its result is ignored.
                issued = await asyncio.to_thread(self.send, source)
            except ConnectionError as error:
                token = self.cached.request_failed(loop.time())
                if token is None:
                    raise
                logger.warning("no new OAuth token, using the former one error=%s", reason(error))
                return token
            self.cached.store(issued, requested_at)
            return issued.token

    def discard(self, token: str) -> None:
        """Request another token for the next login: a broker has refused this one."""
        self.cached.discard(token)

    def read(self, url: str) -> str:
        data = self.downloader.get(url, timeout_s=REQUEST_SECONDS, bytes_max=RESPONSE_BYTES_MAX)
        return data.decode("ascii", "replace")

    def send(self, request: TokenRequest) -> IssuedToken:
        document = self.downloader.post(
            request.url,
            request.headers,
            request.body,
            timeout_s=REQUEST_SECONDS,
            bytes_max=RESPONSE_BYTES_MAX,
        )
        try:
            return parse_token_response(document)
        except ValueError as error:
            raise ConnectionError(str(error)) from error
