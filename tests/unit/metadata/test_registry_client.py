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


async def renewed(client: RegistryClient, before: int) -> None:
    async def holds() -> bool:
        return client.id != before and client.state is SessionState.CONNECTED

    await eventually(holds)


async def test_calls_reach_the_session_of_the_moment(client: RegistryClient) -> None:
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


async def test_a_client_is_a_session_to_those_who_use_one(client: RegistryClient) -> None:
    session: RegistrySession = client
    assert session.id == client.id


async def test_after_expiry_there_is_a_new_session_and_the_owner_is_told_before_and_after(
    registry: Setup, client: RegistryClient
) -> None:
    told: list[str] = []
    may_go_on = asyncio.Event()
    is_new = asyncio.Event()

    async def on_expired() -> None:
        told.append("expired")
        with pytest.raises(RegistrySessionExpired):
            await client.get("/")
        await may_go_on.wait()

    def on_new_session() -> None:
        told.append("new")
        is_new.set()

    states: list[SessionState] = []
    client.on_expired, client.on_new_session = on_expired, on_new_session
    client.on_state(states.append)
    before = client.id
    await client.create("/a", ephemeral=True)
    await expire(registry, client)
    async with asyncio.timeout(DEADLINE_S):
        while not told:
            await asyncio.sleep(0.005)
    assert client.id == before  # no new one as long as the owner is not ready for it
    with pytest.raises(RegistrySessionExpired):
        await client.exists("/a")
    may_go_on.set()
    async with asyncio.timeout(DEADLINE_S):
        await is_new.wait()
    assert told == ["expired", "new"]
    assert states[-1] is SessionState.EXPIRED
    assert client.session_ids == {before, client.id}
    assert len(client.session_ids) == 2
    assert await client.exists("/a") is None


async def test_it_renews_again_and_again(registry: Setup, client: RegistryClient) -> None:
    for count in range(2, 5):
        before = client.id
        await expire(registry, client)
        await renewed(client, before)
        assert len(client.session_ids) == count


async def test_an_owner_may_close_it_when_the_session_expires(
    registry: Setup, client: RegistryClient
) -> None:
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


async def test_abandoned_it_leaves_its_nodes_to_the_timeout(registry: Setup) -> None:
    watcher = await registry.connect()
    client = RegistryClient(registry.registry, 1500)
    await client.open()
    loop = asyncio.get_running_loop()
    last_heard_of_after = loop.time()
    await client.create("/a", ephemeral=True)
    gone = Events()
    await watcher.exists("/a", gone)
    await client.abandon()
    with pytest.raises(RegistrySessionExpired):
        await client.get("/")
    async with asyncio.timeout(DEADLINE_S):
        while not gone.seen:
            await gone.more.wait()
    assert loop.time() - last_heard_of_after > 1.4, "it has said goodbye"
    assert await watcher.exists("/a") is None


class UnreachableAtTimes:
    """A registry that cannot be reached for so many attempts."""

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


async def test_it_tries_until_the_registry_can_be_reached(
    registry: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_client, "RETRY_S", (0.01, 0.01))
    door = UnreachableAtTimes(registry.registry)
    client = RegistryClient(cast(Registry, door), TIMEOUT_MS)
    await client.open()
    before = client.id
    door.refusals = 3
    await expire(registry, client)
    await renewed(client, before)
    assert door.refusals == 0
    await client.close()


async def test_a_registry_whose_disk_has_failed_is_given_up_and_its_owner_told(
    registry: Setup,
) -> None:
    door = UnreachableAtTimes(registry.registry)
    client = RegistryClient(cast(Registry, door), TIMEOUT_MS)
    lost = asyncio.Event()
    client.on_lost = lost.set
    await client.open()
    door.is_broken = True
    await expire(registry, client)
    async with asyncio.timeout(DEADLINE_S):
        await lost.wait()
    await client.close()


async def test_closing_ends_the_attempts(registry: Setup) -> None:
    door = UnreachableAtTimes(registry.registry)
    client = RegistryClient(cast(Registry, door), TIMEOUT_MS)
    await client.open()
    door.refusals = 1_000_000
    await expire(registry, client)

    async def is_trying() -> bool:
        return door.refusals < 1_000_000

    await eventually(is_trying)
    async with asyncio.timeout(DEADLINE_S):
        await client.close()
    assert client.renewal is None


async def test_a_first_session_that_cannot_be_had_is_told(registry: Setup) -> None:
    door = UnreachableAtTimes(registry.registry)
    door.refusals = 1
    client = RegistryClient(cast(Registry, door), TIMEOUT_MS)
    with pytest.raises(RegistryUnreachable):
        await client.open()
