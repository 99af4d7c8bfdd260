from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from barnabas.world.clock import SystemClock
from barnabas.world.ports import RegistrySession
from barnabas.world.registry.embedded import EmbeddedRegistry, EmbeddedSession
from tests.contract.registry.harness import Setup


async def embedded(path: str | None) -> AsyncIterator[Setup]:
    registry = EmbeddedRegistry(path, SystemClock())

    async def connect() -> RegistrySession:
        return await registry.connect(6000)

    async def expire(session: RegistrySession) -> None:
        await registry.expire(cast(EmbeddedSession, session))

    yield Setup(connect=connect, expire=expire)
    await registry.close()


# A further kind of registry is one more name here: it must pass every test of this folder unchanged.
KINDS: dict[str, Callable[[Path], AsyncIterator[Setup]]] = {
    "embedded in memory": lambda _: embedded(None),
    "embedded on disk": lambda directory: embedded(str(directory / "registry")),
}


@pytest.fixture(params=list(KINDS))
async def registry(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Setup]:
    async for setup in KINDS[request.param](tmp_path):
        yield setup


@pytest.fixture
async def session(registry: Setup) -> RegistrySession:
    return await registry.connect()


@pytest.fixture
async def other(registry: Setup) -> RegistrySession:
    return await registry.connect()
