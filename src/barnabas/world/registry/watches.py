"""One-shot watches of the embedded registry.

    data watch  (set by get and exists)   fires when its node is created, changed or deleted
    child watch (set by children)         fires when a child is created or deleted, or the node is deleted

A deletion therefore fires the data and child watches of the node, and the child watches of its parent. A watch that is
set several times for one path fires once. A deletion also fires a watch once if it is set as data and child watch. This
module calls no watches: `fire` removes them and returns them in the order in which they must be called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.world.ports import Watch, WatchEvent, WatchKind
from barnabas.world.registry.tree import NodeChange, parent_of


class Waiter(NamedTuple):
    """A watch that waits for an event."""

    session: int
    watch: Watch


class FiredWatch(NamedTuple):
    """A watch to be called with an event."""

    session: int
    watch: Watch
    event: WatchEvent


# A dict, because watches are called in insertion order; a set has no order.
Waiters = dict[Waiter, None]


class Watches:
    """The watches of all sessions, by path."""

    def __init__(self) -> None:
        self.data: dict[str, Waiters] = {}
        self.child: dict[str, Waiters] = {}

    def add_data(self, path: str, session: int, watch: Watch) -> None:
        self.data.setdefault(path, {})[Waiter(session, watch)] = None

    def add_child(self, path: str, session: int, watch: Watch) -> None:
        self.child.setdefault(path, {})[Waiter(session, watch)] = None

    def drop_session(self, session: int) -> None:
        for watches in (self.data, self.child):
            for path in list(watches):
                kept = {waiter: None for waiter in watches[path] if waiter.session != session}
                if kept:
                    watches[path] = kept
                else:
                    del watches[path]

    def fire(self, changes: Sequence[NodeChange]) -> list[FiredWatch]:
        """Remove and return the watches of these changes, in the order of the changes."""
        fired: list[FiredWatch] = []
        for kind, path in changes:
            waiters = dict(self.data.pop(path, {}))
            if kind is WatchKind.DELETED:
                waiters |= self.child.pop(path, {})
            fired += [FiredWatch(*waiter, WatchEvent(kind, path)) for waiter in waiters]
            if kind is not WatchKind.CHANGED:
                above = parent_of(path)
                event = WatchEvent(WatchKind.CHILDREN, above)
                fired += [FiredWatch(*waiter, event) for waiter in self.child.pop(above, {})]
        return fired
