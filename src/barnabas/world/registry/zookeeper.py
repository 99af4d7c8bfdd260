"""The registry in a ZooKeeper ensemble, through kazoo; its thread ends in kazoo_thread.py.

A lost connection is waited out: whatever had no answer is sent again, without bound, on the next connection of the
session. So a call may find its own earlier attempt done (NodeExists, BadVersion), and whoever makes it must look.

Watches outlive a connection, as the port promises, though ZooKeeper forgets them with it and kazoo lets them go. The
session keeps its own table of them. On a new connection each watched path is read again before any other call is sent:
what changed since the last transaction seen on the old connection fires, the rest is armed anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    WriterNotClosedException,
)
from kazoo.hosts import collect_hosts
from kazoo.protocol import serialization
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from barnabas.errors import (
    BadPath,
    BadVersion,
    ConfigError,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    RegistryError,
    RegistryUnreachable,
    SessionExpired,
)
from barnabas.world.ports import (
    Check,
    Create,
    Delete,
    Op,
    SessionState,
    SetData,
    Watch,
    WatchEvent,
    WatchKind,
    ZnodeStat,
)
from barnabas.world.registry.kazoo_thread import Inbox, OneThreadHandler
from barnabas.world.registry.tree import ROOT, check_path, parent_of

logger = logging.getLogger("barnabas.registry")
kazoo_logger = logging.getLogger("barnabas.registry.kazoo")
kazoo_logger.setLevel(logging.ERROR)  # what it says below that, the session says in our words

IN_FLIGHT_DEFAULT = 10  # that of zookeeper.max.in.flight.requests
# Kazoo wakes its thread by one byte per request through a socket pair, which takes some 270 before it blocks the loop.
IN_FLIGHT_MAX = 200
# A server closes the connection on a longer request (jute.maxbuffer), which would be sent again and again.
REQUEST_BYTES_MAX = 0xFFFFF
REQUEST_OVERHEAD_BYTES = 64  # of each operation, besides its path and data

ERRORS: dict[type[KazooException], type[RegistryError]] = {
    NoNodeError: NoNode,
    NodeExistsError: NodeExists,
    BadVersionError: BadVersion,
    NotEmptyError: NotEmpty,
    NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    SessionExpiredError: SessionExpired,
}
KINDS = {
    EventType.CREATED: WatchKind.CREATED,
    EventType.DELETED: WatchKind.DELETED,
    EventType.CHANGED: WatchKind.CHANGED,
    EventType.CHILD: WatchKind.CHILDREN,
}
EPHEMERAL, SEQUENTIAL = 1, 2


class ZooKeeperRegistry:
    """`connect_string` as in zookeeper.connect: `h1:2181,h2:2181/chroot`; the chroot is made if it is missing."""

    def __init__(
        self,
        connect_string: str,
        *,
        connection_timeout_ms: int,
        in_flight_max: int = IN_FLIGHT_DEFAULT,
    ) -> None:
        self.hosts, self.root = parse_connect_string(connect_string)
        self.connection_timeout_ms = connection_timeout_ms
        self.in_flight_max = min(in_flight_max, IN_FLIGHT_MAX)
        self.sessions: list[ZooKeeperSession] = []

    async def connect(self, session_timeout_ms: int) -> ZooKeeperSession:
        """RegistryError if no server answers within the connection timeout."""
        session = ZooKeeperSession(self, session_timeout_ms)
        self.sessions.append(session)
        try:
            async with asyncio.timeout(self.connection_timeout_ms / 1000):
                await session.start()
                await session.make_root()
        except TimeoutError:
            await session.abandon()
            raise RegistryUnreachable(
                "",
                f"no ZooKeeper answers at {self.hosts} within {self.connection_timeout_ms} ms: "
                "start one (`barnabas zookeeper`), or correct zookeeper.connect",
            ) from None
        except BaseException:
            await session.abandon()
            raise
        return session

    async def close(self) -> None:
        """End all sessions."""
        for session in list(self.sessions):
            await session.close()


def parse_connect_string(text: str) -> tuple[str, str]:
    """`h1:2181,h2:2181/kafka` → (`h1:2181,h2:2181`, `/kafka`)."""
    hosts, slash, rest = text.strip().partition("/")
    root = (slash + rest).rstrip("/")
    try:
        collect_hosts(hosts)
        if root:
            check_path(root)
    except (ValueError, BadPath) as error:
        raise ConfigError(
            "zookeeper.connect", f"'{text}' is not host:port,…/chroot: {error}"
        ) from None
    return hosts, root


class Call:
    """A request on its way: which connection it was given to, and what to remember when it succeeds."""

    __slots__ = ("arm", "connection", "future", "is_read")

    def __init__(
        self,
        future: asyncio.Future[Any],
        connection: int,
        *,
        is_read: bool,
        arm: Callable[[Any], None] | None,
    ) -> None:
        self.future = future
        self.connection = connection
        self.is_read = is_read
        self.arm = arm


class ZooKeeperSession:
    """One session of a ZooKeeper; see RegistrySession for what each call means."""

    def __init__(self, registry: ZooKeeperRegistry, timeout_ms: int) -> None:
        self.registry = registry
        self.root = registry.root
        self.loop = asyncio.get_running_loop()
        self.inbox = Inbox(self.loop)
        hosts, _ = collect_hosts(registry.hosts)
        self.handler = OneThreadHandler(timeout_ms / 1000 / len(hosts))
        self.kazoo = KazooClient(
            hosts=registry.hosts,
            timeout=timeout_ms / 1000,
            handler=self.handler,
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.05, max_delay=1.0, sleep_func=self.handler.sleep_func
            ),
            # Never used, since we send again ourselves; but it must have the same sleep.
            command_retry=KazooRetry(sleep_func=self.handler.sleep_func),
            logger=kazoo_logger,
        )
        self.kazoo.add_listener(self.hear_state_on_thread)
        self.credentials: tuple[int, bytes] = (0, b"")
        self.state = SessionState.SUSPENDED
        self.listeners: list[Callable[[SessionState], None]] = []
        self.ended: asyncio.Future[None] | None = None

        self.ready = asyncio.Event()
        """Connected, and the watches armed: calls may be sent. Also set at the end, for calls to notice it."""
        self.connection = 0  # counts
        self.slots = asyncio.Semaphore(registry.in_flight_max)
        self.calls: dict[Call, None] = {}

        # Insertion order is the order of being told. A path's data watches all know the same node, or none.
        self.data_watches: dict[str, dict[Watch, None]] = {}
        self.child_watches: dict[str, dict[Watch, None]] = {}
        self.absent: set[str] = set()  # watched for their creation
        self.unarmed_since: int | None = None
        self.arming: asyncio.Task[None] | None = None

    @property
    def id(self) -> int:
        return self.credentials[0]

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        self.listeners.append(listener)

    # ---- reads

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]:
        full = self.full(path)

        def send(hook: object) -> Any:
            return self.kazoo.get_async(full, hook)

        data, stat = await self.read(path, send, watch, self.arm_data)
        return data or b"", to_stat(stat)

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        full = self.full(path)

        def send(hook: object) -> Any:
            return self.kazoo.exists_async(full, hook)

        stat = await self.read(path, send, watch, self.arm_data)
        return None if stat is None else to_stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        full = self.full(path)

        def send(hook: object) -> Any:
            return self.kazoo.get_children_async(full, hook)

        return sorted(await self.read(path, send, watch, self.arm_child))

    # ---- writes

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, ZnodeStat]:
        op = Create(path=path, data=data, ephemeral=ephemeral, sequential=sequential)
        request = self.request(op)
        check_size([op])
        created, stat = await self.perform(
            path,
            lambda: self.kazoo.create_async(
                request.path,
                request.data,
                ephemeral=ephemeral,
                sequence=sequential,
                include_data=True,
            ),
        )
        return self.stripped(created), to_stat(stat)

    async def set(self, path: str, data: bytes, version: int = -1) -> ZnodeStat:
        op = SetData(path=path, data=data, version=version)
        request = self.request(op)
        check_size([op])
        return to_stat(
            await self.perform(
                path, lambda: self.kazoo.set_async(request.path, request.data, version)
            )
        )

    async def delete(self, path: str, version: int = -1) -> None:
        request = self.request(Delete(path=path, version=version))
        await self.perform(path, lambda: self.kazoo.delete_async(request.path, version))

    async def multi(self, ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        requests = []
        for index, op in enumerate(ops):
            try:
                requests.append(self.request(op))
            except BadPath as error:
                raise MultiFailed(index, error) from None
        check_size(ops)

        def send() -> Any:
            transaction = TransactionRequest(self.kazoo)
            transaction.operations.extend(requests)
            return transaction.commit_async()

        results = await self.perform("", send)
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(
                result, RolledBackError | RuntimeInconsistency
            ):
                raise MultiFailed(index, translated(result, ops[index].path))
        return [self.told(op, result) for op, result in zip(ops, results, strict=True)]

    def request(self, op: Op) -> Any:
        match op:
            case Create():
                # The digits are part of the name, so "/a/" is a fine path for a sequential node.
                check_path(op.path + "0" if op.sequential else op.path)
                full = self.root + op.path if op.path != ROOT or op.sequential else self.full(ROOT)
                flags = EPHEMERAL * op.ephemeral | SEQUENTIAL * op.sequential
                return serialization.Create(full, to_wire(op.data), OPEN_ACL_UNSAFE, flags)
            case SetData():
                return serialization.SetData(self.full(op.path), to_wire(op.data), op.version)
            case Delete():
                if op.path == ROOT:
                    raise BadPath(ROOT, "the root cannot be deleted")
                return serialization.Delete(self.full(op.path), op.version)
            case Check():
                return serialization.CheckVersion(self.full(op.path), op.version)

    def told(self, op: Op, result: Any) -> str | ZnodeStat | None:
        match op:
            case Create():
                return self.stripped(result)
            case SetData():
                return to_stat(result)
            case _:
                return None

    # ---- calls

    async def read(
        self,
        path: str,
        send: Callable[[object], Any],
        watch: Watch | None,
        arm: Callable[[str, Watch, Any], None],
    ) -> Any:
        if watch is None:
            return await self.perform(path, lambda: send(None), is_read=True)
        return await self.perform(
            path,
            lambda: send(self.hear_event_on_thread),
            is_read=True,
            arm=lambda result: arm(path, watch, result),
        )

    async def perform(
        self,
        path: str,
        send: Callable[[], Any],
        *,
        is_read: bool = False,
        arm: Callable[[Any], None] | None = None,
    ) -> Any:
        """The answer to what `send` asks, on this connection or one of the next."""
        while True:
            await self.ready.wait()
            async with self.slots:
                if not self.ready.is_set():
                    continue
                try:
                    return await self.exchange(send, is_read=is_read, arm=arm)
                except ConnectionLoss:
                    continue
                except KazooException as error:
                    raise translated(error, path) from None

    async def exchange(
        self,
        send: Callable[[], Any],
        *,
        is_read: bool = False,
        arm: Callable[[Any], None] | None = None,
    ) -> Any:
        if self.state is SessionState.EXPIRED:
            raise self.expired()
        call = Call(self.loop.create_future(), self.connection, is_read=is_read, arm=arm)
        self.calls[call] = None
        send().rawlink(lambda result: self.inbox.put(self.answer, call, result))
        return await call.future

    def answer(self, call: Call, result: Any) -> None:
        self.calls.pop(call, None)
        if call.future.done():
            return
        if isinstance(result.exception, ConnectionLoss):
            self.ready.clear()  # the state follows; whoever tries again waits for the next connection
            call.future.set_exception(ConnectionLoss())  # kazoo's is one object for all who waited
        elif result.exception is not None:
            call.future.set_exception(result.exception)
        elif call.is_read and call.connection != self.connection:
            # Given to a connection that was just being lost, it went out on the next one before the watches were armed
            # again: it may tell of a change whose event is still to come.
            call.future.set_exception(ConnectionLoss())
        else:
            if call.arm is not None:
                call.arm(result.value)
            call.future.set_result(result.value)

    # ---- watches

    def arm_data(self, path: str, watch: Watch, result: Any) -> None:
        self.data_watches.setdefault(path, {})[watch] = None
        if result is None:
            self.absent.add(path)

    def arm_child(self, path: str, watch: Watch, _: Any) -> None:
        self.child_watches.setdefault(path, {})[watch] = None

    def hear_event_on_thread(self, event: WatchedEvent) -> None:
        if event.type in KINDS:  # not NONE: so kazoo tells that it lets go of a watch
            self.inbox.put(self.fire, KINDS[event.type], event.path)

    def fire(self, kind: WatchKind, full: str) -> None:
        path = self.stripped(full)
        told: dict[Watch, None] = {}
        if kind is not WatchKind.CHILDREN:
            told |= self.data_watches.pop(path, {})
            self.absent.discard(path)
        if kind in (WatchKind.CHILDREN, WatchKind.DELETED):
            told |= self.child_watches.pop(path, {})
        for watch in told:
            # Each by its own call_soon: a watch that raises is reported by the loop and stops nobody else.
            self.loop.call_soon(self.tell, watch, WatchEvent(kind, path))

    def tell(self, watch: Watch, event: WatchEvent) -> None:
        if self.state is not SessionState.EXPIRED:
            watch(event)

    async def arm_again(self) -> None:
        """Every watched path is read on the new connection, and what changed meanwhile fires."""
        since = self.unarmed_since
        assert since is not None
        hook = self.hear_event_on_thread

        async def look(path: str, *, at_children: bool) -> None:
            full = self.full(path)
            async with self.slots:
                if at_children:
                    send = partial(self.kazoo.get_children_async, full, hook, include_data=True)
                else:
                    send = partial(self.kazoo.exists_async, full, hook)
                try:
                    result = await self.exchange(send)
                except NoNodeError:
                    result = None
            if at_children:
                if result is None:
                    self.fire(WatchKind.DELETED, full)
                elif result[1].pzxid > since:
                    self.fire(WatchKind.CHILDREN, full)
            elif result is None and path not in self.absent:
                self.fire(WatchKind.DELETED, full)
            elif result is not None and path in self.absent:
                self.fire(WatchKind.CREATED, full)
            elif result is not None and result.mzxid > since:
                self.fire(WatchKind.CHANGED, full)

        try:
            await asyncio.gather(
                *(look(path, at_children=False) for path in list(self.data_watches)),
                *(look(path, at_children=True) for path in list(self.child_watches)),
            )
        except (KazooException, SessionExpired):
            return  # this connection is gone, too
        self.unarmed_since = None
        self.ready.set()

    # ---- states

    def hear_state_on_thread(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self.inbox.put(self.connected, self.kazoo.client_id)
        elif state == KazooState.SUSPENDED:
            self.inbox.put(self.suspended, self.kazoo.last_zxid)
        else:
            self.handler.is_over = True  # before kazoo can think of a new session
            self.inbox.put(self.lost)

    def connected(self, credentials: tuple[int, bytes]) -> None:
        if self.state is SessionState.EXPIRED:
            return
        is_first = not self.id
        self.credentials = credentials
        self.change_state(SessionState.CONNECTED)
        if self.unarmed_since is None:
            self.ready.set()
        else:
            self.arming = self.loop.create_task(self.arm_again(), name="arm watches")
        if not is_first:
            logger.info("connected to ZooKeeper again session=%#x", self.id)

    def suspended(self, last_zxid: int) -> None:
        if self.state is SessionState.EXPIRED:
            return
        self.connection += 1
        self.ready.clear()
        if self.arming is not None:
            self.arming.cancel()
        if self.unarmed_since is None:
            self.unarmed_since = last_zxid
        logger.warning("connection to ZooKeeper lost session=%#x", self.id)
        self.change_state(SessionState.SUSPENDED)

    def lost(self) -> None:
        if self.state is not SessionState.EXPIRED:
            self.change_state(SessionState.EXPIRED)
            self.end()

    def change_state(self, state: SessionState) -> None:
        self.state = state
        for listener in self.listeners:
            self.loop.call_soon(listener, state)

    def expired(self) -> SessionExpired:
        return SessionExpired("", f"session {self.id:#x} is over")

    # ---- begin and end

    async def start(self) -> None:
        self.kazoo.start_async()
        await self.ready.wait()

    async def make_root(self) -> None:
        """The chroot, with what stands above it."""
        if not self.root or await self.exists(ROOT) is not None:
            return
        missing = [self.root]
        while (above := parent_of(missing[0])) != ROOT:
            missing.insert(0, above)
        for path in missing:
            with suppress(NodeExists):
                await self.perform(path, partial(self.kazoo.create_async, path, None))

    async def close(self) -> None:
        self.state = SessionState.EXPIRED
        await asyncio.shield(self.end())

    async def abandon(self) -> None:
        self.state = SessionState.EXPIRED
        self.handler.drop_connection()
        await asyncio.shield(self.end())

    def end(self) -> asyncio.Future[None]:
        """Nobody waits any longer, and the thread ends: with a goodbye to the server, if there is a connection."""
        if self.ended is None:
            if self.arming is not None:
                self.arming.cancel()
            for call in list(self.calls):
                if not call.future.done():
                    call.future.set_exception(self.expired())
            self.calls.clear()
            self.ready.set()
            self.registry.sessions.remove(self)
            self.ended = self.loop.run_in_executor(None, self.end_kazoo)
        return self.ended

    def end_kazoo(self) -> None:
        try:
            self.kazoo.stop()
            self.kazoo.close()
        except WriterNotClosedException as error:
            logger.warning("a connection to ZooKeeper does not end error=%s", error)

    # ---- paths

    def full(self, path: str) -> str:
        check_path(path)
        if path == ROOT:
            return self.root or ROOT
        return self.root + path

    def stripped(self, full: str) -> str:
        return full[len(self.root) :] or ROOT


def check_size(ops: Sequence[Op]) -> None:
    size = 0
    for op in ops:
        data = op.data if isinstance(op, Create | SetData) else b""
        size += len(op.path.encode()) + len(data) + REQUEST_OVERHEAD_BYTES
    if size > REQUEST_BYTES_MAX:
        raise RegistryError(
            ops[0].path,
            f"{size} bytes in one request, where ZooKeeper takes {REQUEST_BYTES_MAX} (jute.maxbuffer)",
        )


def to_wire(data: bytes) -> bytes | None:
    """Kafka's nodes without content hold null."""
    return bytes(data) or None


def to_stat(stat: Any) -> ZnodeStat:
    return ZnodeStat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        pzxid=stat.pzxid,
        ctime_ms=stat.ctime,
        mtime_ms=stat.mtime,
        version=stat.version,
        cversion=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner,
        data_length=stat.dataLength,
        num_children=stat.numChildren,
    )


def translated(error: Exception, path: str) -> RegistryError:
    for theirs, ours in ERRORS.items():
        if isinstance(error, theirs):
            return ours(path)
    return RegistryError(path, f"ZooKeeper says {type(error).__name__} {error}".rstrip())
