"""The znode tree with ZooKeeper's rules, as plain values: no clock, no disk, no event loop.

A transaction is a list of operations that are applied atomically, under one zxid. `apply` performs them on a draft,
which is merged only if all succeed. So a failed transaction changes nothing and uses no zxid.

Two numbers of ZooKeeper:

    cversion           counts creations and deletions of children. A node stores the number of creations;
                       cversion = 2 * creations - current number of children.
    sequence number    the ten digits at the end of a sequential node are the number of children created before it
                       under the same parent, of any kind. They never decrease and may have gaps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar, assert_never

from msgspec import Struct

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
from barnabas.world.ports import CheckVersion, Create, Delete, Op, SetData, WatchKind, ZnodeStat

ROOT = "/"
ANY_VERSION = -1

is_ordinary_path = re.compile(r"(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)+").fullmatch
"""Matches nearly every valid path in one call. Speed matters: a new controller reads tens of thousands of paths."""

K = TypeVar("K")


class Node(NamedTuple):
    """One znode. Immutable, so that a draft can be discarded. `owner` is the session of an ephemeral node, or 0."""

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int = 0
    creations: int = 0
    owner: int = 0
    num_children: int = 0

    def stat(self) -> ZnodeStat:
        return ZnodeStat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            pzxid=self.pzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            cversion=2 * self.creations - self.num_children,
            ephemeral_owner=self.owner,
            data_length=len(self.data),
            num_children=self.num_children,
        )


class NodeChange(NamedTuple):
    """The effect of one operation on the node at `path`: created, changed or deleted."""

    kind: WatchKind
    path: str


class Transaction(Struct, frozen=True, kw_only=True):
    """An applied transaction.

    `results` is the result per operation. `changes` are the changes in order, from which watches are fired. `touched`
    maps each changed path to its new node, None if deleted, for the store.
    """

    zxid: int
    time_ms: int
    results: tuple[str | ZnodeStat | None, ...]
    changes: tuple[NodeChange, ...]
    touched: Mapping[str, Node | None]


class Tree:
    """The nodes, and the zxid of the last transaction."""

    def __init__(self, nodes: Mapping[str, Node] | None = None, zxid: int = 0) -> None:
        self.zxid = zxid
        self.nodes = dict(nodes or {ROOT: Node(b"", 0, 0, 0, 0, 0)})
        self.names = child_names(self.nodes)  # names of the children by path
        self.ephemerals: dict[int, set[str]] = {}
        """Paths by the id of the session that owns them."""
        for path, node in self.nodes.items():
            if node.owner:
                self.ephemerals.setdefault(node.owner, set()).add(path)

    # ---- reading

    def node(self, path: str) -> Node:
        check_path(path)
        node = self.nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def find(self, path: str) -> Node | None:
        check_path(path)
        return self.nodes.get(path)

    def children(self, path: str) -> list[str]:
        self.node(path)
        return sorted(self.names.get(path, ()))

    # ---- writing

    def apply(self, ops: Sequence[Op], *, session: int, now_ms: int) -> Transaction:
        """Apply all operations, or raise MultiFailed and change nothing. `session` owns new ephemeral nodes."""
        draft = Draft(self.nodes, zxid=self.zxid + 1, now_ms=now_ms, session=session)
        results: list[str | ZnodeStat | None] = []
        for index, op in enumerate(ops):
            try:
                results.append(draft.perform(op))
            except RegistryError as error:
                raise MultiFailed(index, error) from error
        self.merge(draft)
        return Transaction(
            zxid=draft.zxid,
            time_ms=now_ms,
            results=tuple(results),
            changes=tuple(draft.changes),
            touched=draft.touched,
        )

    def end_session(self, session: int, *, now_ms: int) -> Transaction:
        """Delete every ephemeral node of a session."""
        ops = [Delete(path=path) for path in sorted(self.ephemerals.get(session, ()))]
        return self.apply(ops, session=session, now_ms=now_ms)

    def merge(self, draft: Draft) -> None:
        self.zxid = draft.zxid
        for path, node in draft.touched.items():
            if path in self.nodes:
                self.drop(path)
            if node is not None:
                self.put(path, node)

    def put(self, path: str, node: Node) -> None:
        self.nodes[path] = node
        if path != ROOT:
            self.names.setdefault(parent_of(path), set()).add(last_name(path))
        if node.owner:
            self.ephemerals.setdefault(node.owner, set()).add(path)

    def drop(self, path: str) -> None:
        node = self.nodes.pop(path)
        if path != ROOT:
            discard_member(self.names, parent_of(path), last_name(path))
        if node.owner:
            discard_member(self.ephemerals, node.owner, path)


class Draft:
    """The tree as seen by one transaction: its own changes on top of the merged nodes."""

    def __init__(self, nodes: Mapping[str, Node], *, zxid: int, now_ms: int, session: int) -> None:
        self.merged = nodes
        self.touched: dict[str, Node | None] = {}
        self.changes: list[NodeChange] = []
        self.zxid = zxid
        self.now_ms = now_ms
        self.session = session

    def find(self, path: str) -> Node | None:
        return self.touched[path] if path in self.touched else self.merged.get(path)

    def perform(self, op: Op) -> str | ZnodeStat | None:
        match op:
            case Create():
                return self.create(op)
            case SetData():
                return self.set_data(op)
            case Delete():
                self.delete(op)
            case CheckVersion():
                self.expect(op.path, op.version)
            case _:
                assert_never(op)
        return None

    def create(self, op: Create) -> str:
        # The digits are part of the name, so "/a/" is a valid path for a sequential node.
        check_path(op.path + "0" if op.sequential else op.path)
        if op.path == ROOT and not op.sequential:
            raise NodeExists(ROOT)
        parent_path = parent_of(op.path)
        parent = self.find(parent_path)
        if parent is None:
            raise NoNode(op.path, f"its parent {parent_path} does not exist")
        path = f"{op.path}{parent.creations:010d}" if op.sequential else op.path
        if self.find(path) is not None:
            raise NodeExists(path)
        if parent.owner:
            raise NoChildrenForEphemerals(path)
        self.touched[parent_path] = parent._replace(
            pzxid=self.zxid, creations=parent.creations + 1, num_children=parent.num_children + 1
        )
        self.touched[path] = Node(
            data=op.data,
            czxid=self.zxid,
            mzxid=self.zxid,
            pzxid=self.zxid,
            ctime_ms=self.now_ms,
            mtime_ms=self.now_ms,
            owner=self.session if op.ephemeral else 0,
        )
        self.changes.append(NodeChange(WatchKind.CREATED, path))
        return path

    def set_data(self, op: SetData) -> ZnodeStat:
        node = self.expect(op.path, op.version)._replace(data=op.data)
        node = node._replace(mzxid=self.zxid, mtime_ms=self.now_ms, version=node.version + 1)
        self.touched[op.path] = node
        self.changes.append(NodeChange(WatchKind.CHANGED, op.path))
        return node.stat()

    def delete(self, op: Delete) -> None:
        if op.path == ROOT:
            raise BadPath(ROOT, "the root cannot be deleted")
        node = self.expect(op.path, op.version)
        if node.num_children:
            raise NotEmpty(op.path)
        parent_path = parent_of(op.path)
        parent = self.find(parent_path)
        assert parent is not None, f"{op.path} has no parent"
        remaining = parent.num_children - 1
        self.touched[parent_path] = parent._replace(pzxid=self.zxid, num_children=remaining)
        self.touched[op.path] = None
        self.changes.append(NodeChange(WatchKind.DELETED, op.path))

    def expect(self, path: str, version: int) -> Node:
        """Return a node. Raises NoNode, or BadVersion if it has another version."""
        check_path(path)
        node = self.find(path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path, f"expected {version}, found {node.version}")
        return node


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def last_name(path: str) -> str:
    return path.rpartition("/")[2]


def check_path(path: str) -> None:
    """Raise BadPath for a path that ZooKeeper's clients reject."""
    if is_ordinary_path(path):
        return
    if not path.startswith("/"):
        raise BadPath(path, "a path must start with /")
    if path == ROOT:
        return
    for name in path[1:].split("/"):
        if not name:
            raise BadPath(path, "a path must not contain an empty name")
        if name in (".", ".."):
            raise BadPath(path, "relative names are not allowed")
    if not path.isascii() or not path.isprintable():
        for position, character in enumerate(path):
            if not is_allowed_character(ord(character)):
                raise BadPath(repr(path), f"character {position} is not allowed")


def is_allowed_character(code: int) -> bool:
    """Return False for control, surrogate and private-use characters, and from U+FFF0 on, as ZooKeeper does."""
    return 0x1F < code < 0x7F or 0x9F < code < 0xD800 or 0xF8FF < code < 0xFFF0


def discard_member(sets: dict[K, set[str]], key: K, value: str) -> None:
    members = sets[key]
    members.remove(value)
    if not members:
        del sets[key]


def child_names(paths: Iterable[str]) -> dict[str, set[str]]:
    """Return the names of the children of each path that has children."""
    names: dict[str, set[str]] = {}
    for path in paths:
        if path != ROOT:
            parent_path, _, name = path.rpartition("/")
            names.setdefault(parent_path or ROOT, set()).add(name)
    return names
