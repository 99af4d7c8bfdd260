import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.errors import (
    BadPath,
    BadVersion,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    RegistryError,
)
from barnabas.world.ports import CheckVersion, Create, Delete, Op, SetData, WatchEvent, WatchKind
from barnabas.world.registry.tree import NodeChange, Tree, check_path, parent_of
from barnabas.world.registry.watches import SharedWatches


def tree_with(*paths: str) -> Tree:
    tree = Tree()
    for path in paths:
        tree.apply([Create(path=path)], session=0, now_ms=0)
    return tree


def test_nodes_have_time_and_zxid_of_transaction() -> None:
    tree = Tree(zxid=41)
    transaction = tree.apply([Create(path="/a", data=b"x")], session=0, now_ms=1000)
    assert transaction.zxid == tree.zxid == 42
    assert transaction.changes == (NodeChange(WatchKind.CREATED, "/a"),)
    node = tree.node("/a")
    assert (node.czxid, node.ctime_ms, node.mtime_ms) == (42, 1000, 1000)
    tree.apply([SetData(path="/a", data=b"y")], session=0, now_ms=2000)
    node = tree.node("/a")
    assert (node.czxid, node.mzxid, node.ctime_ms, node.mtime_ms) == (42, 43, 1000, 2000)


def test_transaction_lists_final_state_of_touched_nodes() -> None:
    tree = tree_with("/a", "/b")
    transaction = tree.apply(
        [Create(path="/a/x"), Delete(path="/b"), SetData(path="/a/x", data=b"1")],
        session=0,
        now_ms=0,
    )
    assert transaction.touched == {
        "/": tree.node("/"),
        "/a": tree.node("/a"),
        "/a/x": tree.node("/a/x"),
        "/b": None,
    }


def test_failed_transaction_uses_no_zxid() -> None:
    tree = tree_with("/a")
    with pytest.raises(MultiFailed) as failed:
        tree.apply([Create(path="/b"), Create(path="/a")], session=0, now_ms=0)
    assert failed.value.index == 1
    assert (tree.zxid, tree.children("/")) == (1, ["a"])


def test_ending_session_deletes_only_its_ephemeral_nodes() -> None:
    tree = tree_with("/live")
    for session, name in ((7, "b"), (7, "a"), (8, "c")):
        tree.apply([Create(path=f"/live/{name}", ephemeral=True)], session=session, now_ms=0)
    assert sorted(tree.ephemerals) == [7, 8]
    transaction = tree.end_session(7, now_ms=0)
    assert [change.path for change in transaction.changes] == ["/live/a", "/live/b"]
    assert tree.children("/live") == ["c"]
    assert sorted(tree.ephemerals) == [8]
    assert tree.end_session(7, now_ms=0).changes == ()


def test_node_recreated_in_one_transaction_is_new() -> None:
    tree = tree_with("/a")
    tree.apply([SetData(path="/a", data=b"old")], session=0, now_ms=0)
    tree.apply([Delete(path="/a"), Create(path="/a")], session=0, now_ms=0)
    node = tree.node("/a")
    assert (node.version, node.czxid, node.data) == (0, 3, b"")
    assert tree.node("/").stat().cversion == 3


def test_invalid_characters_in_path_are_rejected() -> None:
    for good in ("/", "/a", "/a.b", "/...", "/ü", "/漢字", "/a b", "/<default>"):
        check_path(good)
    for bad in ("/\x1f", "/\x7f", "/\x9f", "/\ud800", "/\uf8ff", "/\ufff0", "/\U0001f600"):
        with pytest.raises(BadPath):
            check_path(bad)


def test_watches_fire_once_in_the_order_they_were_set() -> None:
    watches: SharedWatches[int] = SharedWatches()
    events: list[WatchEvent] = []
    watches.add_data("/a", (2, events.append))
    watches.add_data("/a", (1, events.append))
    watches.add_child("/a", (1, events.append))
    watches.add_child("/", (3, events.append))
    deleted, children = WatchEvent(WatchKind.DELETED, "/a"), WatchEvent(WatchKind.CHILDREN, "/")
    assert watches.fire([NodeChange(WatchKind.DELETED, "/a")]) == [
        (2, events.append, deleted),
        (1, events.append, deleted),
        (3, events.append, children),
    ]
    assert watches.fire([NodeChange(WatchKind.DELETED, "/a")]) == []


def test_dropped_session_loses_its_watches() -> None:
    watches: SharedWatches[int] = SharedWatches()
    events: list[WatchEvent] = []
    watches.add_data("/a", (1, events.append))
    watches.add_child("/a", (1, events.append))
    watches.add_child("/a", (2, events.append))
    watches.drop_session(1)
    assert watches.data == {}
    fired = watches.fire([NodeChange(WatchKind.DELETED, "/a")])
    assert [session for session, _, _ in fired] == [2]


# ---- the tree against a simple model

NAMES = st.sampled_from(["a", "b", "s"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
VERSIONS = st.integers(-1, 2)
DATA = st.binary(max_size=2)
OPS = st.one_of(
    st.builds(Create, path=PATHS, data=DATA, ephemeral=st.booleans(), sequential=st.booleans()),
    st.builds(SetData, path=PATHS, data=DATA, version=VERSIONS),
    st.builds(Delete, path=PATHS, version=VERSIONS),
    st.builds(CheckVersion, path=PATHS, version=VERSIONS),
)


class ModelNode:
    def __init__(self, data: bytes, owner: int, zxid: int) -> None:
        self.data = data
        self.owner = owner
        self.version = 0
        self.cversion = 0
        self.creations = 0
        self.czxid = self.mzxid = self.pzxid = zxid


class RegistryModel:
    """Dictionary of nodes with straightforward rules. A transaction works on a copy."""

    def __init__(self) -> None:
        self.nodes = {"/": ModelNode(b"", 0, 0)}

    def copy(self) -> "RegistryModel":
        copied = RegistryModel()
        copied.nodes = {}
        for path, node in self.nodes.items():
            copied.nodes[path] = ModelNode(node.data, node.owner, 0)
            copied.nodes[path].__dict__.update(node.__dict__)
        return copied

    def children(self, path: str) -> list[str]:
        return sorted(
            other.rpartition("/")[2]
            for other in self.nodes
            if other != "/" and parent_of(other) == path
        )

    def existing(self, path: str, version: int) -> ModelNode:
        if path not in self.nodes:
            raise NoNode(path)
        if version != -1 and self.nodes[path].version != version:
            raise BadVersion(path)
        return self.nodes[path]

    def perform(self, op: Op, session: int, zxid: int) -> None:
        if isinstance(op, Create):
            parent = self.existing(parent_of(op.path), -1)
            path = op.path + (str(parent.creations).rjust(10, "0") if op.sequential else "")
            if path in self.nodes:
                raise NodeExists(path)
            if parent.owner:
                raise NoChildrenForEphemerals(path)
            parent.creations += 1
            parent.cversion += 1
            parent.pzxid = zxid
            self.nodes[path] = ModelNode(op.data, session if op.ephemeral else 0, zxid)
        elif isinstance(op, SetData):
            node = self.existing(op.path, op.version)
            node.data, node.version, node.mzxid = op.data, node.version + 1, zxid
        elif isinstance(op, Delete):
            self.existing(op.path, op.version)
            if self.children(op.path):
                raise NotEmpty(op.path)
            del self.nodes[op.path]
            parent = self.nodes[parent_of(op.path)]
            parent.cversion += 1
            parent.pzxid = zxid
        else:
            self.existing(op.path, op.version)


class TreeAgainstModel(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.tree = Tree()
        self.model = RegistryModel()

    @rule(ops=st.lists(OPS, min_size=1, max_size=4), session=st.integers(1, 2))
    def transact(self, ops: list[Op], session: int) -> None:
        attempt = self.model.copy()
        failed: tuple[int, type[RegistryError]] | None = None
        for index, op in enumerate(ops):
            try:
                attempt.perform(op, session, self.tree.zxid + 1)
            except RegistryError as error:
                failed = (index, type(error))
                break
        if failed is None:
            self.model = attempt
            self.tree.apply(ops, session=session, now_ms=0)
        else:
            with pytest.raises(MultiFailed) as refused:
                self.tree.apply(ops, session=session, now_ms=0)
            assert (refused.value.index, type(refused.value.error)) == failed

    @rule(session=st.integers(1, 2))
    def end_session(self, session: int) -> None:
        transaction = self.tree.end_session(session, now_ms=0)
        owned = sorted(path for path, node in self.model.nodes.items() if node.owner == session)
        assert [change.path for change in transaction.changes] == owned
        for path in owned:
            self.model.perform(Delete(path=path), session, transaction.zxid)

    @rule()
    def reload(self) -> None:
        self.tree = Tree(self.tree.nodes, self.tree.zxid)

    @invariant()
    def tree_equals_model(self) -> None:
        assert sorted(self.tree.nodes) == sorted(self.model.nodes)
        for path, expected in self.model.nodes.items():
            stat = self.tree.node(path).stat()
            children = self.model.children(path)
            assert self.tree.node(path).data == expected.data
            assert self.tree.children(path) == children
            assert stat.num_children == len(children)
            assert stat.version == expected.version
            assert stat.cversion == expected.cversion
            assert stat.ephemeral_owner == expected.owner
            assert (stat.czxid, stat.mzxid, stat.pzxid) == (
                expected.czxid,
                expected.mzxid,
                expected.pzxid,
            )


TreeAgainstModel.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
TestTreeAgainstModel = TreeAgainstModel.TestCase
