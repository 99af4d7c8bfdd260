import asyncio
import resource
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import (
    DirectoryLocked,
    OutOfSpace,
    RegistryError,
    RegistrySessionExpired,
    StorageError,
)
from barnabas.world.clock import SystemClock
from barnabas.world.directory_lock import is_locked
from barnabas.world.ports import Create, RegistrySession, SessionState, WatchEvent, WatchKind
from barnabas.world.registry.embedded import EmbeddedRegistry
from barnabas.world.registry.reader import Reader
from barnabas.world.registry.store import DATABASE, Store
from barnabas.world.registry.tree import Tree
from support import python_process

DEADLINE_S = 60


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "data" / "registry")


def open_registry(directory: str | None) -> EmbeddedRegistry:
    return EmbeddedRegistry(directory, SystemClock())


async def create_nodes(directory: str, *paths: str) -> None:
    registry = open_registry(directory)
    session = await registry.connect(6000)
    for path in paths:
        await session.create(path, path.encode())
    await registry.close()


# ---- persistence


async def test_reopened_registry_is_unchanged(directory: str) -> None:
    registry = open_registry(directory)
    session = await registry.connect(6000)
    await session.create("/a", b"\x00\xff")
    await session.create("/a/主题")
    await session.create("/a/n_", sequential=True)
    await session.delete("/a/n_0000000001")
    await session.set("/a", b"")
    before = [await session.get(path) for path in ("/", "/a", "/a/主题")]
    await registry.close()

    registry = open_registry(directory)
    session = await registry.connect(6000)
    assert [await session.get(path) for path in ("/", "/a", "/a/主题")] == before
    assert (await session.create("/a/n_", sequential=True))[0] == "/a/n_0000000002"
    _, stat = await session.get("/a/n_0000000002")
    assert stat.czxid > max(earlier.pzxid for _, earlier in before)
    await registry.close()


def test_database_is_private_in_a_directory_that_others_can_read(tmp_path: Path) -> None:
    Store(str(tmp_path / "new" / "registry")).close()
    assert mode(tmp_path / "new" / "registry") == 0o700
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(0o755)
    for _ in range(2):
        store = Store(str(directory))
        files = list(directory.glob("registry.db*"))
        assert {each.name for each in files} >= {"registry.db", "registry.db-wal"}
        assert {mode(each) for each in files} == {0o600}
        store.close()
        # As an earlier version has left it.
        (directory / "registry.db").chmod(0o644)
    assert mode(directory) == 0o755


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_ephemeral_nodes_of_dead_process_are_deleted_by_transaction(directory: str) -> None:
    await create_nodes(directory, "/live")
    store = Store(directory)
    tree = store.load()
    store.commit(
        [
            tree.apply([Create(path=f"/live/{n}", ephemeral=True)], session=77, now_ms=1)
            for n in "ab"
        ]
    )
    _, died_at = tree.node("/live/b"), tree.zxid
    store.close()

    registry = open_registry(directory)
    session = await registry.connect(6000)
    assert await session.children("/live") == []
    _, stat = await session.get("/live")
    assert (stat.cversion, stat.num_children) == (4, 0)
    assert stat.pzxid > died_at
    reader = Reader(directory)
    changes = [(change.kind, change.path) for change in reader.changes_after(0)]
    reader.close()
    assert changes[-2:] == [("deleted", "/live/a"), ("deleted", "/live/b")]
    await registry.close()


async def test_session_ids_are_not_reused(directory: str) -> None:
    seen = []
    for _ in range(3):
        registry = open_registry(directory)
        session = await registry.connect(6000)
        await session.create("/e", ephemeral=True)
        seen.append(session.id)
        await registry.close()
    assert len(set(seen)) == 3


async def test_change_history_is_limited(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.world.registry.store.CHANGES_KEPT", 3)
    await create_nodes(directory, "/a", "/b", "/c", "/d", "/e")
    reader = Reader(directory)
    assert [change.path for change in reader.changes_after(0)] == ["/c", "/d", "/e"]
    reader.close()


def test_registry_in_memory_loads_no_sqlite_and_starts_no_thread() -> None:
    code = """if True:
        import asyncio, sys, threading
        from barnabas.world.clock import SystemClock
        from barnabas.world.registry.embedded import EmbeddedRegistry
        async def main():
            registry = EmbeddedRegistry(None, SystemClock())
            session = await registry.connect(6000)
            await session.create("/a")
            print("sqlite3" in sys.modules, threading.active_count())
            await registry.close()
        asyncio.run(main())
    """
    assert python_process.run(code).stdout.split() == ["False", "1"]


# ---- one process at a time

HOLD_REGISTRY = """if True:
    import sys
    from barnabas.world.registry.store import Store
    store = Store(sys.argv[1])
    print("open", flush=True)
    sys.stdin.readline()
"""


async def test_second_process_gets_pid_of_holder_and_advice(directory: str) -> None:
    holder = python_process.start(HOLD_REGISTRY, directory)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        assert is_locked(directory)
        registry = open_registry(directory)
        with pytest.raises(DirectoryLocked) as locked:
            await registry.connect(6000)
        assert str(locked.value) == (
            f"{directory}: another process (pid {holder.pid}) has this registry open; "
            "stop it first, or use another directory (--data)"
        )
        holder.kill()
    assert not is_locked(directory)
    session = await registry.connect(6000)
    await session.create("/a")
    await registry.close()


async def test_is_held_does_not_block_others(directory: str) -> None:
    stop = threading.Event()
    await create_nodes(directory, "/a")

    def query_lock() -> None:
        while not stop.is_set():
            is_locked(directory)

    asking = threading.Thread(target=query_lock)
    asking.start()
    try:
        for _ in range(10):
            await create_nodes(directory)
    finally:
        stop.set()
        asking.join()


# ---- invalid files


def write_garbage(path: Path) -> None:
    path.write_bytes(b"this is not a database, whatever its name says" * 100)


def corrupt(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)


def replace_by_foreign_database(path: Path) -> None:
    path.unlink()
    run_sql(path, "CREATE TABLE songs (title TEXT)")


def set_newer_version(path: Path) -> None:
    run_sql(path, "PRAGMA user_version = 99")


def delete_parent(path: Path) -> None:
    run_sql(path, "DELETE FROM znode WHERE path = '/a'")


def drop_table(path: Path) -> None:
    run_sql(path, "DROP TABLE znode")


def run_sql(path: Path, statement: str) -> None:
    database = sqlite3.connect(path)
    database.execute(statement)
    database.commit()
    database.close()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            write_garbage,
            "is corrupt (file is not a database); restore it from a backup, or move it away",
        ),
        (
            corrupt,
            "is corrupt (database disk image is malformed); restore it from a backup, or move",
        ),
        (
            replace_by_foreign_database,
            "is a SQLite database of another program; choose another directory",
        ),
        (
            set_newer_version,
            "has schema version 99, this Barnabas reads 1: use the version of Barnabas that",
        ),
        (delete_parent, "is corrupt (/a is missing); restore it from a backup, or move it away"),
        (
            drop_table,
            "is corrupt (no such table: znode); restore it from a backup, or move it away",
        ),
    ],
)
async def test_invalid_file_is_rejected_in_one_line(
    directory: str, damage: Callable[[Path], None], message: str
) -> None:
    await create_nodes(directory, "/a", "/a/b", *(f"/a/b/{number:0200}" for number in range(50)))
    path = Path(directory, DATABASE)
    damage(path)
    for _ in range(2):  # the lock is released each time
        with pytest.raises(StorageError) as refused:
            await open_registry(directory).connect(6000)
        assert str(refused.value).startswith(f"{path}: {message}")
        assert "\n" not in str(refused.value)


async def test_empty_file_is_an_interrupted_start(directory: str) -> None:
    Path(directory).mkdir(parents=True)
    Path(directory, DATABASE).touch()
    await create_nodes(directory, "/a")


async def test_uncreatable_directory_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be created"):
        await open_registry(str(tmp_path / "file" / "registry")).connect(6000)


def test_full_volume_is_reported_and_data_is_kept(directory: str) -> None:
    store = Store(directory)
    tree = Tree()
    store.commit([tree.apply([Create(path="/a")], session=0, now_ms=0)])
    store.database.execute("PRAGMA max_page_count = 20")
    with pytest.raises(OutOfSpace, match="no space left on the volume"):
        store.commit([tree.apply([Create(path="/b", data=bytes(200_000))], session=0, now_ms=0)])
    assert sorted(store.load().nodes) == ["/", "/a"]
    store.close()


async def test_failing_disk_ends_registry_and_keeps_acknowledged_writes(
    directory: str,
) -> None:
    registry = open_registry(directory)
    session = await registry.connect(6000)
    await session.create("/a")
    states: asyncio.Queue[SessionState] = asyncio.Queue()
    session.on_state(states.put_nowait)
    fired: list[WatchEvent] = []
    await session.children("/", fired.append)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        calls = [session.create(f"/b{number}", bytes(100_000)) for number in range(5)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    failed = [outcome for outcome in outcomes if isinstance(outcome, StorageError)]
    written = [outcome[0] for outcome in outcomes if isinstance(outcome, tuple)]
    assert failed
    assert len(failed) + len(written) == 5
    async with asyncio.timeout(DEADLINE_S):
        assert await states.get() is SessionState.EXPIRED
    for call in (session.get("/a"), session.create("/c"), registry.connect(6000)):
        with pytest.raises(StorageError):
            await call
    await registry.close()

    registry = open_registry(directory)
    session = await registry.connect(6000)
    kept = await session.children("/")
    # The last write on the disk may not have been acknowledged before the failure.
    assert kept == ["a", *(f"b{number}" for number in range(len(kept) - 1))]
    assert kept[1 : len(written) + 1] == [path[1:] for path in written]
    assert not fired or kept != ["a"], "a watch fired for a node that does not exist"
    assert len(fired) <= 1
    await registry.close()


# ---- sessions


async def test_abandoned_session_gets_no_events_and_expires_on_time() -> None:
    registry = open_registry(None)
    dead, alive = await registry.connect(1000), await registry.connect(6000)
    events: list[object] = []
    gone = asyncio.Event()
    await dead.create("/e", ephemeral=True)
    await dead.exists("/e", events.append)
    dead.on_state(events.append)
    await alive.exists("/e", lambda event: gone.set())
    loop = asyncio.get_running_loop()
    began = loop.time()
    registry.abandon(dead)
    registry.abandon(dead)
    assert state_of(dead) is SessionState.SUSPENDED
    await alive.set("/e", b"touched")
    gone.clear()
    await alive.exists("/e", lambda event: gone.set())
    with pytest.raises(RegistrySessionExpired):
        await dead.get("/e")
    async with asyncio.timeout(DEADLINE_S):
        await gone.wait()
    assert loop.time() - began >= 0.9
    assert state_of(dead) is SessionState.EXPIRED
    assert await alive.exists("/e") is None
    assert events == []
    await registry.close()


async def test_silent_client_keeps_session_if_revived_in_time() -> None:
    registry = open_registry(None)
    silent, other = await registry.connect(60_000), await registry.connect(60_000)
    events: list[WatchEvent] = []
    await silent.create("/e", ephemeral=True)
    await silent.exists("/e", events.append)
    registry.count_down(silent)
    countdown = silent.countdown
    assert countdown is not None
    registry.count_down(silent)
    assert silent.countdown is countdown, "a running countdown is not restarted"
    await other.set("/e", b"touched")
    registry.revive(silent)
    assert countdown.cancelled()
    async with asyncio.timeout(DEADLINE_S):
        while not events:
            await asyncio.sleep(0.005)
    assert state_of(silent) is SessionState.CONNECTED
    assert [event.kind for event in events] == [WatchKind.CHANGED]
    await registry.close()


async def test_client_silent_for_too_long_learns_of_expiry() -> None:
    registry = open_registry(None)
    silent, other = await registry.connect(50), await registry.connect(6000)
    gone, states = asyncio.Event(), asyncio.Event()
    await silent.create("/e", ephemeral=True)
    silent.on_state(lambda state: states.set())
    await other.exists("/e", lambda event: gone.set())
    registry.count_down(silent)
    async with asyncio.timeout(DEADLINE_S):
        await gone.wait()
        await states.wait()
    registry.revive(silent)
    assert state_of(silent) is SessionState.EXPIRED
    with pytest.raises(RegistrySessionExpired):
        await silent.get("/")
    await registry.close()


async def test_abandoned_session_cannot_be_closed_early() -> None:
    registry = open_registry(None)
    dead, alive = await registry.connect(60_000), await registry.connect(6000)
    await dead.create("/e", ephemeral=True)
    registry.abandon(dead)
    await dead.close()
    assert await alive.exists("/e") is not None
    registry.time_out(dead)
    assert await alive.exists("/e") is None
    await registry.close()


def state_of(session: RegistrySession) -> SessionState:
    return session.state


async def test_closing_registry_expires_its_sessions(directory: str) -> None:
    for place in (None, directory):
        registry = open_registry(place)
        session = await registry.connect(6000)
        abandoned = await registry.connect(60_000)
        registry.abandon(abandoned)
        states: list[SessionState] = []
        session.on_state(states.append)
        await registry.close()
        assert states == [SessionState.EXPIRED]
        assert abandoned.state is SessionState.EXPIRED
        with pytest.raises(RegistrySessionExpired):
            await session.get("/")
        with pytest.raises(RegistryError, match="closed"):
            await registry.connect(6000)
        await registry.close()


async def test_response_arrives_after_write_is_on_disk(directory: str) -> None:
    registry = open_registry(directory)
    session = await registry.connect(6000)
    reader: Reader | None = None
    for number in range(50):
        await session.create(f"/n{number}")
        reader = reader or Reader(directory)
        assert f"/n{number}" in reader.tree().nodes
    assert reader is not None
    reader.close()
    await registry.close()


async def test_watches_and_reads_show_only_data_on_disk(directory: str) -> None:
    registry = open_registry(directory)
    writing, reading = await registry.connect(6000), await registry.connect(6000)
    await writing.create("/a", b"0")
    reader = Reader(directory)
    seen: list[bool] = []

    def on_disk() -> int:
        return int(reader.tree().node("/a").data)

    for number in range(1, 30):
        await reading.get("/a", lambda event, number=number: seen.append(on_disk() >= number))  # type: ignore[misc]
        write = asyncio.ensure_future(writing.set("/a", str(number).encode()))
        await asyncio.sleep(0)
        data, _ = await reading.get("/a")
        assert on_disk() >= int(data) == number
        await write
    assert seen == [True] * 29
    reader.close()
    await registry.close()


async def test_cancelled_caller_does_not_affect_others(directory: str) -> None:
    registry = open_registry(directory)
    session = await registry.connect(6000)
    calls = [asyncio.ensure_future(session.create(f"/n{number}")) for number in range(10)]
    await asyncio.sleep(0)
    calls[3].cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes].count(asyncio.CancelledError) == 1
    assert len(await session.children("/")) == 10
    await registry.close()


@pytest.mark.parametrize("place", ["memory", "disk"])
async def test_sessions_on_several_loops_share_a_registry(place: str, directory: str) -> None:
    registry = open_registry(None if place == "memory" else directory)
    here = await registry.connect(6000)
    await here.create("/a", b"0")
    fired_on: list[int] = []

    async def count(session_of: EmbeddedRegistry) -> None:
        session = await session_of.connect(6000)
        events = asyncio.Event()

        def record_event(event: WatchEvent) -> None:
            assert event == WatchEvent(WatchKind.CREATED, "/go")
            fired_on.append(threading.get_ident())
            events.set()

        await session.exists("/go", record_event)
        await session.create("/ready_", sequential=True)
        async with asyncio.timeout(DEADLINE_S):
            await events.wait()
        for _ in range(50):
            await session.set("/a", b"")
        await session.close()

    threads = [in_thread(count(registry)) for _ in range(3)]
    async with asyncio.timeout(DEADLINE_S):
        while len(await here.children("/")) < 4:
            await asyncio.sleep(0.005)
    await here.create("/go")
    await asyncio.gather(*(asyncio.to_thread(thread.join, DEADLINE_S) for thread in threads))
    assert sorted(fired_on) == sorted(thread.ident or 0 for thread in threads)
    _, stat = await here.get("/a")
    assert stat.version == 150
    await registry.close()


def in_thread(work: Coroutine[Any, Any, None]) -> threading.Thread:
    thread = threading.Thread(target=asyncio.run, args=(work,))
    thread.start()
    return thread
