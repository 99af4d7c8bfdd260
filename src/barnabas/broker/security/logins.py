"""The logins of one broker: settings, credentials and tokens, and the connections that have not logged in yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from barnabas.broker.connection import Connection, Serve
from barnabas.broker.memory_budget import MemoryBudget
from barnabas.broker.security.audit import Audit
from barnabas.broker.security.bearer_tokens import BearerVerifier
from barnabas.broker.security.credentials import ScramCredentials
from barnabas.broker.security.exchanges import (
    BearerExchange,
    Exchange,
    FoundCredential,
    LoggedIn,
    LoginFailed,
    PlainExchange,
    ScramExchange,
)
from barnabas.broker.security.login import LOGIN_SECONDS_MAX, Login
from barnabas.broker.security.login_settings import ENABLED, ListenerLogins, check_logins
from barnabas.broker.security.tokens import DelegationTokens
from barnabas.config import BrokerConfig
from barnabas.config.current import CurrentConfig
from barnabas.errors import ConfigError
from barnabas.log_rate_limiter import LogRateLimiter
from barnabas.metadata.registry_client import RegistryClient
from barnabas.security.principal import Principal
from barnabas.security.sasl.mechanism import OAUTHBEARER, PLAIN
from barnabas.tasks import Tasks
from barnabas.world.ports import World

logger = logging.getLogger("barnabas.security")

MEMORY_BYTES_MAX = 8 << 20
"""Memory of large frames on all connections that have not logged in."""
SWEEP_SECONDS = 1.0
CLOSE_LOG_SECONDS = 0.1
"""Minimum time between two log lines about closed connections that have not logged in."""


class LoginCounts:
    """Logins on one listener since the start."""

    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0
        self.again = 0
        self.failed_again = 0
        self.without_reauth = 0
        """Logins of clients that cannot log in again on the same connection."""
        self.expired = 0
        """Connections closed because the client did not log in again in time."""


class Logins:
    """Implements LoginHost."""

    def __init__(
        self, config: CurrentConfig, world: World, registry: RegistryClient, audit: Audit
    ) -> None:
        self.config = config
        self.world = world
        self.audit = audit
        self.settings: dict[str, ListenerLogins] = {}
        """By listener name. Listeners without SASL are missing."""
        self.credentials = ScramCredentials(registry, world.random)
        self.tokens = DelegationTokens(config.value, registry, world.clock, world.random)
        self.verifiers: dict[str, BearerVerifier] = {}
        """By listener name."""
        self.memory = MemoryBudget(MEMORY_BYTES_MAX)
        self.close_limiter = LogRateLimiter(CLOSE_LOG_SECONDS)
        self.pending: dict[Connection, Login] = {}
        """Connections that have not logged in, oldest first."""
        self.counts: dict[str, LoginCounts] = {}
        self.tasks = Tasks()

    async def start(self) -> None:
        """Read settings, credentials and tokens. Raises ConfigError or RegistryError."""
        self.use_settings(check_logins(self.config.value))
        await self.credentials.load()
        await self.tokens.start(self.tasks)
        self.config.on_change(self.reconfigure)
        self.tasks.start("login-timeouts", self.close_late())

    async def stop(self) -> None:
        await self.tasks.stop()

    def session_opened(self) -> None:
        self.tokens.session_opened()

    def reconfigure(self, _: BrokerConfig, config: BrokerConfig) -> None:
        """Use changed settings for the next logins. If they cannot be used, the former ones stay."""
        try:
            self.use_settings(check_logins(config))
        except ConfigError as error:
            logger.error("keeping the former settings of logins error=%s", error)

    def use_settings(self, settings: dict[str, ListenerLogins]) -> None:
        for listener, each in settings.items():
            self.counts.setdefault(listener, LoginCounts())
            verifier = self.verifiers.get(listener)
            if each.bearer is None:
                self.verifiers.pop(listener, None)
            elif verifier is None or verifier.settings != each.bearer:
                verifier = BearerVerifier(each.bearer, self.world.downloader, self.world.random)
                self.verifiers[listener] = verifier
                self.tasks.start("oauth-keys", verifier.refresh_if_due(0.0))
        # A removed listener stays: its last connections may log in meanwhile.
        self.settings |= settings

    def add_missing(self, config: BrokerConfig) -> None:
        """Use the settings of listeners that have none yet. Raises ConfigError."""
        found = check_logins(config)
        self.use_settings({name: found[name] for name in found.keys() - self.settings.keys()})

    # ---- connections

    def require_settings(self, listener: str) -> None:
        """Raise ValueError if no client can log in on a listener with SASL."""
        if listener not in self.settings:
            raise ValueError(
                f"listener {listener} has no usable settings of logins; "
                f"correct {ENABLED} and the settings of its mechanisms"
            )

    def select_serve(self, connection: Connection, find_serve: Callable[[], Serve]) -> Serve:
        """Return the function that serves the next frames of a new connection with SASL: its login."""
        login = Login(self, connection, find_serve)
        login.limit(self.memory, self.close_limiter)
        self.pending[connection] = login
        return login.serve

    def forget(self, connection: Connection) -> None:
        """Called when a connection is closed."""
        login = self.pending.pop(connection, None)
        if login is not None and login.refusal is not None:
            self.login_failed(login, login.refusal)

    async def close_late(self) -> None:
        """Run forever: close the connections that do not log in in time."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = loop.time()
            for connection, login in list(self.pending.items()):
                if not login.is_late(now):
                    break
                late = LoginFailed(f"no login within {LOGIN_SECONDS_MAX:g} s")
                self.login_failed(login, login.refusal or late)
                connection.stream.close("no login in time")

    # ---- LoginHost

    def find_settings(self, listener: str) -> ListenerLogins:
        return self.settings[listener]

    def create_exchange(self, settings: ListenerLogins, listener: str, mechanism: str) -> Exchange:
        if mechanism == PLAIN:
            return PlainExchange(settings.plain_users)
        if mechanism == OAUTHBEARER:
            return BearerExchange(self.verifiers[listener].verify)
        return ScramExchange(mechanism, self.find_credential, self.world.random)

    async def find_credential(self, mechanism: str, user: str, is_token: bool) -> FoundCredential:
        if is_token:
            found = await self.tokens.find_login(mechanism, user)
            if found is not None:
                return found
        else:
            credential = self.credentials.find(mechanism, user)
            if credential is not None:
                return FoundCredential(credential, LoggedIn(Principal(user)))
        return FoundCredential(await self.credentials.find_fake(mechanism, user), None)

    def now_ms(self) -> int:
        return self.world.clock.now_ms()

    def login_succeeded(self, login: Login) -> None:
        self.pending.pop(login.connection, None)
        counts = self.counts[login.connection.listener_name]
        if login.is_again:
            counts.again += 1
        else:
            counts.succeeded += 1
            counts.without_reauth += login.authenticate_version == 0

    def login_failed(self, login: Login, failure: LoginFailed) -> None:
        self.pending.pop(login.connection, None)
        counts = self.counts[login.connection.listener_name]
        if login.is_again:
            counts.failed_again += 1
        else:
            counts.failed += 1
        host = login.connection.stream.peer[0]
        self.audit.log_failed_login(host, login.mechanism or "-", failure.user, str(failure))

    def session_expired(self, connection: Connection) -> None:
        self.counts[connection.listener_name].expired += 1

    # ---- expiry of tokens

    def delete_expired_tokens(self, is_controller: Callable[[], bool]) -> None:
        """Delete expired tokens from now on, while this broker is the controller."""
        if self.tokens.is_enabled:
            self.tasks.start("token-expiry", self.run_token_expiry(is_controller))

    async def run_token_expiry(self, is_controller: Callable[[], bool]) -> None:
        while True:
            await asyncio.sleep(self.tokens.check_seconds)
            if is_controller():
                await self.tokens.delete_expired()
