"""One-shot watches: who waits for what, and who is to be told of a transaction.

    a data watch  (set by get and exists)   fires on created, changed and deleted of its own path
    a child watch (set by children)         fires on children of its own path, and on deleted

A deletion therefore reaches the data and the child watches of the node and the child watches of its parent.
A watch set by several reads of one path is one watch; set as data and as child watch, it hears of a deletion
once. Nothing is called here: `fire` takes the watches out and returns them in the order they are to be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.world.ports import Watch, WatchEvent, WatchKind
from barnabas.world.registry.tree import NodeChange, parent_of


class Waiter(NamedTuple):
    session: int
    watch: Watch


class FiredWatch(NamedTuple):
    session: int
    watch: Watch
    event: WatchEvent


# Insertion order is the order of being told; a set would tell in address order.
Waiters = dict[Waiter, None]


class Watches:
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
        """Take out and return the watches these changes concern, in the order of the changes."""
        fired: list[FiredWatch] = []
        for kind, path in changes:
            told = dict(self.data.pop(path, {}))
            if kind is WatchKind.DELETED:
                told |= self.child.pop(path, {})
            fired += [FiredWatch(*waiter, WatchEvent(kind, path)) for waiter in told]
            if kind is not WatchKind.CHANGED:
                above = parent_of(path)
                event = WatchEvent(WatchKind.CHILDREN, above)
                fired += [FiredWatch(*waiter, event) for waiter in self.child.pop(above, {})]
        return fired
