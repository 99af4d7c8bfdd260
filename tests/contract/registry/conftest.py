import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from barnabas.world.clock import SystemClock
from barnabas.world.ports import RegistrySession
from barnabas.world.registry.embedded import EmbeddedRegistry, EmbeddedSession
from barnabas.world.registry.zookeeper import ZooKeeperRegistry, ZooKeeperSession
from tests import zookeeper
from tests.contract.registry.harness import Setup

SESSION_TIMEOUT_MS = 6000


async def embedded(path: str | None) -> AsyncIterator[Setup]:
    registry = EmbeddedRegistry(path, SystemClock())

    async def connect() -> RegistrySession:
        return await registry.connect(SESSION_TIMEOUT_MS)

    async def expire(session: RegistrySession) -> None:
        await registry.end_session(cast(EmbeddedSession, session))

    yield Setup(registry=registry, connect=connect, expire=expire)
    await registry.close()


async def in_zookeeper(connect_string: str) -> AsyncIterator[Setup]:
    registry = ZooKeeperRegistry(connect_string, connection_timeout_ms=10_000)

    async def connect() -> RegistrySession:
        return await registry.connect(SESSION_TIMEOUT_MS)

    async def expire(session: RegistrySession) -> None:
        await asyncio.to_thread(zookeeper.expire, cast(ZooKeeperSession, session))

    yield Setup(registry=registry, connect=connect, expire=expire)
    await registry.close()


# Add a new kind of registry here: it must pass every test of this directory unchanged.
KINDS: dict[str, Callable[[pytest.FixtureRequest, Path], AsyncIterator[Setup]]] = {
    "embedded in memory": lambda _, __: embedded(None),
    "embedded on disk": lambda _, directory: embedded(str(directory / "registry")),
    "ZooKeeper": lambda request, _: in_zookeeper(request.getfixturevalue("chroot")),
}


@pytest.fixture(params=list(KINDS))
async def registry(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Setup]:
    async for setup in KINDS[request.param](request, tmp_path):
        yield setup


@pytest.fixture
async def session(registry: Setup) -> RegistrySession:
    return await registry.connect()


@pytest.fixture
async def other(registry: Setup) -> RegistrySession:
    return await registry.connect()
