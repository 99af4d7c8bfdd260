import asyncio

import pytest

from barnabas.errors import NodeExists, RegistrySessionExpired
from barnabas.world.ports import Create, RegistrySession, SessionState
from barnabas.world.ports import WatchKind as Kind
from tests.contract.registry.harness import DEADLINE_S, Events, Setup, eventually


async def absent(session: RegistrySession, path: str) -> bool:
    return await session.exists(path) is None


async def test_sessions_have_distinct_ids(session: RegistrySession, other: RegistrySession) -> None:
    assert session.id != other.id
    assert session.id > 0
    assert session.state is SessionState.CONNECTED


async def test_ephemeral_nodes_are_removed_on_close(
    session: RegistrySession, other: RegistrySession
) -> None:
    await session.create("/live")
    await session.create("/live/a", ephemeral=True)
    await session.multi([Create(path="/live/b", ephemeral=True), Create(path="/live/c")])
    await other.create("/live/d", ephemeral=True)
    children, data = Events(), Events()
    await other.exists("/live/a", data)
    await other.children("/live", children)
    await session.close()
    await data.arrive((Kind.DELETED, "/live/a"))
    await children.arrive((Kind.CHILDREN, "/live"))
    assert await other.children("/live") == ["c", "d"]


async def test_closed_session_raises_expired(session: RegistrySession) -> None:
    await session.close()
    for call in (
        session.get("/"),
        session.exists("/"),
        session.children("/"),
        session.create("/a"),
        session.set("/", b""),
        session.delete("/a"),
        session.multi([]),
    ):
        with pytest.raises(RegistrySessionExpired):
            await call
    await session.close()


async def test_expiration_removes_ephemeral_nodes_and_notifies(registry: Setup) -> None:
    session, other = await registry.connect(), await registry.connect()
    states: asyncio.Queue[SessionState] = asyncio.Queue()
    session.on_state(states.put_nowait)
    own, watching = Events(), Events()
    await session.create("/a", ephemeral=True)
    await session.exists("/a", own)
    await other.exists("/a", watching)
    await registry.expire(session)
    await watching.arrive((Kind.DELETED, "/a"))
    assert await other.exists("/a") is None
    async with asyncio.timeout(DEADLINE_S):
        while await states.get() is not SessionState.EXPIRED:
            pass
    assert session.state is SessionState.EXPIRED
    with pytest.raises(RegistrySessionExpired):
        await session.get("/")
    await own.stay_away()


async def test_new_session_can_register_after_expiration(registry: Setup) -> None:
    first = await registry.connect()
    _, before = await first.create("/broker", ephemeral=True)
    await registry.expire(first)
    second = await registry.connect()
    await eventually(lambda: absent(second, "/broker"))
    _, after = await second.create("/broker", ephemeral=True)
    assert after.ephemeral_owner == second.id != before.ephemeral_owner
    assert after.czxid > before.czxid


async def test_one_session_at_a_time_becomes_controller(
    registry: Setup,
) -> None:
    contenders = [await registry.connect() for _ in range(5)]

    async def elect() -> list[RegistrySession]:
        outcomes = await asyncio.gather(
            *(each.create("/controller", ephemeral=True) for each in contenders),
            return_exceptions=True,
        )
        winners = []
        for contender, outcome in zip(contenders, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                winners.append(contender)
            else:
                assert isinstance(outcome, NodeExists)
        return winners

    while contenders:
        [winner] = await elect()
        watchers = [(each, Events()) for each in contenders if each is not winner]
        for each, events in watchers:
            await each.exists("/controller", events)
        contenders.remove(winner)
        await winner.close()
        for _, events in watchers:
            await events.arrive((Kind.DELETED, "/controller"))
