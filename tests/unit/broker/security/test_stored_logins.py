"""Delegation tokens and the login secret in the registry: invalid znodes, and a registry that fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest

from barnabas.broker.security import credentials
from barnabas.broker.security.credentials import ScramCredentials
from barnabas.broker.security.tokens import DelegationTokens
from barnabas.config.load import load_broker_config
from barnabas.errors import StorageError
from barnabas.metadata.registry_client import RegistryClient
from barnabas.security import delegation_token as model
from barnabas.security.principal import Principal
from barnabas.security.sasl.mechanism import SCRAM_SHA_256
from barnabas.tasks import Tasks
from barnabas.world.clock import SystemClock
from barnabas.world.registry.embedded import EmbeddedRegistry

ALICE = Principal("alice")


@pytest.fixture
async def registry() -> AsyncIterator[RegistryClient]:
    client = RegistryClient(EmbeddedRegistry(None, SystemClock()), 10_000)
    await client.open()
    yield client
    await client.close()


@pytest.fixture
async def tokens(registry: RegistryClient) -> AsyncIterator[DelegationTokens]:
    config, _ = load_broker_config({"broker.id": "1", "delegation.token.secret.key": "key"})
    tokens, tasks = DelegationTokens(config, registry, SystemClock(), Random(1)), Tasks()
    await tokens.start(tasks)
    await tasks.stop()  # the tests apply the changes
    yield tokens


@pytest.mark.parametrize("reads_all", [False, True])
async def test_invalid_token_is_forgotten(
    registry: RegistryClient, tokens: DelegationTokens, reads_all: bool
) -> None:
    token = await tokens.create(ALICE, ALICE, (), -1)
    assert await tokens.find_login(SCRAM_SHA_256, token.id) is not None
    await registry.set(model.token_path(token.id), b"nonsense")
    if reads_all:
        await tokens.apply_all()
    else:
        await tokens.apply("token", token.id)
    assert await tokens.find_login(SCRAM_SHA_256, token.id) is None


async def test_unknown_user_gets_fake_credential_without_the_login_secret(
    registry: RegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> bytes:
        raise StorageError("/registry", "the disk of the registry has failed")

    monkeypatch.setattr(credentials, "read_or_create_secret", fail)
    found = await ScramCredentials(registry, Random(1)).find_fake(SCRAM_SHA_256, "nobody")
    assert found.salt
