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
    ConnectionLoss,
    KazooException,
    NoNodeError,
    WriterNotClosedException,
)
from kazoo.protocol.states import KazooState, WatchedEvent
from kazoo.retry import KazooRetry

from barnabas.errors import (
    BadPath,
    MultiFailed,
    NodeExists,
    NoNode,
    RegistrySessionExpired,
    RegistryUnreachable,
    reason,
)
from barnabas.world.ports import (
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
from barnabas.world.registry.armed_watches import ArmedWatches
from barnabas.world.registry.kazoo_thread import Inbox, OneThreadHandler
from barnabas.world.registry.tree import ROOT, parent_of
from barnabas.world.registry.zookeeper_values import (
    WATCH_KINDS,
    MultiRead,
    Unimplemented,
    check_request_size,
    parse_connect_string,
    read_result,
    to_registry_error,
    to_stat,
)

logger = logging.getLogger("barnabas.registry")
kazoo_logger = logging.getLogger("barnabas.registry.kazoo")
kazoo_logger.setLevel(logging.ERROR)  # what it says below that, the session says in our words

IN_FLIGHT_DEFAULT = 10  # that of zookeeper.max.in.flight.requests
# Kazoo wakes its thread by one byte per request through a socket pair, which takes some 270 before it blocks the loop.
IN_FLIGHT_MAX = 200
GOODBYE_S = 2.0
SILENT_S = 1.0
SHORTEST_ATTEMPT_S = 1.0


class ZooKeeperRegistry:
    """`connect_string` as in zookeeper.connect: `h1:2181,h2:2181/chroot`; the chroot is made if it is missing,
    unless told otherwise."""

    def __init__(
        self,
        connect_string: str,
        *,
        connection_timeout_ms: int,
        in_flight_max: int = IN_FLIGHT_DEFAULT,
        create_chroot: bool = True,
    ) -> None:
        self.hosts, self.host_count, self.chroot = parse_connect_string(connect_string)
        self.connection_timeout_ms = connection_timeout_ms
        self.in_flight_max = min(in_flight_max, IN_FLIGHT_MAX)
        self.reads_many = True
        self.create_chroot = create_chroot
        self.sessions: list[ZooKeeperSession] = []

    async def connect(self, session_timeout_ms: int) -> ZooKeeperSession:
        """RegistryError if no server answers within the connection timeout."""
        session = ZooKeeperSession(self, session_timeout_ms)
        self.sessions.append(session)
        telling = asyncio.create_task(self.tell_of_waiting(session), name="tell of waiting")
        try:
            async with asyncio.timeout(self.connection_timeout_ms / 1000):
                await session.start()
                if self.create_chroot:
                    await session.make_root()
        except TimeoutError:
            why = await session.cause()
            await session.abandon()
            raise RegistryUnreachable(
                "",
                f"no ZooKeeper answers at {self.hosts} within {self.connection_timeout_ms} ms ({why}): "
                "start one (`barnabas zookeeper`), or correct zookeeper.connect",
            ) from None
        except BaseException:
            await session.abandon()
            raise
        finally:
            telling.cancel()
        return session

    async def tell_of_waiting(self, session: ZooKeeperSession) -> None:
        await asyncio.sleep(SILENT_S)
        logger.warning(
            "no ZooKeeper answers at %s yet (%s); waiting up to %g s for it",
            self.hosts,
            await session.cause(),
            self.connection_timeout_ms / 1000,
        )

    async def close(self) -> None:
        """End all sessions."""
        for session in list(self.sessions):
            await session.close()


def attempt_s(share_s: float) -> float:
    """How long one attempt to reach a server may take, where each server has this share of the session: another
    attempt must find the session alive.

    >>> attempt_s(18.0), attempt_s(2.0), attempt_s(0.5)
    (6.0, 1.0, 0.5)
    """
    return min(share_s, max(share_s / 3, SHORTEST_ATTEMPT_S))


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
        self.chroot = registry.chroot
        self.loop = asyncio.get_running_loop()
        self.inbox = Inbox(self.loop)
        self.handler = OneThreadHandler(attempt_s(timeout_ms / 1000 / registry.host_count))
        self.kazoo = KazooClient(
            hosts=registry.hosts,
            timeout=timeout_ms / 1000,
            handler=self.handler,
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.05, max_delay=0.5, sleep_func=self.handler.sleep_func
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

        self.watches = ArmedWatches()
        self.unarmed_since: int | None = None
        self.arming: asyncio.Task[None] | None = None

    @property
    def id(self) -> int:
        return self.credentials[0]

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        self.listeners.append(listener)

    # ---- reads

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]:
        data, stat = await self.read(path, self.kazoo.get_async, watch, self.watches.arm_data)
        return data or b"", to_stat(stat)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, ZnodeStat] | None]:
        if self.registry.reads_many:
            request = MultiRead([self.chroot.full(path) for path in paths])
            try:
                found = await self.perform("", partial(self.send, request), is_read=True)
            except Unimplemented:
                # Older than 3.6: it also hangs up, and is not asked again.
                logger.info("the ZooKeeper reads one node at a time")
                self.registry.reads_many = False
            else:
                return [read_result(path, each) for path, each in zip(paths, found, strict=True)]
        return await asyncio.gather(*map(self.get_if_there, paths))

    async def get_if_there(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        try:
            return await self.get(path)
        except NoNode:
            return None

    def send(self, request: Any) -> Any:
        answer = self.kazoo.handler.async_result()
        self.kazoo._call(request, answer)
        return answer

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        stat = await self.read(path, self.kazoo.exists_async, watch, self.watches.arm_data)
        return None if stat is None else to_stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        ask = self.kazoo.get_children_async
        return sorted(await self.read(path, ask, watch, self.watches.arm_child))

    async def read(
        self,
        path: str,
        ask: Callable[[str, object], Any],
        watch: Watch | None,
        arm: Callable[[str, Watch, bool], None],
    ) -> Any:
        full = self.chroot.full(path)
        if watch is None:
            return await self.perform(path, lambda: ask(full, None), is_read=True)
        return await self.perform(
            path,
            lambda: ask(full, self.hear_event_on_thread),
            is_read=True,
            # Here, where answers and events come in their order; whoever waits for the answer runs later.
            arm=lambda answer: arm(path, watch, answer is not None),
        )

    # ---- writes

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, ZnodeStat]:
        op = Create(path=path, data=data, ephemeral=ephemeral, sequential=sequential)
        request = self.chroot.request(op)
        check_request_size([op])
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
        return self.chroot.strip(created), to_stat(stat)

    async def set(self, path: str, data: bytes, version: int = -1) -> ZnodeStat:
        op = SetData(path=path, data=data, version=version)
        request = self.chroot.request(op)
        check_request_size([op])
        return to_stat(
            await self.perform(
                path, lambda: self.kazoo.set_async(request.path, request.data, version)
            )
        )

    async def delete(self, path: str, version: int = -1) -> None:
        request = self.chroot.request(Delete(path=path, version=version))
        await self.perform(path, lambda: self.kazoo.delete_async(request.path, version))

    async def multi(self, ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        requests = []
        for index, op in enumerate(ops):
            try:
                requests.append(self.chroot.request(op))
            except BadPath as error:
                raise MultiFailed(index, error) from None
        check_request_size(ops)

        def send() -> Any:
            transaction = TransactionRequest(self.kazoo)
            transaction.operations.extend(requests)
            return transaction.commit_async()

        return self.chroot.results(ops, await self.perform("", send))

    # ---- calls

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
                    raise to_registry_error(error, path) from None

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
        self.handler.ask(send, lambda result: self.inbox.put(self.answer, call, result))
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

    def hear_event_on_thread(self, event: WatchedEvent) -> None:
        if event.type in WATCH_KINDS:  # not NONE: so kazoo tells that it lets go of a watch
            self.inbox.put(self.fire, WATCH_KINDS[event.type], event.path)

    def fire(self, kind: WatchKind, full: str) -> None:
        path = self.chroot.strip(full)
        for watch in self.watches.take(kind, path):
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
        kazoo, watches = self.kazoo, self.watches

        async def look(send: Callable[[], Any]) -> Any:
            async with self.slots:
                try:
                    return await self.exchange(send)
                except NoNodeError:
                    return None

        async def look_at_data(path: str) -> None:
            full = self.chroot.full(path)
            stat = await look(lambda: kazoo.exists_async(full, hook))
            if missed := watches.missed_data(path, stat and stat.mzxid, since):
                self.fire(missed, full)

        async def look_at_children(path: str) -> None:
            full = self.chroot.full(path)
            found = await look(lambda: kazoo.get_children_async(full, hook, include_data=True))
            if missed := watches.missed_children(found and found[1].pzxid, since):
                self.fire(missed, full)

        try:
            await asyncio.gather(
                *(look_at_data(path) for path in list(watches.data)),
                *(look_at_children(path) for path in list(watches.child)),
            )
        except (KazooException, RegistrySessionExpired):
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

    def expired(self) -> RegistrySessionExpired:
        return RegistrySessionExpired("", f"session {self.id:#x} is over")

    # ---- begin and end

    async def start(self) -> None:
        self.kazoo.start_async()
        await self.ready.wait()

    async def cause(self) -> str:
        """Why there is no connection, as far as it is known."""
        if self.handler.refusal:
            return self.handler.refusal
        for (
            host,
            port,
        ) in self.kazoo.hosts:  # kazoo does not tell which of them it could not resolve
            try:
                await self.loop.getaddrinfo(host, port)
            except OSError:
                return f"unknown host {host}"
        return "no answer"

    async def make_root(self) -> None:
        """The chroot, with what stands above it."""
        root = self.chroot.root
        if not root or await self.exists(ROOT) is not None:
            return
        missing = [root]
        while (above := parent_of(missing[0])) != ROOT:
            missing.insert(0, above)
        for path in missing:
            with suppress(NodeExists):
                await self.perform(path, partial(self.kazoo.create_async, path, None))

    async def close(self) -> None:
        """A goodbye only where somebody hears it: without a server the session times out by itself."""
        if self.state is not SessionState.CONNECTED:
            await self.abandon()
            return
        self.state = SessionState.EXPIRED
        done, _ = await asyncio.wait([self.end()], timeout=GOODBYE_S)
        if not done:
            await self.abandon()

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
            logger.warning("a connection to ZooKeeper does not end error=%s", reason(error))
