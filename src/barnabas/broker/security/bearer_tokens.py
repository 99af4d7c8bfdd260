"""The keys that verify OAuth tokens: read from a file or an HTTPS server, and refreshed.

Tokens are verified in threads, a few at a time. The keys are read again after
`sasl.oauthbearer.jwks.endpoint.refresh.ms`, and when a token names an unknown key, but not more often than once in
UNKNOWN_KEY_SECONDS. If a refresh fails, the former keys stay in use and the next attempt backs off.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random

from barnabas.broker.security.exchanges import LoggedIn, LoginFailed
from barnabas.broker.security.login_settings import JWKS_URL, BearerSettings
from barnabas.errors import reason
from barnabas.retry import Backoff
from barnabas.security.bearer_token import (
    InvalidToken,
    Keys,
    TokenRules,
    UnknownKey,
    parse_keys,
    require_packages,
    verify,
)
from barnabas.security.principal import Principal
from barnabas.tasks import in_thread
from barnabas.world.ports import Downloader

logger = logging.getLogger("barnabas.security")

AT_ONCE = 4
WAITING_MAX = 200
DOWNLOAD_SECONDS = 10.0
DOCUMENT_BYTES_MAX = 1 << 20
UNKNOWN_KEY_SECONDS = 10.0


class BearerVerifier:
    """Verifies the tokens of one listener."""

    def __init__(self, settings: BearerSettings, downloader: Downloader, random: Random) -> None:
        """Raises ConfigError if the optional packages are not installed."""
        require_packages(JWKS_URL)
        self.settings = settings
        self.downloader = downloader
        self.rules = TokenRules(
            settings.audiences,
            settings.issuer,
            settings.skew_s,
            settings.subject_claim,
            settings.scope_claim,
        )
        self.keys: Keys = {}
        self.refreshed_at: float | None = None
        """Time of the last successful refresh."""
        self.next_attempt_at = 0.0
        self.backoff = Backoff(*settings.retry_s, random=random)
        self.refreshing = asyncio.Lock()
        self.threads = asyncio.Semaphore(AT_ONCE)
        self.waiting = 0

    async def verify(self, token: str) -> LoggedIn:
        """Raises LoginFailed."""
        if self.waiting >= WAITING_MAX:
            raise LoginFailed("too many logins with OAuth tokens at the same time")
        self.waiting += 1
        try:
            await self.refresh_if_due(self.settings.refresh_s)
            try:
                return await self.verify_now(token)
            except UnknownKey:
                await self.refresh_if_due(UNKNOWN_KEY_SECONDS)
                return await self.verify_now(token)
        except UnknownKey:
            raise LoginFailed("the token is signed with an unknown key") from None
        except InvalidToken as error:
            raise LoginFailed(f"invalid token: {error}") from None
        finally:
            self.waiting -= 1

    async def verify_now(self, token: str) -> LoggedIn:
        async with self.threads:
            verified = await in_thread(verify, token, self.keys, self.rules)
        return LoggedIn(Principal(verified.subject), verified.expires_ms)

    async def refresh_if_due(self, age_s: float) -> None:
        """Read the keys again if they are older than `age_s`. Errors are logged."""
        loop = asyncio.get_running_loop()
        async with self.refreshing:
            now = loop.time()
            is_fresh = self.refreshed_at is not None and now - self.refreshed_at < age_s
            if is_fresh or now < self.next_attempt_at:
                return
            try:
                self.keys = await in_thread(self.download)
            except (ConnectionError, ValueError) as error:
                self.next_attempt_at = loop.time() + self.backoff.next_s()
                logger.error("cannot read the keys of OAuth tokens error=%s", reason(error))
                return
            self.backoff.reset()
            self.refreshed_at = loop.time()
            logger.info("read the keys of OAuth tokens keys=%d", len(self.keys))

    def download(self) -> Keys:
        document = self.downloader.get(
            self.settings.url, timeout_s=DOWNLOAD_SECONDS, bytes_max=DOCUMENT_BYTES_MAX
        )
        return parse_keys(document)
