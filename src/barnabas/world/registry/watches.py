"""One-shot watches by path: of all sessions of the embedded registry, or of one ZooKeeper session.

    data watch  (set by get and exists)   fires when its node is created, changed or deleted
    child watch (set by children)         fires when a child is created or deleted, or the node is deleted

A deletion therefore fires the data and child watches of the node, and the child watches of its parent. A watch that is
set several times for a path fires once, also if it is a data watch and a child watch of a deleted node.

This module calls no watches: it removes them and returns them in the order in which they must be called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from barnabas.world.ports import Watch, WatchEvent, WatchKind
from barnabas.world.registry.tree import NodeChange, parent_of

S = TypeVar("S")
W = TypeVar("W")


class WatchTable(Generic[W]):
    def __init__(self) -> None:
        # Dicts, because watches are called in insertion order; a set has no order.
        self.data: dict[str, dict[W, None]] = {}
        self.child: dict[str, dict[W, None]] = {}

    def add_data(self, path: str, watch: W) -> None:
        self.data.setdefault(path, {})[watch] = None

    def add_child(self, path: str, watch: W) -> None:
        self.child.setdefault(path, {})[watch] = None

    def take(self, kind: WatchKind, path: str) -> dict[W, None]:
        """Remove and return the watches that this event fires."""
        watches: dict[W, None] = {}
        if kind is not WatchKind.CHILDREN:
            watches |= self.data.pop(path, {})
        if kind in (WatchKind.CHILDREN, WatchKind.DELETED):
            watches |= self.child.pop(path, {})
        return watches


class SharedWatches(WatchTable[tuple[S, Watch]]):
    """The watches of all sessions."""

    def drop_session(self, session: S) -> None:
        for table in (self.data, self.child):
            for path, watches in list(table.items()):
                kept = {each: None for each in watches if each[0] is not session}
                if kept:
                    table[path] = kept
                else:
                    del table[path]

    def fire(self, changes: Sequence[NodeChange]) -> list[tuple[S, Watch, WatchEvent]]:
        """Remove and return the watches that these changes fire, in the order of the changes."""
        fired: list[tuple[S, Watch, WatchEvent]] = []
        for kind, path in changes:
            events = [WatchEvent(kind, path)]
            if kind is not WatchKind.CHANGED:
                events.append(WatchEvent(WatchKind.CHILDREN, parent_of(path)))
            for event in events:
                fired += [(*each, event) for each in self.take(*event)]
        return fired


class ArmedWatches(WatchTable[Watch]):
    """The watches that one session has set in ZooKeeper, and the events that it missed during a lost connection.

    ZooKeeper drops watches when their connection is lost. On a new connection the session reads every watched path
    again. `missed_data` and `missed_children` return the event that it missed, if any. `mzxid` and `pzxid` are those of
    the node now, None if it does not exist. `since` is the zxid of the last transaction seen on the old connection.
    """

    def __init__(self) -> None:
        super().__init__()
        self.absent: set[str] = set()
        """Paths with data watches whose node does not exist. A change removes the path and all its data watches."""

    def arm_data(self, path: str, watch: Watch, exists: bool) -> None:
        self.add_data(path, watch)
        if not exists:
            self.absent.add(path)

    def arm_child(self, path: str, watch: Watch, _: bool) -> None:
        self.add_child(path, watch)

    def take(self, kind: WatchKind, path: str) -> dict[Watch, None]:
        if kind is not WatchKind.CHILDREN:
            self.absent.discard(path)
        return super().take(kind, path)

    def missed_data(self, path: str, mzxid: int | None, since: int) -> WatchKind | None:
        if mzxid is None:
            return None if path in self.absent else WatchKind.DELETED
        if path in self.absent:
            return WatchKind.CREATED
        return WatchKind.CHANGED if mzxid > since else None

    def missed_children(self, pzxid: int | None, since: int) -> WatchKind | None:
        if pzxid is None:
            return WatchKind.DELETED
        return WatchKind.CHILDREN if pzxid > since else None
