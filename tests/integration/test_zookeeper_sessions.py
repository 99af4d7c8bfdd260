"""Registry sessions while servers are down: shorter or longer than the session, one of three, or paused."""

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
from tests.processes import assert_ended

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


class StateRecorder:
    def __init__(self, session: ZooKeeperSession | RegistryClient) -> None:
        self.seen: list[SessionState] = []
        self.more = asyncio.Event()
        session.on_state(self.record)

    def record(self, state: SessionState) -> None:
        self.seen.append(state)
        self.more.set()

    async def wait_for(self, state: SessionState) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while state not in self.seen:
                self.more.clear()
                await self.more.wait()


async def test_session_survives_short_server_restart(
    one_node: ZooKeeperServers, connect: Connect
) -> None:
    registry = connect(one_node.connect_string + "/deep/root")
    session = await registry.connect(30_000)
    _, made = await session.create("/mine", ephemeral=True)
    await session.create("/plain", b"0")
    states = StateRecorder(session)
    one_node.kill(1)
    await states.wait_for(SessionState.SUSPENDED)
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


async def test_watches_report_events_missed_during_restart(
    three_nodes: ZooKeeperServers, connect: Connect
) -> None:
    """The watching session knows only one server. While it is down, other sessions change nodes."""
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
    states = StateRecorder(watching)
    await asyncio.to_thread(three_nodes.kill, 1)
    await states.wait_for(SessionState.SUSPENDED)

    async with asyncio.timeout(DEADLINE_S):
        await writing.set("/changed", b"1")
        await writing.delete("/deleted")
        await writing.delete("/again")
        await writing.create("/again")
        await writing.create("/missing")
        await writing.create("/parent/b")
    await asyncio.to_thread(three_nodes.restart, 1)
    await states.wait_for(SessionState.CONNECTED)
    async with asyncio.timeout(DEADLINE_S):
        assert (await watching.get("/changed"))[0] == b"1"
    # All missed events were delivered before the response.
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
    # Watches without an event are still armed.
    await writing.set("/same", b"1")
    await writing.create("/absent")
    await writing.create("/quiet/child")
    await data["/same"].arrive((Kind.CHANGED, "/same"))
    await data["/absent"].arrive((Kind.CREATED, "/absent"))
    await children["/quiet"].arrive((Kind.CHILDREN, "/quiet"))


async def test_long_server_restart_expires_session(
    one_node: ZooKeeperServers, connect: Connect
) -> None:
    """A restarted ZooKeeper restarts the session timeout, so the client must be the late one."""
    registry = connect(one_node.connect_string)
    session = await registry.connect(2000)
    await session.create("/mine", ephemeral=True)
    states = StateRecorder(session)
    one_node.kill(1)
    await states.wait_for(SessionState.SUSPENDED)
    waiting = asyncio.ensure_future(session.get("/mine"))
    session.handler.connect_timeout_s = 0  # its own reconnects fail
    await asyncio.to_thread(one_node.restart, 1)
    other = await registry.connect(20_000)

    async def is_gone() -> bool:
        return await other.exists("/mine") is None

    async with asyncio.timeout(DEADLINE_S):
        await eventually(is_gone)
    session.handler.connect_timeout_s = 2
    await states.wait_for(SessionState.EXPIRED)
    with pytest.raises(RegistrySessionExpired):
        await waiting
    with pytest.raises(RegistrySessionExpired):
        await session.exists("/")
    assert not session.kazoo.connected
    assert registry.sessions == [other]


async def test_expired_session_is_not_replaced_silently(
    one_node: ZooKeeperServers, connect: Connect
) -> None:
    """Kazoo would connect to the next host with a new session. The same host, given twice, is enough for the test."""
    session = await connect(f"{one_node.connect_string},{one_node.connect_string}").connect(20_000)
    states = StateRecorder(session)
    kazoo_states: list[str] = []
    session.kazoo.add_listener(kazoo_states.append)
    await asyncio.to_thread(zookeeper.expire, session)
    await states.wait_for(SessionState.EXPIRED)
    await session.close()
    assert session.state is SessionState.EXPIRED
    assert "CONNECTED" not in kazoo_states[kazoo_states.index("LOST") :]
    assert states.seen[-1] is SessionState.EXPIRED


async def test_paused_server_suspends_session(one_node: ZooKeeperServers, connect: Connect) -> None:
    session = await connect(one_node.connect_string).connect(6000)
    await session.create("/a", b"0")
    states = StateRecorder(session)
    one_node.pause(1)
    call = asyncio.ensure_future(session.get("/a"))
    await states.wait_for(SessionState.SUSPENDED)
    one_node.resume(1)
    async with asyncio.timeout(DEADLINE_S):
        try:
            assert (await call)[0] == b"0"
        except RegistrySessionExpired:  # paused for too long: the session must report that
            await states.wait_for(SessionState.EXPIRED)


async def test_close_does_not_wait_for_unreachable_server(
    one_node: ZooKeeperServers, connect: Connect
) -> None:
    registry = connect(one_node.connect_string)
    connected = await registry.connect(30_000)
    silent = await registry.connect(30_000)
    one_node.pause(1)
    async with asyncio.timeout(8):
        await silent.close()
    states = StateRecorder(connected)
    one_node.kill(1)
    await states.wait_for(SessionState.SUSPENDED)
    waiting = asyncio.ensure_future(connected.get("/"))
    async with asyncio.timeout(8):
        await connected.close()
    with pytest.raises(RegistrySessionExpired):
        await waiting


def test_guard_process_ends_with_its_node(one_node: ZooKeeperServers) -> None:
    node = psutil.Process(one_node.running[1].pid)
    assert node.name() == "java"
    guards = node.children(recursive=True)
    assert guards
    node.kill()
    assert one_node.running[1].child.wait(DEADLINE_S) == -signal.SIGKILL
    assert one_node.collect_ended() == {1: -signal.SIGKILL}
    assert one_node.collect_ended() == {}
    assert_ended(guards, 10)


async def test_sessions_survive_kill_of_one_node_of_three(
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
    # A write may have been sent twice if its response was lost, but no write was lost.
    assert (await sessions[0].set("/counter", b"end")).version >= 13
    for index, session in enumerate(sessions):
        assert session.state is SessionState.CONNECTED
        stat = await session.exists(f"/mine-{index}")
        assert stat is not None
        assert stat.ephemeral_owner == session.id


async def test_client_opens_new_session_after_expiration(chroot: str, connect: Connect) -> None:
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


async def test_unreachable_ensemble_fails_with_one_line_in_time() -> None:
    registry = ZooKeeperRegistry("127.0.0.1:1,127.0.0.1:2/root", connection_timeout_ms=200)
    async with asyncio.timeout(10):
        with pytest.raises(RegistryUnreachable, match="no ZooKeeper answers at") as failed:
            await registry.connect(6000)
    assert "\n" not in str(failed.value)
    assert registry.sessions == []


async def test_data_above_jute_maxbuffer_is_rejected(chroot: str, connect: Connect) -> None:
    session = await connect(chroot).connect(6000)
    with pytest.raises(RegistryError, match=r"jute\.maxbuffer"):
        await session.create("/big", bytes(1 << 20))
    assert await session.exists("/big") is None


async def test_watch_event_before_response_handling_is_delivered(
    chroot: str, connect: Connect
) -> None:
    """On a busy machine, the thread that sent a read may stall until the response and the event have arrived."""
    session = await connect(chroot).connect(20_000)
    await session.create("/a")
    other = KazooClient(hosts=chroot)
    other.start()
    ask = session.kazoo.get_children_async

    def call_and_stall(path: str, watch: Callable[[object], None]) -> object:
        has_come = threading.Event()

        def record(event: object) -> None:
            watch(event)
            has_come.set()

        answer = ask(path, record)
        assert answer.wait(DEADLINE_S)
        other.create("/a/b")
        assert has_come.wait(DEADLINE_S)
        return answer

    session.kazoo.get_children_async = call_and_stall
    events = Events()
    assert await session.children("/a", events) == []
    await events.arrive((Kind.CHILDREN, "/a"))
    other.stop()
    other.close()


async def test_concurrent_calls_are_answered_in_order(chroot: str, connect: Connect) -> None:
    session = await connect(chroot).connect(6000)
    await session.create("/a")
    stats = await asyncio.gather(*(session.set("/a", b"") for _ in range(1000)))
    assert [stat.version for stat in stats] == list(range(1, 1001))
