"""The watches that one session has set in ZooKeeper, and the events that it missed during a lost connection.

ZooKeeper drops watches when their connection is lost. On a new connection the session reads every watched path again.
`missed_data` and `missed_children` return the event that it missed, if any. `since` is the zxid of the last transaction
seen on the old connection.

    data watch    node missing: deleted    node exists, was missing: created    mzxid > since: changed
    child watch   node missing: deleted    pzxid > since: children
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.world.ports import Watch, WatchKind


class ArmedWatches:
    """The watches of one session, by path."""

    def __init__(self) -> None:
        # Dicts, because watches are called in insertion order.
        self.data: dict[str, dict[Watch, None]] = {}
        self.child: dict[str, dict[Watch, None]] = {}
        self.absent: set[str] = set()
        """Paths with data watches but without a node. It holds for all watches of a path: a change removes them all."""

    def arm_data(self, path: str, watch: Watch, exists: bool) -> None:
        self.data.setdefault(path, {})[watch] = None
        if not exists:
            self.absent.add(path)

    def arm_child(self, path: str, watch: Watch, _: bool) -> None:
        self.child.setdefault(path, {})[watch] = None

    def take(self, kind: WatchKind, path: str) -> Iterator[Watch]:
        """Remove and return the watches of this event. A deletion fires a watch once if set as data and child watch."""
        watches: dict[Watch, None] = {}
        if kind is not WatchKind.CHILDREN:
            watches |= self.data.pop(path, {})
            self.absent.discard(path)
        if kind in (WatchKind.CHILDREN, WatchKind.DELETED):
            watches |= self.child.pop(path, {})
        return iter(watches)

    def missed_data(self, path: str, mzxid: int | None, since: int) -> WatchKind | None:
        """Return the event that data watches missed. `mzxid` is that of the node now, None if it does not exist."""
        if mzxid is None:
            return None if path in self.absent else WatchKind.DELETED
        if path in self.absent:
            return WatchKind.CREATED
        return WatchKind.CHANGED if mzxid > since else None

    def missed_children(self, pzxid: int | None, since: int) -> WatchKind | None:
        """Return the event that child watches missed. `pzxid` is that of the node now, None if it does not exist."""
        if pzxid is None:
            return WatchKind.DELETED
        return WatchKind.CHILDREN if pzxid > since else None
