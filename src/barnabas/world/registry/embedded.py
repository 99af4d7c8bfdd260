"""A registry inside this process: ZooKeeper's semantics without ZooKeeper, for a cluster on one machine.

    session call ──► tree (in memory) ──► writer thread ──► disk
                                                  │
    watches, then the answer  ◄── mailbox ◄───────┘         one mailbox per event loop

The law: nobody learns of a change before it is durable, and everybody learns of changes in their order. A
call is decided at once against the tree; its answer, good or bad, read or write, is held back until every
transaction the tree then contained is on the disk and the watches those fired have run. So a session sees the
event before it can see the new data, as ZooKeeper promises. Where nothing is in flight a read answers at once.

With `path=None` nothing is kept and no thread runs; order and timing of answers are the same.

Sessions end with their process; the next one to open the directory removes their ephemeral nodes. Within it a client
needs no heartbeat: whoever kills or halts it says so (`abandon`, `count_down`), and from then on its time runs.

A disk that refuses a commit ends the registry: sessions expire, and every further call raises that StorageError.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

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
from barnabas.world.registry.watches import Watches

if TYPE_CHECKING:
    from barnabas.world.registry.writer import Writer

T = TypeVar("T")

# Session ids look like those of ZooKeeper server 1; below that mark stands the zxid at which the session began.
# A zxid never comes back once durable, so no node of a former process is ever owned by a later session.
SESSION_ID_MARK = 1 << 56


class Notice(NamedTuple):
    session: EmbeddedSession
    watch: Watch
    event: WatchEvent


class EmbeddedRegistry:
    """The znode tree in the directory `path`, or in memory alone. All methods belong to an event loop; sessions
    on several loops may share one registry."""

    def __init__(self, path: str | None, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        # Guards what follows. Held for the time of a dictionary access, never over I/O.
        self.lock = threading.Lock()
        self.tree = Tree()
        self.watches = Watches()
        self.sessions: dict[int, EmbeddedSession] = {}
        self.mailboxes: dict[asyncio.AbstractEventLoop, Mailbox] = {}
        self.in_flight: deque[tuple[int, list[Notice]]] = deque()
        self.sent = self.durable = 0  # the zxid of the last transaction in flight, and on the disk
        self.writer: Writer | None = None
        self.failure: StorageError | None = None
        self.closed = False

    async def open(self) -> None:
        """Recover what is on the disk. `connect` does this too; call it to meet errors early: DirectoryLocked,
        StorageError."""
        if self.path is None:
            return
        with self.lock:
            if self.closed:
                raise RegistryError("", "the registry is closed")
            if self.writer is None:
                # SQLite is loaded here and not above: a registry in memory does not pay for it.
                from barnabas.world.registry.writer import Writer

                self.writer = Writer(self.path, self.committed)
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
                raise again(self.failure)
            if self.closed:
                raise RegistryError("", "the registry is closed")
            mailbox = self.mailboxes.get(loop)
            if mailbox is None:
                mailbox = self.mailboxes[loop] = Mailbox(loop, self.durable)
            # Not written by itself: whatever the session makes durable is durable with a later zxid.
            began = self.tree.apply([], session=0, now_ms=self.clock.now_ms())
            session = EmbeddedSession(
                self, mailbox, id=SESSION_ID_MARK | began.zxid, timeout_ms=session_timeout_ms
            )
            self.sessions[session.id] = session
        return session

    def expire(self, session: EmbeddedSession) -> asyncio.Future[None]:
        """End a session as if its time had run out. Await the result to know its ephemeral nodes gone."""
        return self.end(session, tell=True)

    def abandon(self, session: EmbeddedSession) -> None:
        """The session's client is dead as of now: it hears nothing more, and the session expires when its
        timeout has passed. To be called on a loop that goes on; the client's own may be gone."""
        with self.lock:
            if session.id not in self.sessions or session.state is SessionState.SUSPENDED:
                return
            self.watches.drop_session(session.id)
            session.state = SessionState.SUSPENDED
            session.listeners.clear()
        self.count_down(session)

    def count_down(self, session: EmbeddedSession) -> None:
        """The session's client is silent as of now. What it is to be told waits for it, but unless it is heard of
        again (`revive`) before its timeout has passed, the session expires. To be called on a loop that goes on."""
        if session.countdown is None:
            loop = asyncio.get_running_loop()
            session.countdown = loop.call_later(session.timeout_ms / 1000, self.time_out, session)

    def revive(self, session: EmbeddedSession) -> None:
        """The client of a session that counts down is heard of again. On the loop of `count_down`."""
        if session.countdown is not None:
            session.countdown.cancel()
            session.countdown = None

    def time_out(self, session: EmbeddedSession) -> None:
        """Expire it, from any thread."""
        with self.lock:
            if session.id in self.sessions:
                self.finish(session, tell=True)

    def expire_abandoned(self) -> None:
        """Nobody has time for the dead any more. From any thread."""
        with self.lock:
            for session in list(self.sessions.values()):
                if session.state is SessionState.SUSPENDED:
                    self.finish(session, tell=False)

    async def close(self) -> None:
        """End all sessions, wait until that is durable, let go of the directory."""
        if self.closed:
            return
        self.closed = True
        with self.lock:
            for session in list(self.sessions.values()):
                self.finish(session, tell=True)
            mailbox = self.mailboxes.get(asyncio.get_running_loop())
        if self.writer is not None:
            await asyncio.wrap_future(self.writer.stop())
        if mailbox is not None and self.failure is None:
            await mailbox.wait_for(self.sent)

    # ---- for sessions

    def apply(self, session: EmbeddedSession, ops: Sequence[Op]) -> Transaction:
        """Decide a transaction and send it on its way to the disk. The lock is held."""
        transaction = self.tree.apply(ops, session=session.id, now_ms=self.clock.now_ms())
        self.send(transaction)
        return transaction

    def end(self, session: EmbeddedSession, *, tell: bool) -> asyncio.Future[None]:
        with self.lock:
            if session.id in self.sessions:
                self.finish(session, tell=tell)
            return session.mailbox.wait_for(self.sent)

    def finish(self, session: EmbeddedSession, *, tell: bool) -> None:
        """No more calls, no more watches, and the ephemeral nodes go. The lock is held."""
        session.state = SessionState.EXPIRED
        self.post(session.mailbox, session.ended, tell)
        del self.sessions[session.id]
        self.watches.drop_session(session.id)
        self.send(self.tree.end_session(session.id, now_ms=self.clock.now_ms()))

    def send(self, transaction: Transaction) -> None:
        fired = self.watches.fire(transaction.changes)
        notices = [
            Notice(self.sessions[firing.session], firing.watch, firing.event) for firing in fired
        ]
        self.sent = transaction.zxid
        self.in_flight.append((transaction.zxid, notices))
        if self.writer is None:
            self.deliver(transaction.zxid)
        else:
            self.writer.put(transaction)

    # ---- from the writer

    def committed(self, zxid: int, failure: StorageError | None) -> None:
        """All transactions up to `zxid` are durable, or none in flight ever will be. On the writer's thread."""
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
                self.post(session.mailbox, session.ended, True)
            self.sessions.clear()

    def deliver(self, zxid: int) -> None:
        """Tell every loop, in order, of what is durable now. The lock is held."""
        self.durable = zxid
        batch: list[tuple[int, list[Notice]]] = []
        while self.in_flight and self.in_flight[0][0] <= zxid:
            batch.append(self.in_flight.popleft())
        for mailbox in list(self.mailboxes.values()):
            self.post(mailbox, mailbox.receive, batch)

    def post(self, mailbox: Mailbox, tell: Callable[..., None], *arguments: object) -> None:
        try:
            if mailbox.loop is running_loop():
                mailbox.loop.call_soon(tell, *arguments)
            else:
                mailbox.loop.call_soon_threadsafe(tell, *arguments)
        except RuntimeError:  # that loop is closed, and with it all who could have listened
            self.mailboxes.pop(mailbox.loop, None)


class Mailbox:
    """Where one event loop learns what has become durable. Touched on that loop alone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, settled: int) -> None:
        self.loop = loop
        self.settled = settled
        self.waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.failure: StorageError | None = None

    def wait_for(self, zxid: int) -> asyncio.Future[None]:
        """Done when all up to `zxid` is durable and its watches have run."""
        future: asyncio.Future[None] = self.loop.create_future()
        if self.failure is not None:
            future.set_exception(again(self.failure))
        elif zxid <= self.settled:
            future.set_result(None)
        else:
            self.waiters.append((zxid, future))
        return future

    def receive(self, batch: list[tuple[int, list[Notice]]]) -> None:
        # Each by its own call_soon: a watch that raises is reported by the loop and stops nobody else.
        for zxid, notices in batch:
            for notice in notices:
                if notice.session.mailbox is self:
                    self.loop.call_soon(notice.session.hear, notice.watch, notice.event)
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
                future.set_exception(again(failure))


class EmbeddedSession:
    """One client of an EmbeddedRegistry; see RegistrySession for what each call means."""

    def __init__(
        self,
        registry: EmbeddedRegistry,
        mailbox: Mailbox,
        *,
        id: int,  # noqa: A002 - the port's name
        timeout_ms: int,
    ) -> None:
        self.registry = registry
        self.mailbox = mailbox
        self.id = id
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
                self.registry.watches.add_data(path, self.id, watch)
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
                self.registry.watches.add_data(path, self.id, watch)
            return None if node is None else node.stat()

        return await self.perform(read)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def read() -> list[str]:
            names = self.registry.tree.children(path)
            if watch is not None:
                self.registry.watches.add_child(path, self.id, watch)
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
        if self.state is not SessionState.SUSPENDED:  # the dead say no goodbye
            await self.registry.end(self, tell=False)

    async def abandon(self) -> None:
        """As if this client had died: the session ends when its timeout has passed."""
        self.registry.abandon(self)

    def apply_one(self, op: Op) -> str | ZnodeStat | None:
        try:
            return self.registry.apply(self, [op]).results[0]
        except MultiFailed as failed:
            raise failed.error from None

    async def perform(self, work: Callable[[], T]) -> T:
        """Do `work` on the tree now, and answer when all that the tree then contains is durable."""
        registry = self.registry
        outcome: T | RegistryError
        with registry.lock:
            if registry.failure is not None:
                raise again(registry.failure)
            if self.state is not SessionState.CONNECTED:
                raise RegistrySessionExpired("", f"session {self.id:#x} is over")
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

    def hear(self, watch: Watch, event: WatchEvent) -> None:
        if self.state is SessionState.CONNECTED:
            watch(event)

    def ended(self, tell: bool) -> None:
        if tell:
            for listener in self.listeners:
                self.mailbox.loop.call_soon(listener, SessionState.EXPIRED)


def again(failure: StorageError) -> StorageError:
    """The same failure for another caller: one exception object must not be raised in two tasks."""
    return type(failure)(failure.path, failure.why, failure.position)


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
