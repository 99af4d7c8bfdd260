"""Delegation tokens in the registry: kept in memory, changed by conditional writes, and deleted when they expire.

Every broker reads all tokens at the start, and a changed one after its notification. Any broker serves requests, as in
Kafka. Only the controller deletes expired tokens.

The credential of a login is computed from the HMAC of a token at its first login. This takes some milliseconds, so it
is done in a thread and kept for the next login.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from hmac import compare_digest
from random import Random

from barnabas.broker.config_admin.changes import ConfigChanges, NotificationSource
from barnabas.broker.security.exchanges import FoundCredential, LoggedIn
from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode, NodeExists, NoNode, RegistryError, StorageError
from barnabas.metadata.registry_client import RegistryClient
from barnabas.security import delegation_token as model
from barnabas.security.delegation_token import DelegationToken, TokenLifetimes
from barnabas.security.principal import Principal
from barnabas.security.sasl.mechanism import SCRAM_MECHANISMS
from barnabas.security.sasl.scram import (
    ITERATIONS_MIN,
    ScramCredential,
    create_salt,
    credential_of,
    salt_password,
)
from barnabas.tasks import Tasks, Turns, in_chunks, in_thread
from barnabas.world.ports import Clock, Create, Delete, Op, SetData

logger = logging.getLogger("barnabas.security")

SECRET_KEY = "delegation.token.secret.key"
FORMER_SECRET_KEY = "delegation.token.master.key"
READ_TOGETHER = 500
TOKENS_MAX = 100_000
"""Maximum number of tokens of a cluster."""
CREDENTIALS_MAX = 10_000
"""Number of credentials that are kept for the next login."""
HASHES_AT_ONCE = 2
SOURCE = NotificationSource(
    model.TOKEN_CHANGES, model.TOKEN_CHANGE_PREFIX, model.decode_token_change
)


class DelegationTokens:
    """The tokens that one broker knows. `is_enabled` is false without a secret key: then all requests fail."""

    def __init__(
        self, config: BrokerConfig, registry: RegistryClient, clock: Clock, random: Random
    ) -> None:
        self.registry = registry
        self.clock = clock
        self.random = random
        self.secret_key = find_secret_key(config)
        self.lifetimes = TokenLifetimes(
            max_ms=find_ms(config, "delegation.token.max.lifetime.ms"),
            renewal_ms=find_ms(config, "delegation.token.expiry.time.ms"),
        )
        self.check_seconds = find_ms(config, "delegation.token.expiry.check.interval.ms") / 1000
        self.tokens: dict[str, DelegationToken] = {}
        """By id."""
        self.ids_by_hmac: dict[bytes, str] = {}
        self.credentials: OrderedDict[tuple[str, str], ScramCredential] = OrderedDict()
        """By token id and mechanism. The one that was used last comes last."""
        self.lock = asyncio.Lock()
        """Held from a read of the registry until its result is in `tokens`."""
        self.hashing = asyncio.Semaphore(HASHES_AT_ONCE)
        self.changes = ConfigChanges(registry, self, clock, random, SOURCE)

    @property
    def is_enabled(self) -> bool:
        return bool(self.secret_key)

    async def start(self, tasks: Tasks) -> None:
        """Read all tokens, and follow their changes. Raises RegistryError."""
        if not self.is_enabled:
            return
        for path in (model.TOKENS_ROOT, model.TOKENS, model.TOKEN_CHANGES):
            with suppress(NodeExists):
                await self.registry.create(path)
        await self.apply_all()
        tasks.start("token-changes", self.changes.run())

    def session_opened(self) -> None:
        """Read the tokens again: a new registry session has no watches, and changes may have been missed."""
        if self.is_enabled:
            self.changes.session_opened()

    # ---- changes by other brokers (Applier)

    async def apply(self, _: str, token_id: str) -> None:
        async with self.lock:
            try:
                data = (await self.registry.get(model.token_path(token_id)))[0]
            except NoNode:
                self.forget(token_id)
            else:
                self.read(token_id, data)

    async def apply_all(self) -> None:
        async with self.lock:
            ids = await self.registry.children(model.TOKENS)
            for gone in self.tokens.keys() - set(ids):
                self.forget(gone)
            turns = Turns()
            async for chunk in in_chunks(tuple(ids), READ_TOGETHER):
                paths = [model.token_path(each) for each in chunk]
                for each, found in zip(chunk, await self.registry.get_many(paths), strict=True):
                    await turns.yield_if_due()
                    if found is None:
                        self.forget(each)
                    else:
                        self.read(each, found[0])

    def read(self, token_id: str, data: bytes) -> None:
        """Remember the token of a znode. Forget it if the znode is invalid: the change may be a revocation."""
        try:
            self.remember(model.decode_token(model.token_path(token_id), data))
        except RegistryError as error:
            logger.error("ignoring delegation token error=%s", error)
            self.forget(token_id)

    def remember(self, token: DelegationToken) -> None:
        self.tokens[token.id] = token
        self.ids_by_hmac[self.hmac(token.id)] = token.id

    def forget(self, token_id: str) -> None:
        self.tokens.pop(token_id, None)
        self.ids_by_hmac.pop(self.hmac(token_id), None)
        for mechanism in SCRAM_MECHANISMS:
            self.credentials.pop((token_id, mechanism), None)

    def hmac(self, token_id: str) -> bytes:
        return model.token_hmac(token_id, self.secret_key)

    # ---- logins

    async def find_login(self, mechanism: str, token_id: str) -> FoundCredential | None:
        """Return the credential of a token, or None if it does not exist or has expired."""
        token = self.tokens.get(token_id)
        if token is None or token.is_expired(self.clock.now_ms()):
            return None
        key = (token_id, mechanism)
        if key not in self.credentials:
            async with self.hashing:
                credential = await in_thread(self.compute_credential, mechanism, token_id)
            self.credentials[key] = credential
            while len(self.credentials) > CREDENTIALS_MAX:
                self.credentials.popitem(last=False)
        self.credentials.move_to_end(key)
        login = LoggedIn(token.owner, min(token.expires_ms, token.max_ms), is_token=True)
        return FoundCredential(self.credentials[key], login)

    def compute_credential(self, mechanism: str, token_id: str) -> ScramCredential:
        salt = create_salt(self.random)
        password = model.token_password(self.hmac(token_id))
        salted = salt_password(mechanism, password, salt, ITERATIONS_MIN)
        return credential_of(mechanism, salted, salt, ITERATIONS_MIN)

    # ---- requests

    async def create(
        self,
        owner: Principal,
        requester: Principal,
        renewers: tuple[Principal, ...],
        lifetime_ms: int,
    ) -> DelegationToken:
        """Create a token. Raises ApiError or RegistryError."""
        self.require_enabled()
        model.check_renewers(renewers)
        if len(self.tokens) >= TOKENS_MAX:
            why = f"the cluster has {TOKENS_MAX} tokens, the maximum; expire some"
            raise ApiError(ErrorCode.POLICY_VIOLATION, why)
        token = model.create_token(
            *(owner, requester, renewers, lifetime_ms, self.lifetimes),
            now_ms=self.clock.now_ms(),
            random=self.random,
        )
        async with self.lock:
            path = model.token_path(token.id)
            await self.write(Create(path=path, data=model.encode_token(token)), token.id)
            self.remember(token)
        logger.info("created delegation token id=%s owner=%s", token.id, owner)
        return token

    async def renew(self, hmac: bytes, principal: Principal, period_ms: int) -> int:
        """Renew a token. Returns its new expiry. Raises ApiError or RegistryError."""
        now_ms = self.clock.now_ms()

        def decide(token: DelegationToken) -> DelegationToken | None:
            return model.renew_token(token, principal, period_ms, self.lifetimes, now_ms)

        renewed = await self.change(hmac, decide)
        assert renewed is not None
        return renewed.expires_ms

    async def expire(self, hmac: bytes, principal: Principal, period_ms: int) -> int:
        """Set another expiry, or delete the token. Returns its expiry. Raises ApiError or RegistryError."""
        now_ms = self.clock.now_ms()

        def decide(token: DelegationToken) -> DelegationToken | None:
            return model.expire_token(token, principal, period_ms, now_ms)

        changed = await self.change(hmac, decide)
        return now_ms if changed is None else changed.expires_ms

    async def change(
        self, hmac: bytes, decide: Callable[[DelegationToken], DelegationToken | None]
    ) -> DelegationToken | None:
        """Change a token, or delete it if `decide` returns None."""
        self.require_enabled()
        async with self.lock:
            token_id = self.find_id(hmac)
            path = model.token_path(token_id)
            try:
                data, stat = await self.registry.get(path)
            except NoNode:
                self.forget(token_id)
                raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
            changed = decide(model.decode_token(path, data))
            write: Op = Delete(path=path, version=stat.version)
            if changed is not None:
                encoded = model.encode_token(changed)
                write = SetData(path=path, data=encoded, version=stat.version)
            await self.write(write, token_id)
            if changed is None:
                self.forget(token_id)
                logger.info("expired delegation token id=%s", token_id)
            else:
                self.remember(changed)
            return changed

    def find_id(self, hmac: bytes) -> str:
        # A dictionary compares hashes, so its time does not depend on the number of equal bytes.
        token_id = self.ids_by_hmac.get(hmac)
        if token_id is None or not compare_digest(self.hmac(token_id), hmac):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token_id

    async def write(self, write: Op, token_id: str) -> None:
        """Write a token together with its notification. Raises RegistryError, also after a concurrent change."""
        change = Create(
            path=f"{model.TOKEN_CHANGES}/{model.TOKEN_CHANGE_PREFIX}",
            data=token_id.encode(),
            sequential=True,
        )
        await self.registry.multi([write, change])

    def require_enabled(self) -> None:
        if not self.is_enabled:
            why = f"set {SECRET_KEY} in server.properties of every broker"
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, why)

    # ---- expiry

    async def delete_expired(self) -> None:
        """Delete the expired tokens from the registry."""
        now_ms = self.clock.now_ms()
        for token in [each for each in self.tokens.values() if each.is_expired(now_ms)]:
            async with self.lock:
                try:
                    with suppress(NoNode):
                        await self.registry.delete(model.token_path(token.id))
                        await self.registry.create(
                            f"{model.TOKEN_CHANGES}/{model.TOKEN_CHANGE_PREFIX}",
                            token.id.encode(),
                            sequential=True,
                        )
                except (RegistryError, StorageError) as error:
                    logger.warning("cannot delete expired delegation tokens error=%s", error)
                    return
                self.forget(token.id)
            logger.info("deleted expired delegation token id=%s owner=%s", token.id, token.owner)


def find_secret_key(config: BrokerConfig) -> str:
    for name in (SECRET_KEY, FORMER_SECRET_KEY):
        value = config.security_value(name)
        if value:
            return str(value)
    return ""


def find_ms(config: BrokerConfig, name: str) -> int:
    value = config.security_value(name)
    assert isinstance(value, int), name
    return value
