"""What a session makes of servers that go away: shorter and longer than it lasts, one of three, and standing still."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient

from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from barnabas.errors import RegistryError, RegistrySessionExpired, RegistryUnreachable
from barnabas.metadata.registry_client import RegistryClient
from barnabas.world.ports import SessionState
from barnabas.world.ports import WatchKind as Kind
from barnabas.world.registry.zookeeper import ZooKeeperRegistry, ZooKeeperSession
from tests import zookeeper
from tests.contract.registry.harness import Events, eventually

DEADLINE_S = 60


@pytest.fixture
def one_node(tmp_path: Path) -> Iterator[ZooKeeperServers]:
    yield from started(ZooKeeperServers(tmp_path / "zookeeper"))


@pytest.fixture
def three_nodes(tmp_path: Path) -> Iterator[ZooKeeperServers]:
    yield from started(ZooKeeperServers(tmp_path / "zookeeper", nodes=3))


def started(servers: ZooKeeperServers) -> Iterator[ZooKeeperServers]:
    zookeeper.require_java()
    servers.start()
    yield servers
    servers.stop()


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[str], ZooKeeperRegistry]]:
    registries: list[ZooKeeperRegistry] = []

    def make(connect_string: str) -> ZooKeeperRegistry:
        registries.append(ZooKeeperRegistry(connect_string, connection_timeout_ms=20_000))
        return registries[-1]

    yield make
    for registry in registries:
        await registry.close()


Connect = Callable[[str], ZooKeeperRegistry]


class States:
    def __init__(self, session: ZooKeeperSession | RegistryClient) -> None:
        self.seen: list[SessionState] = []
        self.more = asyncio.Event()
        session.on_state(self.hear)

    def hear(self, state: SessionState) -> None:
        self.seen.append(state)
        self.more.set()

    async def reach(self, state: SessionState) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while state not in self.seen:
                self.more.clear()
                await self.more.wait()


async def test_a_restart_shorter_than_the_session_is_waited_out(
    one_node: ZooKeeperServers, connect: Connect
) -> None:
    registry = connect(one_node.connect_string + "/deep/root")
    session = await registry.connect(30_000)
    _, made = await session.create("/mine", ephemeral=True)
    await session.create("/plain", b"0")
    states = States(session)
    one_node.kill(1)
    await states.reach(SessionState.SUSPENDED)
    read_call = asyncio.ensure_future(session.get("/plain"))
    write_call = asyncio.ensure_future(session.set("/plain", b"1"))
    create_call = asyncio.ensure_future(session.create("/later"))
    list_call = asyncio.ensure_future(session.children("/"))
    await asyncio.to_thread(one_node.restart, 1)
    async with asyncio.timeout(DEADLINE_S):
        read, written, created, names = await asyncio.gather(
            read_call, write_call, create_call, list_call
        )
    assert read[0] == b"0"
    assert written.version == 1
    assert created[0] == "/later"
    assert names == ["later", "mine", "plain"]
    assert states.seen == [SessionState.SUSPENDED, SessionState.CONNECTED]
    stat = await session.exists("/mine")
    assert stat is not None
    assert (stat.ephemeral_owner, stat.czxid) == (session.id, made.czxid)


async def test_watches_outlive_a_restart_and_tell_what_was_missed(
    three_nodes: ZooKeeperServers, connect: Connect
) -> None:
    """The watching session knows one server alone; while that is away, others change things."""
    watching = await connect(f"127.0.0.1:{three_nodes.ports[0]}").connect(60_000)
    writing = await connect(
        f"127.0.0.1:{three_nodes.ports[1]},127.0.0.1:{three_nodes.ports[2]}"
    ).connect(60_000)
    for path in ("/same", "/changed", "/deleted", "/again", "/parent", "/parent/a", "/quiet"):
        await watching.create(path, b"0")
    paths = ["/same", "/changed", "/deleted", "/again", "/missing", "/absent"]
    data = {path: Events() for path in paths}
    for path, events in data.items():
        await watching.exists(path, events)
    children = {path: Events() for path in ("/parent", "/quiet", "/deleted")}
    for path, events in children.items():
        await watching.children(path, events)
    states = States(watching)
    await asyncio.to_thread(three_nodes.kill, 1)
    await states.reach(SessionState.SUSPENDED)

    async with asyncio.timeout(DEADLINE_S):
        await writing.set("/changed", b"1")
        await writing.delete("/deleted")
        await writing.delete("/again")
        await writing.create("/again")
        await writing.create("/missing")
        await writing.create("/parent/b")
    await asyncio.to_thread(three_nodes.restart, 1)
    await states.reach(SessionState.CONNECTED)
    async with asyncio.timeout(DEADLINE_S):
        assert (await watching.get("/changed"))[0] == b"1"
    # Before the answer, all that was missed had been told.
    seen = {path: [event.kind for event in events.seen] for path, events in data.items()}
    assert seen == {
        "/same": [],
        "/changed": [Kind.CHANGED],
        "/deleted": [Kind.DELETED],
        "/again": [Kind.CHANGED],
        "/missing": [Kind.CREATED],
        "/absent": [],
    }
    assert children["/parent"].seen == [(Kind.CHILDREN, "/parent")]
    assert children["/deleted"].seen == [(Kind.DELETED, "/deleted")]
    assert children["/quiet"].seen == []
    # Those that had nothing to tell are armed as before.
    await writing.set("/same", b"1")
    await writing.create("/absent")
    await writing.create("/quiet/child")
    await data["/same"].arrive((Kind.CHANGED, "/same"))
    await data["/absent"].arrive((Kind.CREATED, "/absent"))
    await children["/quiet"].arrive((Kind.CHILDREN, "/quiet"))


async def test_a_restart_longer_than_the_session_ends_it(
    one_node: ZooKeeperServers, connect: Connect
) -> None:
    """ZooKeeper counts the session's time anew when it starts, so the client is the one that must be late."""
    registry = connect(one_node.connect_string)
    session = await registry.connect(2000)
    await session.create("/mine", ephemeral=True)
    states = States(session)
    one_node.kill(1)
    await states.reach(SessionState.SUSPENDED)
    waiting = asyncio.ensure_future(session.get("/mine"))
    session.handler.connect_timeout_s = 0  # no attempt of its own succeeds
    await asyncio.to_thread(one_node.restart, 1)
    other = await registry.connect(20_000)

    async def is_gone() -> bool:
        return await other.exists("/mine") is None

    async with asyncio.timeout(DEADLINE_S):
        await eventually(is_gone)
    session.handler.connect_timeout_s = 2
    await states.reach(SessionState.EXPIRED)
    with pytest.raises(RegistrySessionExpired):
        await waiting
    with pytest.raises(RegistrySessionExpired):
        await session.exists("/")
    assert not session.kazoo.connected
    assert registry.sessions == [other]


async def test_a_session_closed_by_the_server_is_not_replaced_behind_our_back(
    one_node: ZooKeeperServers, connect: Connect
) -> None:
    """Kazoo would go on to the next host with a new session; the same host serves for this."""
    session = await connect(f"{one_node.connect_string},{one_node.connect_string}").connect(20_000)
    states = States(session)
    of_kazoo: list[str] = []
    session.kazoo.add_listener(of_kazoo.append)
    await asyncio.to_thread(zookeeper.expire, session)
    await states.reach(SessionState.EXPIRED)
    await session.close()
    assert session.state is SessionState.EXPIRED
    assert "CONNECTED" not in of_kazoo[of_kazoo.index("LOST") :]
    assert states.seen[-1] is SessionState.EXPIRED


async def test_a_server_that_stands_still_is_noticed(
    one_node: ZooKeeperServers, connect: Connect
) -> None:
    session = await connect(one_node.connect_string).connect(6000)
    await session.create("/a", b"0")
    states = States(session)
    one_node.pause(1)
    call = asyncio.ensure_future(session.get("/a"))
    await states.reach(SessionState.SUSPENDED)
    one_node.resume(1)
    async with asyncio.timeout(DEADLINE_S):
        try:
            assert (await call)[0] == b"0"
        except RegistrySessionExpired:  # it stood still for too long: then the session must say so
            await states.reach(SessionState.EXPIRED)


async def test_closing_does_not_wait_for_a_server_that_is_gone_or_stands_still(
    one_node: ZooKeeperServers, connect: Connect
) -> None:
    registry = connect(one_node.connect_string)
    told = await registry.connect(30_000)
    silent = await registry.connect(30_000)
    one_node.pause(1)
    async with asyncio.timeout(8):
        await silent.close()
    states = States(told)
    one_node.kill(1)
    await states.reach(SessionState.SUSPENDED)
    waiting = asyncio.ensure_future(told.get("/"))
    async with asyncio.timeout(8):
        await told.close()
    with pytest.raises(RegistrySessionExpired):
        await waiting


def test_the_guard_of_a_node_ends_after_its_node(one_node: ZooKeeperServers) -> None:
    node = psutil.Process(one_node.running[1].pid)
    assert node.name() == "java"
    guards = node.children(recursive=True)
    assert guards
    node.kill()
    assert one_node.running[1].child.wait(DEADLINE_S) == -signal.SIGKILL
    assert one_node.collect_ended() == {1: -signal.SIGKILL}
    assert one_node.collect_ended() == {}
    _, alive = psutil.wait_procs(guards, timeout=10)
    assert not alive


async def test_one_node_of_three_may_be_killed(
    three_nodes: ZooKeeperServers, connect: Connect
) -> None:
    registry = connect(three_nodes.connect_string)
    sessions = [await registry.connect(20_000) for _ in range(4)]
    await sessions[0].create("/counter", b"0")
    for index, session in enumerate(sessions):
        await session.create(f"/mine-{index}", ephemeral=True)
    for node in three_nodes.nodes:
        await asyncio.to_thread(three_nodes.kill, node)
        async with asyncio.timeout(DEADLINE_S):
            stats = [await session.set("/counter", b"x") for session in sessions]
        assert stats == sorted(stats, key=lambda stat: stat.version)
        await asyncio.to_thread(three_nodes.restart, node)
    # A write may have been sent twice, when its answer was lost; none was lost itself.
    assert (await sessions[0].set("/counter", b"end")).version >= 13
    for index, session in enumerate(sessions):
        assert session.state is SessionState.CONNECTED
        stat = await session.exists(f"/mine-{index}")
        assert stat is not None
        assert stat.ephemeral_owner == session.id


async def test_a_client_comes_back_with_a_new_session(chroot: str, connect: Connect) -> None:
    client = RegistryClient(connect(chroot), 20_000)
    await client.open()
    before = client.id
    is_new = asyncio.Event()
    client.on_new_session = is_new.set
    assert isinstance(client.session, ZooKeeperSession)
    await asyncio.to_thread(zookeeper.expire, client.session)
    async with asyncio.timeout(DEADLINE_S):
        await is_new.wait()
    assert client.session_ids == {before, client.id}
    _, stat = await client.create("/mine", ephemeral=True)
    assert stat.ephemeral_owner == client.id
    await client.close()


async def test_an_ensemble_that_cannot_be_reached_is_one_line_within_the_timeout() -> None:
    registry = ZooKeeperRegistry("127.0.0.1:1,127.0.0.1:2/root", connection_timeout_ms=200)
    async with asyncio.timeout(10):
        with pytest.raises(RegistryUnreachable, match="no ZooKeeper answers at") as failed:
            await registry.connect(6000)
    assert "\n" not in str(failed.value)
    assert registry.sessions == []


async def test_what_is_too_large_for_zookeeper_is_refused_and_not_sent_for_ever(
    chroot: str, connect: Connect
) -> None:
    session = await connect(chroot).connect(6000)
    with pytest.raises(RegistryError, match=r"jute\.maxbuffer"):
        await session.create("/big", bytes(1 << 20))
    assert await session.exists("/big") is None


async def test_an_event_is_heard_though_it_comes_before_whoever_asked_goes_on(
    chroot: str, connect: Connect
) -> None:
    """On a busy machine the thread that has sent a read may stand still while the answer comes, and behind it already
    the event that the read waits for."""
    session = await connect(chroot).connect(20_000)
    await session.create("/a")
    other = KazooClient(hosts=chroot)
    other.start()
    ask = session.kazoo.get_children_async

    def ask_and_stand_still(path: str, watch: Callable[[object], None]) -> object:
        has_come = threading.Event()

        def hear(event: object) -> None:
            watch(event)
            has_come.set()

        answer = ask(path, hear)
        assert answer.wait(DEADLINE_S)
        other.create("/a/b")
        assert has_come.wait(DEADLINE_S)
        return answer

    session.kazoo.get_children_async = ask_and_stand_still
    events = Events()
    assert await session.children("/a", events) == []
    await events.arrive((Kind.CHILDREN, "/a"))
    other.stop()
    other.close()


async def test_hundreds_of_calls_at_once_are_answered_in_order(
    chroot: str, connect: Connect
) -> None:
    session = await connect(chroot).connect(6000)
    await session.create("/a")
    stats = await asyncio.gather(*(session.set("/a", b"") for _ in range(1000)))
    assert [stat.version for stat in stats] == list(range(1, 1001))
