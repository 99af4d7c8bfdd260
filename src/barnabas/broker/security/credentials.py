"""SCRAM credentials of users in the registry, in Kafka's format.

    /config/users/alice      {"version":1,"config":{"SCRAM-SHA-256":"salt=…,stored_key=…,server_key=…,iterations=4096"}}

The znode also has the quotas of the user. Every broker keeps all credentials in memory. It reads them at the start, and
again after the notification of a change (config_admin/changes.py).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from random import Random

from barnabas.broker.config_admin.write import ATTEMPTS_MAX
from barnabas.errors import (
    BadVersion,
    MultiFailed,
    NodeExists,
    NoNode,
    RegistryError,
    StorageError,
    reason,
)
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.retry import CONFLICT_S, Backoff
from barnabas.security.sasl.mechanism import SCRAM_MECHANISMS
from barnabas.security.sasl.scram import (
    ITERATIONS_MIN,
    ScramCredential,
    create_fake_credential,
    format_credential,
    parse_credential,
)
from barnabas.tasks import Turns, in_chunks
from barnabas.world.ports import Create, Op, RegistrySession, SetData

logger = logging.getLogger("barnabas.security")

READ_TOGETHER = 500
SECRET_PARENT = "/barnabas"
SECRET_PATH = "/barnabas/login_secret"
"""A random secret of the cluster. The salts of unknown users are derived from it."""
SECRET_BYTES = 32

Credentials = dict[str, ScramCredential]
"""The credentials of one user, by mechanism."""


class ScramCredentials:
    """The credentials that one broker knows."""

    def __init__(self, registry: RegistryClient, random: Random) -> None:
        self.registry = registry
        self.random = random
        self.users: dict[str, Credentials] = {}
        self.iterations: Counter[int] = Counter()
        """Number of credentials by their number of iterations."""
        self.secret: bytes | None = None

    async def load(self) -> None:
        """Read the credentials of all users. Raises RegistryError."""
        users = await read_all_users(self.registry)
        self.users, self.iterations = users, Counter()
        for credentials in users.values():
            self.iterations.update(each.iterations for each in credentials.values())

    def update(self, entity: str, settings: Mapping[str, str]) -> None:
        """Use the new settings of an entity in /config/users. Those of a user with a client id have no credentials."""
        user = znodes.desanitise(entity)
        if "/" in entity or user is None:
            return
        for credential in self.users.pop(user, {}).values():
            self.iterations[credential.iterations] -= 1
        credentials = read_credentials(user, settings)
        if credentials:
            self.users[user] = credentials
            self.iterations.update(each.iterations for each in credentials.values())

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        return self.users.get(user, {}).get(mechanism)

    async def find_fake(self, mechanism: str, user: str) -> ScramCredential:
        """Return a credential for an unknown user. It has as many iterations as most others."""
        if self.secret is None:
            try:
                self.secret = await read_or_create_secret(self.registry, self.random)
            except (RegistryError, StorageError) as error:
                logger.warning("cannot read the login secret, using a new one error=%s", error)
                self.secret = self.random.randbytes(SECRET_BYTES)
        most = self.iterations.most_common(1)
        iterations = most[0][0] if most and most[0][1] > 0 else ITERATIONS_MIN
        return create_fake_credential(mechanism, user, self.secret, iterations)


def read_credentials(user: str, settings: Mapping[str, str]) -> Credentials:
    """Return the credentials among the settings of a user. Invalid ones are logged and left out."""
    credentials: Credentials = {}
    for mechanism in SCRAM_MECHANISMS:
        text = settings.get(mechanism)
        if text is None:
            continue
        try:
            credential = parse_credential(text)
            if credential.iterations < ITERATIONS_MIN:
                raise ValueError(f"{credential.iterations} iterations are too few")
        except ValueError as error:
            logger.error(
                "ignoring SCRAM credential user=%s mechanism=%s error=%s",
                user,
                mechanism,
                reason(error),
            )
        else:
            credentials[mechanism] = credential
    return credentials


async def read_all_users(registry: RegistrySession) -> dict[str, Credentials]:
    """Return the credentials of all users that have some. Raises RegistryError."""
    users: dict[str, Credentials] = {}
    turns = Turns()
    names = await registry.children(znodes.CONFIG_USERS)
    async for chunk in in_chunks(tuple(names), READ_TOGETHER):
        paths = [znodes.config_path("users", name) for name in chunk]
        for name, path, found in zip(chunk, paths, await registry.get_many(paths), strict=True):
            await turns.yield_if_due()
            user = znodes.desanitise(name)
            if found is None or user is None:
                continue
            try:
                credentials = read_credentials(user, znodes.decode_config(path, found[0]))
            except RegistryError as error:
                logger.error("ignoring settings error=%s", error)
                continue
            if credentials:
                users[user] = credentials
    return users


async def read_or_create_secret(registry: RegistrySession, random: Random) -> bytes:
    """Return the login secret of the cluster. The first broker that needs it creates it."""
    try:
        return (await registry.get(SECRET_PATH))[0]
    except NoNode:
        pass
    secret = random.randbytes(SECRET_BYTES)
    with suppress(NodeExists):
        await registry.create(SECRET_PARENT)
    try:
        await registry.create(SECRET_PATH, secret)
    except NodeExists:
        return (await registry.get(SECRET_PATH))[0]
    return secret


async def store_scram_credential(
    registry: RegistrySession,
    user: str,
    mechanism: str,
    credential: ScramCredential | None,
    random: Random,
) -> None:
    """Set or, with None, remove a credential without a broker. Running brokers learn of it by a notification.

    Brokers that log in to each other with SCRAM need their credential before the first one starts. The paths in /config
    must exist: `registration.create_persistent_paths`. Raises RegistryError.
    """
    entity = znodes.sanitise(user)
    path = znodes.config_path("users", entity)
    backoff = Backoff(*CONFLICT_S, random=random)
    for _ in range(ATTEMPTS_MAX):
        settings: dict[str, str] = {}
        version: int | None = None
        with suppress(NoNode):
            data, stat = await registry.get(path)
            version = stat.version
            settings = znodes.decode_config(path, data)
        settings.pop(mechanism, None)
        if credential is not None:
            settings[mechanism] = format_credential(credential)
        data = znodes.encode_config(settings)
        write: Op = Create(path=path, data=data)
        if version is not None:
            write = SetData(path=path, data=data, version=version)
        change = znodes.encode_config_change(f"users/{entity}")
        notification = Create(path=znodes.CONFIG_CHANGE_PREFIX, data=change, sequential=True)
        try:
            await registry.multi([write, notification])
            return
        except MultiFailed as failed:
            if not isinstance(failed.error, BadVersion | NodeExists | NoNode):
                raise
            await backoff.wait()
    raise RegistryError(path, "changed by other clients too often; retry later")
