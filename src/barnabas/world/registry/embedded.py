"""A registry inside this process: ZooKeeper's semantics without ZooKeeper, for a cluster on one machine.

    session call ──► tree (in memory) ──► writer thread ──► disk
                                                  │
    watches, then the result  ◄── mailbox ◄───────┘         one mailbox per event loop

Invariant: no client sees a change before it is durable, and all clients see changes in the same order. A call is
applied to the tree immediately. Its result or error is returned later, also that of a read: when every transaction in
the tree at the time of the call is durable, and its watches have been called. So a session receives an event before it
can read the new data, as in ZooKeeper. If no transaction is in flight, a read returns immediately.

With `path=None` nothing is stored and no thread runs. Results are returned in the same order.

Sessions end with their process. The next process that opens the directory deletes their ephemeral nodes. Clients here
send no heartbeats. The code that kills or halts a client calls `abandon` or `count_down`, which starts the
session timeout.

A failed commit ends the registry: sessions expire, and every further call raises the StorageError of that commit.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from barnabas.errors import MultiFailed, RegistryError, RegistrySessionExpired, StorageError
from barnabas.world.ports import (
    Clock,
    Create,
    Delete,
    Op,
    SessionState,
    SetData,
    Watch,
    WatchEvent,
    ZnodeStat,
)
from barnabas.world.registry.tree import Transaction, Tree
from barnabas.world.registry.watches import SharedWatches

if TYPE_CHECKING:
    from barnabas.world.registry.writer import Writer

T = TypeVar("T")
WatchCall = tuple["EmbeddedSession", Watch, WatchEvent]

# Session ids look like those of ZooKeeper server 1. The lower bits are the zxid at which the session began. A durable
# zxid is never used again, so no ephemeral node of an earlier process belongs to a later session.
SESSION_ID_MARK = 1 << 56


class EmbeddedRegistry:
    """The znode tree in the directory `path`, or in memory only.

    Methods must be called on an event loop unless noted. Sessions on several loops may share one registry.
    """

    def __init__(self, path: str | None, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        # Guards the attributes below. Held briefly, never during I/O.
        self.lock = threading.Lock()
        self.tree = Tree()
        self.watches: SharedWatches[EmbeddedSession] = SharedWatches()
        self.sessions: dict[int, EmbeddedSession] = {}
        self.mailboxes: dict[asyncio.AbstractEventLoop, Mailbox] = {}
        self.in_flight: deque[tuple[int, list[WatchCall]]] = deque()  # zxid and fired watches
        self.sent = self.durable = 0  # zxid of the last queued and of the last durable transaction
        self.writer: Writer | None = None
        self.failure: StorageError | None = None
        self.closed = False

    async def open(self) -> None:
        """Load the tree from the disk, unless `connect` has done so. Raises DirectoryLocked or StorageError."""
        if self.path is None:
            return
        with self.lock:
            if self.closed:
                raise RegistryError("", "the registry is closed")
            if self.writer is None:
                # Imported here: a registry in memory does not need SQLite.
                from barnabas.world.registry.writer import Writer

                self.writer = Writer(self.path, self.on_committed)
                self.writer.start(self.clock.now_ms())
            writer = self.writer
        try:
            tree = await asyncio.wrap_future(writer.opened)
        except StorageError:
            with self.lock:
                if self.writer is writer:
                    self.writer = None
            raise
        with self.lock:
            if self.tree is not tree:
                self.tree = tree
                self.sent = self.durable = tree.zxid

    async def connect(self, session_timeout_ms: int) -> EmbeddedSession:
        await self.open()
        loop = asyncio.get_running_loop()
        with self.lock:
            if self.failure is not None:
                raise copy_failure(self.failure)
            if self.closed:
                raise RegistryError("", "the registry is closed")
            mailbox = self.mailboxes.setdefault(loop, Mailbox(loop, self.durable))
            # An empty transaction reserves a zxid. It is not written: every write of the session has a larger zxid.
            reserved = self.tree.apply([], session=0, now_ms=self.clock.now_ms())
            session_id = SESSION_ID_MARK | reserved.zxid
            session = EmbeddedSession(self, mailbox, session_id, session_timeout_ms)
            self.sessions[session_id] = session
        return session

    def abandon(self, session: EmbeddedSession) -> None:
        """Treat the client of a session as crashed: it gets no more events, and the session expires after its timeout.

        Call it on a loop that keeps running; the loop of the client may be closed.
        """
        with self.lock:
            if session.id not in self.sessions or session.state is SessionState.SUSPENDED:
                return
            self.watches.drop_session(session)
            session.state = SessionState.SUSPENDED
            session.listeners.clear()
        self.count_down(session)

    def count_down(self, session: EmbeddedSession) -> None:
        """Treat the client of a session as halted: start the session timeout, which `revive` cancels.

        Events for the client are queued meanwhile. Call it on a loop that keeps running, unlike that of the client.
        """
        if session.countdown is None:
            loop = asyncio.get_running_loop()
            session.countdown = loop.call_later(session.timeout_ms / 1000, self.time_out, session)

    def revive(self, session: EmbeddedSession) -> None:
        """Cancel the timeout that `count_down` has started. Call it on the same loop."""
        if session.countdown is not None:
            session.countdown.cancel()
            session.countdown = None

    def time_out(self, session: EmbeddedSession) -> None:
        """Expire a session. May be called from any thread."""
        with self.lock:
            if session.id in self.sessions:
                self.remove_session(session, notify=True)

    def expire_abandoned(self) -> None:
        """Expire all abandoned sessions without waiting for their timeouts. May be called from any thread."""
        with self.lock:
            for session in list(self.sessions.values()):
                if session.state is SessionState.SUSPENDED:
                    self.remove_session(session, notify=False)

    async def close(self) -> None:
        """End all sessions, wait until that is durable, and release the directory."""
        if self.closed:
            return
        self.closed = True
        with self.lock:
            for session in list(self.sessions.values()):
                self.remove_session(session, notify=True)
            mailbox = self.mailboxes.get(asyncio.get_running_loop())
        if self.writer is not None:
            await asyncio.wrap_future(self.writer.stop())
        if mailbox is not None and self.failure is None:
            await mailbox.wait_for(self.sent)

    # ---- for sessions

    def apply(self, session: EmbeddedSession, ops: Sequence[Op]) -> Transaction:
        """Apply a transaction to the tree and queue it for the writer. The caller must hold the lock."""
        transaction = self.tree.apply(ops, session=session.id, now_ms=self.clock.now_ms())
        self.send(transaction)
        return transaction

    def end_session(self, session: EmbeddedSession, *, notify: bool = True) -> asyncio.Future[None]:
        """End a session, and call its listeners if `notify`. The future is done when the end is durable."""
        with self.lock:
            if session.id in self.sessions:
                self.remove_session(session, notify=notify)
            return session.mailbox.wait_for(self.sent)

    def remove_session(self, session: EmbeddedSession, *, notify: bool) -> None:
        """Remove a session, its watches and ephemeral nodes, and reject its calls. The caller must hold the lock."""
        session.state = SessionState.EXPIRED
        if notify:
            self.post(session.mailbox, session.on_expired)
        del self.sessions[session.id]
        self.watches.drop_session(session)
        self.send(self.tree.end_session(session.id, now_ms=self.clock.now_ms()))

    def send(self, transaction: Transaction) -> None:
        self.sent = transaction.zxid
        self.in_flight.append((transaction.zxid, self.watches.fire(transaction.changes)))
        if self.writer is None:
            self.deliver(transaction.zxid)
        else:
            self.writer.put(transaction)

    # ---- from the writer

    def on_committed(self, zxid: int, failure: StorageError | None) -> None:
        """Called on the writer's thread: all transactions up to `zxid` are durable, or the commit failed."""
        with self.lock:
            if failure is None:
                self.deliver(zxid)
                return
            self.failure = failure
            self.in_flight.clear()
            for mailbox in list(self.mailboxes.values()):
                self.post(mailbox, mailbox.fail, failure)
            for session in list(self.sessions.values()):
                session.state = SessionState.EXPIRED
                self.post(session.mailbox, session.on_expired)
            self.sessions.clear()

    def deliver(self, zxid: int) -> None:
        """Pass the transactions that are durable now to every loop, in order. The caller must hold the lock."""
        self.durable = zxid
        batch: list[tuple[int, list[WatchCall]]] = []
        while self.in_flight and self.in_flight[0][0] <= zxid:
            batch.append(self.in_flight.popleft())
        for mailbox in list(self.mailboxes.values()):
            self.post(mailbox, mailbox.receive, batch)

    def post(self, mailbox: Mailbox, callback: Callable[..., None], *arguments: object) -> None:
        try:
            if mailbox.loop is running_loop():
                mailbox.loop.call_soon(callback, *arguments)
            else:
                mailbox.loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # that loop is closed
            self.mailboxes.pop(mailbox.loop, None)


class Mailbox:
    """Delivers durable transactions to one event loop. Used on that loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, settled: int) -> None:
        self.loop = loop
        self.settled = settled  # zxid up to which all watches have been called
        self.waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.failure: StorageError | None = None

    def wait_for(self, zxid: int) -> asyncio.Future[None]:
        """Return a future that is done when all transactions up to `zxid` are durable and their watches called."""
        future: asyncio.Future[None] = self.loop.create_future()
        if self.failure is not None:
            future.set_exception(copy_failure(self.failure))
        elif zxid <= self.settled:
            future.set_result(None)
        else:
            self.waiters.append((zxid, future))
        return future

    def receive(self, batch: list[tuple[int, list[WatchCall]]]) -> None:
        # One call_soon per watch: the loop reports an exception of a watch, and the others still run.
        for zxid, calls in batch:
            for session, watch, event in calls:
                if session.mailbox is self:
                    self.loop.call_soon(session.call_watch, watch, event)
            self.loop.call_soon(self.settle, zxid)

    def settle(self, zxid: int) -> None:
        self.settled = zxid
        while self.waiters and self.waiters[0][0] <= zxid:
            _, future = self.waiters.popleft()
            if not future.done():
                future.set_result(None)

    def fail(self, failure: StorageError) -> None:
        self.failure = failure
        while self.waiters:
            _, future = self.waiters.popleft()
            if not future.done():
                future.set_exception(copy_failure(failure))


class EmbeddedSession:
    """One client of an EmbeddedRegistry. See RegistrySession in ports.py for the contract."""

    def __init__(
        self, registry: EmbeddedRegistry, mailbox: Mailbox, session_id: int, timeout_ms: int
    ) -> None:
        self.registry = registry
        self.mailbox = mailbox
        self.id = session_id
        self.timeout_ms = timeout_ms
        self.state = SessionState.CONNECTED
        self.listeners: list[Callable[[SessionState], None]] = []
        self.countdown: asyncio.TimerHandle | None = None

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        self.listeners.append(listener)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]:
        def read() -> tuple[bytes, ZnodeStat]:
            node = self.registry.tree.node(path)
            if watch is not None:
                self.registry.watches.add_data(path, (self, watch))
            return node.data, node.stat()

        return await self.perform(read)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, ZnodeStat] | None]:
        def read() -> list[tuple[bytes, ZnodeStat] | None]:
            nodes = map(self.registry.tree.find, paths)
            return [None if node is None else (node.data, node.stat()) for node in nodes]

        return await self.perform(read)

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        def read() -> ZnodeStat | None:
            node = self.registry.tree.find(path)
            if watch is not None:
                self.registry.watches.add_data(path, (self, watch))
            return None if node is None else node.stat()

        return await self.perform(read)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def read() -> list[str]:
            names = self.registry.tree.children(path)
            if watch is not None:
                self.registry.watches.add_child(path, (self, watch))
            return names

        return await self.perform(read)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, ZnodeStat]:
        op = Create(path=path, data=bytes(data), ephemeral=ephemeral, sequential=sequential)

        def write() -> tuple[str, ZnodeStat]:
            created = cast(str, self.apply_one(op))
            return created, self.registry.tree.node(created).stat()

        return await self.perform(write)

    async def set(self, path: str, data: bytes, version: int = -1) -> ZnodeStat:
        op = SetData(path=path, data=bytes(data), version=version)
        return cast(ZnodeStat, await self.perform(lambda: self.apply_one(op)))

    async def delete(self, path: str, version: int = -1) -> None:
        op = Delete(path=path, version=version)
        await self.perform(lambda: self.apply_one(op))

    async def multi(self, ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        return await self.perform(lambda: list(self.registry.apply(self, ops).results))

    async def close(self) -> None:
        if self.state is not SessionState.SUSPENDED:  # an abandoned session expires by its timeout
            await self.registry.end_session(self, notify=False)

    async def abandon(self) -> None:
        self.registry.abandon(self)

    def apply_one(self, op: Op) -> str | ZnodeStat | None:
        try:
            return self.registry.apply(self, [op]).results[0]
        except MultiFailed as failed:
            raise failed.error from None

    async def perform(self, work: Callable[[], T]) -> T:
        """Call `work` on the tree now. Return its result when all transactions in the tree are durable."""
        registry = self.registry
        outcome: T | RegistryError
        with registry.lock:
            if registry.failure is not None:
                raise copy_failure(registry.failure)
            if self.state is not SessionState.CONNECTED:
                raise RegistrySessionExpired("", f"session {self.id:#x} has ended")
            try:
                outcome = work()
            except RegistryError as error:
                outcome = error
            zxid = registry.sent
        if zxid > self.mailbox.settled:
            await self.mailbox.wait_for(zxid)
        if isinstance(outcome, RegistryError):
            raise outcome
        return outcome

    def call_watch(self, watch: Watch, event: WatchEvent) -> None:
        if self.state is SessionState.CONNECTED:
            watch(event)

    def on_expired(self) -> None:
        for listener in self.listeners:
            self.mailbox.loop.call_soon(listener, SessionState.EXPIRED)


def copy_failure(failure: StorageError) -> StorageError:
    """Return a copy of a failure: one exception object must not be raised in two tasks."""
    return type(failure)(failure.path, failure.why, failure.position)


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
