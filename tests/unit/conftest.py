"""Settings of all unit tests, and the registry that many of them use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import settings

from barnabas.metadata import registration
from barnabas.metadata.registry_client import RegistryClient
from barnabas.world.clock import SystemClock
from barnabas.world.registry.embedded import EmbeddedRegistry

# Examples have no deadline: the machine may be busy.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


@pytest.fixture
async def registry() -> AsyncIterator[RegistryClient]:
    """A client of an embedded registry in memory, with the paths that every broker creates."""
    embedded = EmbeddedRegistry(None, SystemClock())
    client = RegistryClient(embedded, 6000)
    await client.open()
    await registration.create_persistent_paths(client)
    yield client
    await client.close()
    await embedded.close()
