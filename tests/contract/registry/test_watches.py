import asyncio

import pytest

from barnabas.errors import MultiFailed, NoNode
from barnabas.world.ports import CheckVersion, Create, Delete, RegistrySession, SetData, WatchEvent
from barnabas.world.ports import WatchKind as Kind
from tests.contract.registry.harness import DEADLINE_S, Events, Setup


async def test_data_watch_fires_once(session: RegistrySession, other: RegistrySession) -> None:
    await session.create("/a")
    events = Events()
    await session.get("/a", events)
    await other.set("/a", b"1")
    await other.set("/a", b"2")
    await events.arrive((Kind.CHANGED, "/a"))


async def test_next_read_rearms_watch(session: RegistrySession) -> None:
    await session.create("/a")
    events = Events()
    for number in range(3):
        await session.get("/a", events)
        await session.set("/a", str(number).encode())
        await events.arrive((Kind.CHANGED, "/a"))


async def test_exists_watch_fires_on_creation(session: RegistrySession) -> None:
    events = Events()
    assert await session.exists("/a", events) is None
    await session.create("/a")
    await events.arrive((Kind.CREATED, "/a"))
    await session.exists("/a", events)
    await session.delete("/a")
    await events.arrive((Kind.DELETED, "/a"))


async def test_failed_read_sets_no_watch(session: RegistrySession) -> None:
    events = Events()
    with pytest.raises(NoNode):
        await session.get("/a", events)
    with pytest.raises(NoNode):
        await session.children("/a", events)
    await session.create("/a")
    await session.create("/a/b")
    await events.stay_away()


async def test_child_watch_ignores_data_changes(session: RegistrySession) -> None:
    await session.create("/a")
    events = Events()
    await session.children("/a", events)
    await session.set("/a", b"1")
    await session.create("/a/b")
    await events.arrive((Kind.CHILDREN, "/a"))
    await session.children("/a", events)
    await session.set("/a/b", b"1")
    await session.delete("/a/b")
    await events.arrive((Kind.CHILDREN, "/a"))


async def test_data_watch_ignores_children(session: RegistrySession) -> None:
    await session.create("/a")
    events = Events()
    await session.get("/a", events)
    await session.create("/a/b")
    await events.stay_away()


async def test_deletion_fires_data_child_and_parent_watches(
    session: RegistrySession,
) -> None:
    await session.create("/a")
    await session.create("/a/b")
    data, child, parent = Events(), Events(), Events()
    await session.get("/a/b", data)
    await session.children("/a/b", child)
    await session.children("/a", parent)
    await session.delete("/a/b")
    await data.arrive((Kind.DELETED, "/a/b"))
    await child.arrive((Kind.DELETED, "/a/b"))
    await parent.arrive((Kind.CHILDREN, "/a"))


async def test_watch_set_by_several_reads_fires_once(session: RegistrySession) -> None:
    await session.create("/a")
    events = Events()
    await session.get("/a", events)
    await session.exists("/a", events)
    await session.get("/a", events)
    await session.set("/a", b"1")
    await events.arrive((Kind.CHANGED, "/a"))
    await session.get("/a", events)
    await session.children("/a", events)
    await session.delete("/a")
    await events.arrive((Kind.DELETED, "/a"))


async def test_two_watches_on_one_node_both_fire(session: RegistrySession) -> None:
    await session.create("/a")
    first, second = Events(), Events()
    await session.get("/a", first)
    await session.get("/a", second)
    await session.set("/a", b"1")
    await first.arrive((Kind.CHANGED, "/a"))
    await second.arrive((Kind.CHANGED, "/a"))


async def test_change_is_readable_when_watch_fires(
    session: RegistrySession, other: RegistrySession
) -> None:
    await session.create("/a", b"0")
    read: asyncio.Queue[asyncio.Task[tuple[bytes, object]]] = asyncio.Queue()

    def reread(event: WatchEvent) -> None:
        read.put_nowait(asyncio.ensure_future(session.get("/a")))

    for number in range(20):
        await session.get("/a", reread)
        await other.set("/a", str(number).encode())
        async with asyncio.timeout(DEADLINE_S):
            data, _ = await (await read.get())
        assert data == str(number).encode()


async def test_event_precedes_new_data(session: RegistrySession, other: RegistrySession) -> None:
    await session.create("/a", b"0")
    for number in range(1, 20):
        events = Events()
        await session.get("/a", events)
        write = asyncio.ensure_future(other.set("/a", str(number).encode()))
        async with asyncio.timeout(DEADLINE_S):
            while (await session.get("/a"))[0] != str(number).encode():
                assert not events.seen
                await asyncio.sleep(0)
        assert events.seen == [(Kind.CHANGED, "/a")]
        await write


async def test_watches_fire_in_write_order(
    session: RegistrySession, other: RegistrySession
) -> None:
    events = Events()
    paths = [f"/n{number}" for number in (3, 1, 2, 9, 7)]
    for path in sorted(paths):
        await session.exists(path, events)
    await asyncio.gather(*(other.create(path) for path in paths))
    await events.arrive(*((Kind.CREATED, path) for path in paths))


async def test_transaction_fires_watches_in_operation_order(
    session: RegistrySession,
) -> None:
    await session.create("/a")
    await session.create("/c")
    events = Events()
    for path in ("/a", "/b", "/c"):
        await session.exists(path, events)
    await session.children("/", events)
    await session.multi(
        [SetData(path="/c", data=b""), Create(path="/b"), Delete(path="/a"), Delete(path="/b")]
    )
    await events.arrive(
        (Kind.CHANGED, "/c"), (Kind.CREATED, "/b"), (Kind.CHILDREN, "/"), (Kind.DELETED, "/a")
    )


async def test_failed_transaction_fires_nothing(session: RegistrySession) -> None:
    await session.create("/a")
    events = Events()
    await session.get("/a", events)
    await session.children("/", events)
    with pytest.raises(MultiFailed):
        await session.multi(
            [SetData(path="/a", data=b""), Create(path="/b"), CheckVersion(path="/a", version=0)]
        )
    await events.stay_away()
    await session.set("/a", b"")
    await events.arrive((Kind.CHANGED, "/a"))


async def test_raising_watch_does_not_block_others(session: RegistrySession) -> None:
    await session.create("/a")
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def fail(event: WatchEvent) -> None:
        raise ValueError("a bug in a watch")

    events = Events()
    await session.get("/a", fail)
    await session.get("/a", events)
    await session.set("/a", b"1")
    await events.arrive((Kind.CHANGED, "/a"))
    assert len(reported) == 1


async def test_sequential_creation_event_has_full_name(session: RegistrySession) -> None:
    events = Events()
    await session.create("/a")
    await session.exists("/a/n_0000000000", events)
    await session.create("/a/n_", sequential=True)
    await events.arrive((Kind.CREATED, "/a/n_0000000000"))


async def test_watches_belong_to_their_session(registry: Setup) -> None:
    leaving, staying = await registry.connect(), await registry.connect()
    await staying.create("/a")
    gone, kept = Events(), Events()
    await leaving.exists("/a", gone)
    await staying.exists("/a", kept)
    await leaving.close()
    await staying.set("/a", b"1")
    await kept.arrive((Kind.CHANGED, "/a"))
    await gone.stay_away()
