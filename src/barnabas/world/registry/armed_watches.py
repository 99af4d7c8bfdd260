"""The watches one session has set in a ZooKeeper: who is told of an event, and what a lost connection has hidden.

ZooKeeper forgets watches with the connection they were set on. Whoever has a new one reads every watched path again;
`missed` says what that reading means, given the last transaction that was seen on the old connection:

    a data watch    node gone: deleted    node there, once absent: created    written since: changed
    a child watch   node gone: deleted    children since: children
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.world.ports import Watch, WatchKind


class ArmedWatches:
    def __init__(self) -> None:
        # Insertion order is the order of being told.
        self.data: dict[str, dict[Watch, None]] = {}
        self.child: dict[str, dict[Watch, None]] = {}
        self.absent: set[str] = set()
        """Paths with data watches and no node: all watches of a path know the same, since a change takes them out."""

    def arm_data(self, path: str, watch: Watch, exists: bool) -> None:
        self.data.setdefault(path, {})[watch] = None
        if not exists:
            self.absent.add(path)

    def arm_child(self, path: str, watch: Watch, _: bool) -> None:
        self.child.setdefault(path, {})[watch] = None

    def take(self, kind: WatchKind, path: str) -> Iterator[Watch]:
        """Those that hear of this event; a watch set as data and as child watch hears of a deletion once."""
        told: dict[Watch, None] = {}
        if kind is not WatchKind.CHILDREN:
            told |= self.data.pop(path, {})
            self.absent.discard(path)
        if kind in (WatchKind.CHILDREN, WatchKind.DELETED):
            told |= self.child.pop(path, {})
        return iter(told)

    def missed_data(self, path: str, mzxid: int | None, since: int) -> WatchKind | None:
        """`mzxid` of the node as it is now, None if there is none."""
        if mzxid is None:
            return None if path in self.absent else WatchKind.DELETED
        if path in self.absent:
            return WatchKind.CREATED
        return WatchKind.CHANGED if mzxid > since else None

    def missed_children(self, pzxid: int | None, since: int) -> WatchKind | None:
        if pzxid is None:
            return WatchKind.DELETED
        return WatchKind.CHILDREN if pzxid > since else None
