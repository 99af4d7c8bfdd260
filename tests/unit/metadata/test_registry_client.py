import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from barnabas.errors import RegistrySessionExpired, RegistryUnreachable, StorageError
from barnabas.metadata import registry_client
from barnabas.metadata.registry_client import RegistryClient
from barnabas.world.ports import Registry, RegistrySession, SessionState
from tests.contract.registry.harness import DEADLINE_S, Events, Setup, eventually

TIMEOUT_MS = 6000


@pytest.fixture
async def client(registry: Setup) -> AsyncIterator[RegistryClient]:
    client = RegistryClient(registry.registry, TIMEOUT_MS)
    await client.open()
    yield client
    await client.close()


async def expire(registry: Setup, client: RegistryClient) -> None:
    assert client.session is not None
    await registry.expire(client.session)


async def wait_for_renewal(client: RegistryClient, before: int) -> None:
    async def is_renewed() -> bool:
        return client.id != before and client.state is SessionState.CONNECTED

    await eventually(is_renewed)


async def test_calls_use_the_current_session(client: RegistryClient) -> None:
    assert client.state is SessionState.CONNECTED
    assert client.session_ids == {client.id}
    path, stat = await client.create("/a", b"one", ephemeral=True)
    assert (path, stat.ephemeral_owner) == ("/a", client.id)
    events = Events()
    assert (await client.get("/a", events))[0] == b"one"
    assert (await client.set("/a", b"two", stat.version)).version == 1
    assert await client.exists("/a") is not None
    assert await client.children("/") == ["a"]
    assert await client.multi([]) == []
    await client.delete("/a", 1)
    assert await client.exists("/a") is None


async def test_client_is_a_registry_session(client: RegistryClient) -> None:
    session: RegistrySession = client
    assert session.id == client.id


async def test_expired_session_is_renewed_after_owner_is_ready(
    registry: Setup, client: RegistryClient
) -> None:
    events: list[str] = []
    may_continue = asyncio.Event()
    is_new = asyncio.Event()

    async def on_expired() -> None:
        events.append("expired")
        with pytest.raises(RegistrySessionExpired):
            await client.get("/")
        await may_continue.wait()

    def on_new_session() -> None:
        events.append("new")
        is_new.set()

    states: list[SessionState] = []
    client.on_expired, client.on_new_session = on_expired, on_new_session
    client.on_state(states.append)
    before = client.id
    await client.create("/a", ephemeral=True)
    await expire(registry, client)
    async with asyncio.timeout(DEADLINE_S):
        while not events:
            await asyncio.sleep(0.005)
    assert client.id == before  # no new session before the owner is ready
    with pytest.raises(RegistrySessionExpired):
        await client.exists("/a")
    may_continue.set()
    async with asyncio.timeout(DEADLINE_S):
        await is_new.wait()
    assert events == ["expired", "new"]
    assert states[-1] is SessionState.EXPIRED
    assert client.session_ids == {before, client.id}
    assert len(client.session_ids) == 2
    assert await client.exists("/a") is None


async def test_session_is_renewed_repeatedly(registry: Setup, client: RegistryClient) -> None:
    for count in range(2, 5):
        before = client.id
        await expire(registry, client)
        await wait_for_renewal(client, before)
        assert len(client.session_ids) == count


async def test_owner_may_close_client_on_expiry(registry: Setup, client: RegistryClient) -> None:
    closed = asyncio.Event()

    async def on_expired() -> None:
        await client.close()
        closed.set()

    client.on_expired = on_expired
    await expire(registry, client)
    async with asyncio.timeout(DEADLINE_S):
        await closed.wait()
    assert client.state is SessionState.EXPIRED
    with pytest.raises(RegistrySessionExpired):
        await client.get("/")
    await client.close()


async def test_abandoned_session_keeps_ephemeral_nodes_until_timeout(registry: Setup) -> None:
    watcher = await registry.connect()
    client = RegistryClient(registry.registry, 1500)
    await client.open()
    loop = asyncio.get_running_loop()
    created_at = loop.time()
    await client.create("/a", ephemeral=True)
    gone = Events()
    await watcher.exists("/a", gone)
    await client.abandon()
    with pytest.raises(RegistrySessionExpired):
        await client.get("/")
    async with asyncio.timeout(DEADLINE_S):
        while not gone.seen:
            await gone.more.wait()
    assert loop.time() - created_at > 1.4, "the session was closed"
    assert await watcher.exists("/a") is None


class FlakyRegistry:
    """Registry whose next `refusals` connection attempts fail."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.refusals = 0
        self.is_broken = False

    async def connect(self, session_timeout_ms: int) -> RegistrySession:
        if self.refusals:
            self.refusals -= 1
            raise RegistryUnreachable("", "not now")
        if self.is_broken:
            raise StorageError("/registry", "no space left on the volume")
        return await self.registry.connect(session_timeout_ms)


async def test_renewal_retries_until_registry_is_reachable(
    registry: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_client, "RETRY_S", (0.01, 0.01))
    flaky = FlakyRegistry(registry.registry)
    client = RegistryClient(cast(Registry, flaky), TIMEOUT_MS)
    await client.open()
    before = client.id
    flaky.refusals = 3
    await expire(registry, client)
    await wait_for_renewal(client, before)
    assert flaky.refusals == 0
    await client.close()


async def test_failed_disk_of_registry_is_reported_to_owner(
    registry: Setup,
) -> None:
    flaky = FlakyRegistry(registry.registry)
    client = RegistryClient(cast(Registry, flaky), TIMEOUT_MS)
    lost = asyncio.Event()
    client.on_lost = lost.set
    await client.open()
    flaky.is_broken = True
    await expire(registry, client)
    async with asyncio.timeout(DEADLINE_S):
        await lost.wait()
    await client.close()


async def test_close_ends_renewal_attempts(registry: Setup) -> None:
    flaky = FlakyRegistry(registry.registry)
    client = RegistryClient(cast(Registry, flaky), TIMEOUT_MS)
    await client.open()
    flaky.refusals = 1_000_000
    await expire(registry, client)

    async def is_trying() -> bool:
        return flaky.refusals < 1_000_000

    await eventually(is_trying)
    async with asyncio.timeout(DEADLINE_S):
        await client.close()
    assert client.renewal is None


async def test_unreachable_registry_fails_open(registry: Setup) -> None:
    flaky = FlakyRegistry(registry.registry)
    flaky.refusals = 1
    client = RegistryClient(cast(Registry, flaky), TIMEOUT_MS)
    with pytest.raises(RegistryUnreachable):
        await client.open()
