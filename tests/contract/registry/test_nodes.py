import asyncio

import pytest

from barnabas.errors import (
    BadPath,
    BadVersion,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
)
from barnabas.world.ports import CheckVersion, Create, Delete, RegistrySession, SetData, ZnodeStat
from tests.contract.registry.harness import eventually


async def test_node_is_read_as_created(session: RegistrySession) -> None:
    path, created = await session.create("/a", b"one")
    assert path == "/a"
    data, stat = await session.get("/a")
    assert data == b"one"
    assert stat == created
    assert stat.czxid == stat.mzxid == stat.pzxid
    assert stat.ctime_ms == stat.mtime_ms > 0
    assert (stat.version, stat.cversion, stat.ephemeral_owner) == (0, 0, 0)
    assert (stat.data_length, stat.num_children) == (3, 0)


async def test_set_data_raises_version_and_keeps_czxid(session: RegistrySession) -> None:
    _, before = await session.create("/a")
    after = await session.set("/a", b"two")
    assert (after.version, after.data_length) == (1, 3)
    assert after.mzxid > before.mzxid
    assert (after.czxid, after.pzxid) == (before.czxid, before.pzxid)
    assert await session.get("/a") == (b"two", after)
    assert (await session.set("/a", b"three", version=1)).version == 2


async def test_wrong_version_changes_nothing(session: RegistrySession) -> None:
    await session.create("/a", b"one")
    with pytest.raises(BadVersion):
        await session.set("/a", b"two", version=7)
    with pytest.raises(BadVersion):
        await session.delete("/a", version=7)
    data, stat = await session.get("/a")
    assert (data, stat.version) == (b"one", 0)
    await session.delete("/a", version=0)
    assert await session.exists("/a") is None


async def test_children_change_only_cversion_and_pzxid_of_parent(
    session: RegistrySession,
) -> None:
    await session.create("/a")
    _, first = await session.create("/a/x")
    _, second = await session.create("/a/y")
    _, stat = await session.get("/a")
    assert (stat.cversion, stat.num_children, stat.version) == (2, 2, 0)
    assert stat.pzxid == second.czxid > first.czxid
    await session.delete("/a/x")
    _, later = await session.get("/a")
    assert (later.cversion, later.num_children) == (3, 1)
    assert later.pzxid > stat.pzxid
    assert later.mzxid == stat.mzxid


async def test_children_are_sorted_names(session: RegistrySession) -> None:
    await session.create("/a")
    for name in ("c", "a", "b"):
        await session.create(f"/a/{name}")
    assert await session.children("/a") == ["a", "b", "c"]
    assert await session.children("/a/b") == []


async def test_missing_node_raises_no_node(session: RegistrySession) -> None:
    assert await session.exists("/a") is None
    for call in (
        session.get("/a"),
        session.children("/a"),
        session.set("/a", b""),
        session.delete("/a"),
        session.create("/a/b"),
    ):
        with pytest.raises(NoNode):
            await call


async def test_creating_existing_node_raises_node_exists(session: RegistrySession) -> None:
    await session.create("/a", b"one")
    with pytest.raises(NodeExists):
        await session.create("/a", b"two")
    assert (await session.get("/a"))[0] == b"one"


async def test_node_with_children_cannot_be_deleted(session: RegistrySession) -> None:
    await session.create("/a")
    await session.create("/a/b")
    with pytest.raises(NotEmpty):
        await session.delete("/a")
    await session.delete("/a/b")
    await session.delete("/a")


async def test_sequential_names_count_created_children(session: RegistrySession) -> None:
    await session.create("/a")
    assert (await session.create("/a/n_", sequential=True))[0] == "/a/n_0000000000"
    await session.create("/a/plain")
    assert (await session.create("/a/n_", sequential=True))[0] == "/a/n_0000000002"
    await session.delete("/a/n_0000000002")
    assert (await session.create("/a/m_", sequential=True))[0] == "/a/m_0000000003"
    assert (await session.create("/a/", sequential=True))[0] == "/a/0000000004"


async def test_ephemeral_node_has_owner_and_no_children(
    session: RegistrySession,
) -> None:
    _, stat = await session.create("/a", ephemeral=True)
    assert stat.ephemeral_owner == session.id
    with pytest.raises(NoChildrenForEphemerals):
        await session.create("/a/b")


@pytest.mark.parametrize(
    "path",
    ["", "a", "a/b", "/a/", "//", "/a//b", "/.", "/a/..", "/a/./b", "/a\0", "/a\n", "/a\ue000"],
)
async def test_invalid_paths_are_rejected(session: RegistrySession, path: str) -> None:
    for call in (
        session.get(path),
        session.exists(path),
        session.children(path),
        session.create(path),
        session.set(path, b""),
        session.delete(path),
    ):
        with pytest.raises(BadPath):
            await call


async def test_root_exists_and_cannot_be_deleted(session: RegistrySession) -> None:
    assert await session.exists("/") is not None
    with pytest.raises(NodeExists):
        await session.create("/")
    with pytest.raises(BadPath):
        await session.delete("/")


async def test_unicode_names_are_supported(session: RegistrySession) -> None:
    path, _ = await session.create("/主题 été", "データ".encode())
    assert path == "/主题 été"
    assert "主题 été" in await session.children("/")
    assert (await session.get(path))[0] == "データ".encode()


async def test_large_data_round_trips(session: RegistrySession) -> None:
    data = bytes(range(256)) * 3600
    await session.create("/big", data)
    read, stat = await session.get("/big")
    assert read == data
    assert stat.data_length == len(data)


async def test_transaction_has_one_zxid(session: RegistrySession) -> None:
    await session.create("/epoch", b"0")
    results = await session.multi(
        [
            CheckVersion(path="/epoch", version=0),
            Create(path="/a", data=b"one"),
            Create(path="/a/n_", sequential=True),
            SetData(path="/epoch", data=b"1", version=0),
            Create(path="/gone"),
            Delete(path="/gone"),
        ]
    )
    stat = results[3]
    assert isinstance(stat, ZnodeStat)
    assert results == [None, "/a", "/a/n_0000000000", stat, "/gone", None]
    assert stat.version == 1
    _, a = await session.get("/a")
    _, n = await session.get("/a/n_0000000000")
    assert a.czxid == a.pzxid == n.czxid == stat.mzxid
    assert await session.exists("/gone") is None


async def test_failed_transaction_changes_nothing(session: RegistrySession) -> None:
    await session.create("/epoch", b"0")
    _, root = await session.get("/")
    with pytest.raises(MultiFailed) as failed:
        await session.multi(
            [
                Create(path="/a"),
                SetData(path="/epoch", data=b"1"),
                CheckVersion(path="/epoch", version=0),
                Create(path="/b"),
            ]
        )
    assert failed.value.index == 2
    assert isinstance(failed.value.error, BadVersion)
    assert await session.get("/") == (b"", root)
    assert await session.exists("/a") is None
    data, stat = await session.get("/epoch")
    assert (data, stat.version) == (b"0", 0)


async def test_transaction_failure_has_index_and_error(session: RegistrySession) -> None:
    await session.create("/a")
    await session.create("/a/b")
    for op, error in (
        (Create(path="/a"), NodeExists),
        (Create(path="/x/y"), NoNode),
        (Delete(path="/a"), NotEmpty),
        (CheckVersion(path="/x", version=0), NoNode),
        (SetData(path="/a", data=b"", version=4), BadVersion),
    ):
        with pytest.raises(MultiFailed) as failed:
            await session.multi([CheckVersion(path="/a", version=0), op])
        assert failed.value.index == 1
        assert isinstance(failed.value.error, error)


async def test_one_session_wins_conditional_write(
    session: RegistrySession, other: RegistrySession
) -> None:
    await session.create("/a")
    await eventually(lambda: exists(other, "/a"))
    outcomes = await asyncio.gather(
        *(
            writer.set("/a", str(index).encode(), version=0)
            for index, writer in enumerate([session, other] * 5)
        ),
        return_exceptions=True,
    )
    won = [outcome for outcome in outcomes if isinstance(outcome, ZnodeStat)]
    lost = [outcome for outcome in outcomes if isinstance(outcome, BadVersion)]
    assert (len(won), len(lost)) == (1, 9)


async def test_many_writers_lose_no_update(
    session: RegistrySession, other: RegistrySession
) -> None:
    await session.create("/counter", b"0")
    await eventually(lambda: exists(other, "/counter"))

    async def count(writer: RegistrySession) -> None:
        for _ in range(10):
            while True:
                data, stat = await writer.get("/counter")
                try:
                    await writer.set("/counter", str(int(data) + 1).encode(), stat.version)
                    break
                except BadVersion:
                    pass

    await asyncio.gather(*(count(writer) for writer in [session, other] * 3))
    await eventually(lambda: reads(session, "/counter", b"60"))


async def test_requests_of_one_session_are_served_in_order(session: RegistrySession) -> None:
    await session.create("/a")
    stats = await asyncio.gather(*(session.set("/a", str(index).encode()) for index in range(50)))
    assert [stat.version for stat in stats] == list(range(1, 51))
    assert (await session.get("/a"))[0] == b"49"


async def exists(session: RegistrySession, path: str) -> bool:
    return await session.exists(path) is not None


async def reads(session: RegistrySession, path: str, data: bytes) -> bool:
    return (await session.get(path))[0] == data


async def test_get_many_reads_nodes_at_once(session: RegistrySession) -> None:
    await session.create("/a", b"first")
    await session.create("/a/b")
    await session.set("/a", b"second")
    paths = ["/a", "/missing", "/a/b", "/a/missing", "/a"]
    first, missing, empty, also_missing, again = await session.get_many(paths)
    assert first == again == await session.get("/a")
    assert empty == await session.get("/a/b")
    assert missing is also_missing is None
    assert await session.get_many([]) == []
    many = await session.get_many(["/a"] * 1000)
    assert many == [first] * 1000


@pytest.mark.parametrize("path", ["", "a", "/a/"])
async def test_get_many_rejects_invalid_path(session: RegistrySession, path: str) -> None:
    with pytest.raises(BadPath):
        await session.get_many(["/", path])
