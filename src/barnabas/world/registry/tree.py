"""The znode tree with ZooKeeper's rules, as plain values: no clock, no disk, no loop.

A transaction is a list of operations that happen together or not at all, under one zxid. `apply` first
works on a draft that shadows the nodes it touches; only a draft without a failure is merged, so a refused
transaction leaves no trace, not even a used zxid.

Two numbers of ZooKeeper that surprise:

    cversion      counts creations and deletions of children. What is kept is the number of creations;
                  cversion is worked out as 2 * creations - children still there.
    the ten digits behind a sequential node are the creations counted before it, of whatever kind, so they
                  never go back and are not without gaps.
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

ORDINARY = re.compile(r"(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)+").fullmatch
"""As good as every path there is: one look, since a new controller asks for tens of thousands."""

K = TypeVar("K")


class Node(NamedTuple):
    """One znode. Immutable: a transaction replaces nodes, so a draft can be thrown away."""

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
    """What one operation did to the node at `path`: created, changed or deleted it."""

    kind: WatchKind
    path: str


class Transaction(Struct, frozen=True, kw_only=True):
    """What happened under one zxid.

    `results` is what the caller is told per operation; `changes` is the story in order, which watches are
    fired from; `touched` is how each node touched stands afterwards (None: gone), which is what a disk keeps.
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
        self.names = families(self.nodes)
        self.ephemerals: dict[int, set[str]] = {}
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

    def owners(self) -> list[int]:
        """The sessions that own ephemeral nodes."""
        return sorted(self.ephemerals)

    # ---- writing

    def apply(self, ops: Sequence[Op], *, session: int, now_ms: int) -> Transaction:
        """All of `ops`, or MultiFailed and nothing. `session` owns the ephemeral nodes created."""
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
        """The transaction that removes every ephemeral node of a session."""
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
            self.names.setdefault(parent_of(path), set()).add(name_of(path))
        if node.owner:
            self.ephemerals.setdefault(node.owner, set()).add(path)

    def drop(self, path: str) -> None:
        node = self.nodes.pop(path)
        if path != ROOT:
            forget(self.names, parent_of(path), name_of(path))
        if node.owner:
            forget(self.ephemerals, node.owner, path)


class Draft:
    """The tree as one transaction sees it: its own changes in front, the merged nodes behind."""

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
                return None
            case CheckVersion():
                self.expect(op.path, op.version)
                return None
            case _:
                assert_never(op)

    def create(self, op: Create) -> str:
        # The digits are part of the name, so "/a/" is a fine path for a sequential node.
        check_path(op.path + "0" if op.sequential else op.path)
        if op.path == ROOT and not op.sequential:
            raise NodeExists(ROOT)
        above = parent_of(op.path)
        parent = self.find(above)
        if parent is None:
            raise NoNode(op.path, f"there is no {above} to create it under")
        path = f"{op.path}{parent.creations:010d}" if op.sequential else op.path
        if self.find(path) is not None:
            raise NodeExists(path)
        if parent.owner:
            raise NoChildrenForEphemerals(path)
        self.touched[above] = parent._replace(
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
        above = parent_of(op.path)
        parent = self.find(above)
        assert parent is not None, f"{op.path} stands without its parent"
        self.touched[above] = parent._replace(pzxid=self.zxid, num_children=parent.num_children - 1)
        self.touched[op.path] = None
        self.changes.append(NodeChange(WatchKind.DELETED, op.path))

    def expect(self, path: str, version: int) -> Node:
        check_path(path)
        node = self.find(path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path, f"expected {version}, found {node.version}")
        return node


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def check_path(path: str) -> None:
    """Raise BadPath for what ZooKeeper's clients refuse."""
    if ORDINARY(path):
        return
    if not path.startswith("/"):
        raise BadPath(path, "a path starts with /")
    if path == ROOT:
        return
    for name in path[1:].split("/"):
        if not name:
            raise BadPath(path, "a name is empty")
        if name in (".", ".."):
            raise BadPath(path, "relative names are not allowed")
    if not path.isascii() or not path.isprintable():
        for position, character in enumerate(path):
            if not allowed(ord(character)):
                raise BadPath(repr(path), f"character {position} is not allowed")


def allowed(code: int) -> bool:
    """No control characters, no private ones, none beyond the basic plane: ZooKeeper counts in UTF-16."""
    return 0x1F < code < 0x7F or 0x9F < code < 0xD800 or 0xF8FF < code < 0xFFF0


def forget(sets: dict[K, set[str]], key: K, value: str) -> None:
    members = sets[key]
    members.remove(value)
    if not members:
        del sets[key]


def families(paths: Iterable[str]) -> dict[str, set[str]]:
    """The names beneath each path that has any."""
    names: dict[str, set[str]] = {}
    for path in paths:
        if path != ROOT:
            above, _, name = path.rpartition("/")
            names.setdefault(above or ROOT, set()).add(name)
    return names
