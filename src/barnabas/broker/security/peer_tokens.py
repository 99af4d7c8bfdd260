"""OAuth tokens with which this broker logs in at others: requested from an OAuth server, or read from a file.

A requested token is used for new logins during the first half of its lifetime. So the connections of a broker share a
token, and a login with it does not expire at once. A file is read for each login: another program renews it.
"""

from __future__ import annotations

import asyncio

from barnabas.security.token_request import (
    REQUEST_SECONDS,
    RESPONSE_BYTES_MAX,
    IssuedToken,
    TokenRequest,
    parse_token_response,
)
from barnabas.tasks import in_thread
from barnabas.world.ports import Downloader

USED_PART = 0.5


class PeerTokens:
    """The tokens for one listener of the other brokers."""

    def __init__(self, downloader: Downloader) -> None:
        self.downloader = downloader
        self.request: TokenRequest | None = None
        """The request that `token` is the response to."""
        self.token = ""
        self.used_until = 0.0
        self.requesting = asyncio.Lock()

    async def find(self, source: TokenRequest | str) -> str:
        """Return a token for a login. `source` is a request, or the file:// URL of a token. Raises ConnectionError."""
        if isinstance(source, str):
            return (await in_thread(self.read, source)).strip()
        loop = asyncio.get_running_loop()
        async with self.requesting:
            if source != self.request or loop.time() >= self.used_until:
                started_at = loop.time()
                issued = await in_thread(self.send, source)
                self.request, self.token = source, issued.token
                self.used_until = started_at + USED_PART * issued.lifetime_s
            return self.token

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
