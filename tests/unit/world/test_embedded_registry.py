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


def opened(directory: str | None) -> EmbeddedRegistry:
    return EmbeddedRegistry(directory, SystemClock())


async def put(directory: str, *paths: str) -> None:
    registry = opened(directory)
    session = await registry.connect(6000)
    for path in paths:
        await session.create(path, path.encode())
    await registry.close()


# ---- what is kept ------------------------------------------------------------------------------------------


async def test_everything_is_as_it_was_when_opened_again(directory: str) -> None:
    registry = opened(directory)
    session = await registry.connect(6000)
    await session.create("/a", b"\x00\xff")
    await session.create("/a/主题")
    await session.create("/a/n_", sequential=True)
    await session.delete("/a/n_0000000001")
    await session.set("/a", b"")
    before = [await session.get(path) for path in ("/", "/a", "/a/主题")]
    await registry.close()

    registry = opened(directory)
    session = await registry.connect(6000)
    assert [await session.get(path) for path in ("/", "/a", "/a/主题")] == before
    assert (await session.create("/a/n_", sequential=True))[0] == "/a/n_0000000002"
    _, stat = await session.get("/a/n_0000000002")
    assert stat.czxid > max(earlier.pzxid for _, earlier in before)
    await registry.close()


async def test_ephemeral_nodes_of_a_dead_process_are_gone_by_a_transaction(directory: str) -> None:
    await put(directory, "/live")
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

    registry = opened(directory)
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


async def test_session_ids_do_not_come_back(directory: str) -> None:
    seen = []
    for _ in range(3):
        registry = opened(directory)
        session = await registry.connect(6000)
        await session.create("/e", ephemeral=True)
        seen.append(session.id)
        await registry.close()
    assert len(set(seen)) == 3


async def test_the_store_keeps_a_limited_history(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.world.registry.store.CHANGES_KEPT", 3)
    await put(directory, "/a", "/b", "/c", "/d", "/e")
    reader = Reader(directory)
    assert [change.path for change in reader.changes_after(0)] == ["/c", "/d", "/e"]
    reader.close()


def test_a_registry_in_memory_loads_no_sqlite_and_starts_no_thread() -> None:
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


# ---- one process only ----------------------------------------------------------------------------------------

HOLD = """if True:
    import sys
    from barnabas.world.registry.store import Store
    store = Store(sys.argv[1])
    print("open", flush=True)
    sys.stdin.readline()
"""


async def test_a_second_process_is_told_who_has_it_and_what_to_do(directory: str) -> None:
    holder = python_process.start(HOLD, directory)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        assert is_locked(directory)
        registry = opened(directory)
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


async def test_asking_whether_the_lock_is_held_is_in_nobodys_way(directory: str) -> None:
    stop = threading.Event()
    await put(directory, "/a")

    def ask() -> None:
        while not stop.is_set():
            is_locked(directory)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(10):
            await put(directory)
    finally:
        stop.set()
        asking.join()


# ---- files that are not right -------------------------------------------------------------------------------


def garbage(path: Path) -> None:
    path.write_bytes(b"this is not a database, whatever its name says" * 100)


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)


def foreign(path: Path) -> None:
    path.unlink()
    run_sql(path, "CREATE TABLE songs (title TEXT)")


def newer(path: Path) -> None:
    run_sql(path, "PRAGMA user_version = 99")


def beheaded(path: Path) -> None:
    run_sql(path, "DELETE FROM znode WHERE path = '/a'")


def stripped(path: Path) -> None:
    run_sql(path, "DROP TABLE znode")


def run_sql(path: Path, statement: str) -> None:
    database = sqlite3.connect(path)
    database.execute(statement)
    database.commit()
    database.close()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (garbage, "is corrupt (file is not a database); restore it from a backup, or move it away"),
        (
            damaged,
            "is corrupt (database disk image is malformed); restore it from a backup, or move",
        ),
        (foreign, "is a SQLite database of another program; choose another directory"),
        (newer, "has schema version 99, this Barnabas reads 1: use the version of Barnabas that"),
        (beheaded, "is corrupt (/a is missing); restore it from a backup, or move it away"),
        (stripped, "is corrupt (no such table: znode); restore it from a backup, or move it away"),
    ],
)
async def test_a_file_that_is_not_right_is_refused_in_one_line(
    directory: str, spoil: Callable[[Path], None], says: str
) -> None:
    await put(directory, "/a", "/a/b", *(f"/a/b/{number:0200}" for number in range(50)))
    path = Path(directory, DATABASE)
    spoil(path)
    for _ in range(2):  # the lock is let go each time
        with pytest.raises(StorageError) as refused:
            await opened(directory).connect(6000)
        assert str(refused.value).startswith(f"{path}: {says}")
        assert "\n" not in str(refused.value)


async def test_an_empty_file_is_a_start_cut_short(directory: str) -> None:
    Path(directory).mkdir(parents=True)
    Path(directory, DATABASE).touch()
    await put(directory, "/a")


async def test_a_directory_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be created"):
        await opened(str(tmp_path / "file" / "registry")).connect(6000)


def test_a_full_volume_is_told_and_what_was_there_stays(directory: str) -> None:
    store = Store(directory)
    tree = Tree()
    store.commit([tree.apply([Create(path="/a")], session=0, now_ms=0)])
    store.database.execute("PRAGMA max_page_count = 20")
    with pytest.raises(OutOfSpace, match="no space left on the volume"):
        store.commit([tree.apply([Create(path="/b", data=bytes(200_000))], session=0, now_ms=0)])
    assert sorted(store.load().nodes) == ["/", "/a"]
    store.close()


async def test_a_disk_that_refuses_ends_the_registry_and_keeps_what_was_acknowledged(
    directory: str,
) -> None:
    registry = opened(directory)
    session = await registry.connect(6000)
    await session.create("/a")
    told: asyncio.Queue[SessionState] = asyncio.Queue()
    session.on_state(told.put_nowait)
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
        assert await told.get() is SessionState.EXPIRED
    for call in (session.get("/a"), session.create("/c"), registry.connect(6000)):
        with pytest.raises(StorageError):
            await call
    await registry.close()

    registry = opened(directory)
    session = await registry.connect(6000)
    kept = await session.children("/")
    # What stood on the disk when it refused the next may not have been answered yet: nobody knows of it.
    assert kept == ["a", *(f"b{number}" for number in range(len(kept) - 1))]
    assert kept[1 : len(written) + 1] == [path[1:] for path in written]
    assert not fired or kept != ["a"], "told of what is not there"
    assert len(fired) <= 1
    await registry.close()


# ---- sessions ----------------------------------------------------------------------------------------------------


async def test_an_abandoned_session_hears_nothing_and_expires_in_its_time() -> None:
    registry = opened(None)
    dead, alive = await registry.connect(1000), await registry.connect(6000)
    heard: list[object] = []
    gone = asyncio.Event()
    await dead.create("/e", ephemeral=True)
    await dead.exists("/e", heard.append)
    dead.on_state(heard.append)
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
    assert heard == []
    await registry.close()


async def test_a_silent_client_keeps_its_session_if_it_is_heard_of_in_time() -> None:
    registry = opened(None)
    silent, other = await registry.connect(60_000), await registry.connect(60_000)
    heard: list[WatchEvent] = []
    await silent.create("/e", ephemeral=True)
    await silent.exists("/e", heard.append)
    registry.count_down(silent)
    countdown = silent.countdown
    assert countdown is not None
    registry.count_down(silent)
    assert silent.countdown is countdown, "one is enough"
    await other.set("/e", b"touched")
    registry.revive(silent)
    assert countdown.cancelled()
    async with asyncio.timeout(DEADLINE_S):
        while not heard:
            await asyncio.sleep(0.005)
    assert state_of(silent) is SessionState.CONNECTED
    assert [event.kind for event in heard] == [WatchKind.CHANGED]
    await registry.close()


async def test_a_client_that_is_silent_for_too_long_is_told_that_its_session_expired() -> None:
    registry = opened(None)
    silent, other = await registry.connect(50), await registry.connect(6000)
    gone, told = asyncio.Event(), asyncio.Event()
    await silent.create("/e", ephemeral=True)
    silent.on_state(lambda state: told.set())
    await other.exists("/e", lambda event: gone.set())
    registry.count_down(silent)
    async with asyncio.timeout(DEADLINE_S):
        await gone.wait()
        await told.wait()
    registry.revive(silent)
    assert state_of(silent) is SessionState.EXPIRED
    with pytest.raises(RegistrySessionExpired):
        await silent.get("/")
    await registry.close()


async def test_an_abandoned_session_cannot_be_closed_before_its_time() -> None:
    registry = opened(None)
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


async def test_closing_the_registry_ends_its_sessions(directory: str) -> None:
    for place in (None, directory):
        registry = opened(place)
        session = await registry.connect(6000)
        abandoned = await registry.connect(60_000)
        registry.abandon(abandoned)
        told: list[SessionState] = []
        session.on_state(told.append)
        await registry.close()
        assert told == [SessionState.EXPIRED]
        assert abandoned.state is SessionState.EXPIRED
        with pytest.raises(RegistrySessionExpired):
            await session.get("/")
        with pytest.raises(RegistryError, match="closed"):
            await registry.connect(6000)
        await registry.close()


async def test_an_answer_is_on_the_disk_when_it_arrives(directory: str) -> None:
    registry = opened(directory)
    session = await registry.connect(6000)
    reader: Reader | None = None
    for number in range(50):
        await session.create(f"/n{number}")
        reader = reader or Reader(directory)
        assert f"/n{number}" in reader.tree().nodes
    assert reader is not None
    reader.close()
    await registry.close()


async def test_a_watch_and_a_read_tell_only_of_what_is_on_the_disk(directory: str) -> None:
    registry = opened(directory)
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


async def test_a_caller_that_gives_up_waiting_disturbs_nobody(directory: str) -> None:
    registry = opened(directory)
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
    registry = opened(None if place == "memory" else directory)
    here = await registry.connect(6000)
    await here.create("/a", b"0")
    fired_on: list[int] = []

    async def count(session_of: EmbeddedRegistry) -> None:
        session = await session_of.connect(6000)
        heard = asyncio.Event()

        def hear(event: WatchEvent) -> None:
            assert event == WatchEvent(WatchKind.CREATED, "/go")
            fired_on.append(threading.get_ident())
            heard.set()

        await session.exists("/go", hear)
        await session.create("/ready_", sequential=True)
        async with asyncio.timeout(DEADLINE_S):
            await heard.wait()
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
