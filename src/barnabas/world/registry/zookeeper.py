"""The registry in a ZooKeeper ensemble, through kazoo. The code on kazoo's threads is in kazoo_thread.py.

When the connection is lost, unanswered requests are sent again on the next connection of the session, any number of
times. So a request may fail because an earlier attempt succeeded (NodeExists, BadVersion). The caller must check this.

ZooKeeper and kazoo drop watches when the connection is lost. The session keeps them in its own table. On a new
connection it first reads each watched path again. A watch whose node changed since the last transaction seen on the old
connection fires; the others are set again. The session sends other requests only after that.

With a login, each new connection logs in before the session counts as connected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionLoss,
    KazooException,
    NoNodeError,
    WriterNotClosedException,
)
from kazoo.protocol import serialization
from kazoo.protocol.states import KazooState, WatchedEvent
from kazoo.retry import KazooRetry
from msgspec import Struct

from barnabas.errors import (
    AuthFailed,
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
from barnabas.world.registry.kazoo_thread import Inbox, OneThreadHandler
from barnabas.world.registry.tree import ROOT, parent_of
from barnabas.world.registry.watches import ArmedWatches
from barnabas.world.registry.znode_acls import acl_of
from barnabas.world.registry.zookeeper_security import NO_SECURITY, ZooKeeperSecurity, log_in
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
kazoo_logger.setLevel(logging.ERROR)  # the session logs the events that kazoo logs below ERROR

IN_FLIGHT_DEFAULT = 10  # default of zookeeper.max.in.flight.requests
# Kazoo wakes its thread with one byte per request through a socket pair. About 270 unread bytes would block the loop.
IN_FLIGHT_MAX = 200
CLOSE_TIMEOUT_S = 2.0
WARN_AFTER_S = 1.0
SHORTEST_ATTEMPT_S = 1.0


class ZooKeeperRegistry:
    """A ZooKeeper ensemble. `connect_string` is that of zookeeper.connect: `h1:2181,h2:2181/chroot`."""

    def __init__(
        self,
        connect_string: str,
        *,
        connection_timeout_ms: int,
        in_flight_max: int = IN_FLIGHT_DEFAULT,
        create_chroot: bool = True,
        security: ZooKeeperSecurity = NO_SECURITY,
    ) -> None:
        self.hosts, self.host_count, self.chroot = parse_connect_string(connect_string)
        self.chroot.is_secure = security.set_acl
        self.security = security
        self.connection_timeout_ms = connection_timeout_ms
        self.in_flight_max = min(in_flight_max, IN_FLIGHT_MAX)
        self.has_multi_read = True  # until a server rejects the request
        self.create_chroot = create_chroot
        self.sessions: list[ZooKeeperSession] = []

    async def connect(self, session_timeout_ms: int) -> ZooKeeperSession:
        """Open a session. Raises AuthFailed, or RegistryUnreachable after the connection timeout."""
        session = ZooKeeperSession(self, session_timeout_ms)
        self.sessions.append(session)
        warning = asyncio.create_task(self.warn_of_waiting(session), name="warn of waiting")
        try:
            async with asyncio.timeout(self.connection_timeout_ms / 1000):
                session.kazoo.start_async()
                await session.ready.wait()
                if self.create_chroot and session.login_failure is None:
                    await session.create_root()
                if session.login_failure is not None:
                    raise session.login_failure
        except TimeoutError:
            why = await session.connect_failure()
            await session.abandon()
            correct = "zookeeper.connect" + (" or zookeeper.ssl.*" if self.security.tls else "")
            raise RegistryUnreachable(
                "",
                f"no ZooKeeper answers at {self.hosts} within {self.connection_timeout_ms} ms ({why}): "
                f"start ZooKeeper (`barnabas zookeeper`), or correct {correct}",
            ) from None
        except BaseException:
            await session.abandon()
            raise
        finally:
            warning.cancel()
        return session

    async def warn_of_waiting(self, session: ZooKeeperSession) -> None:
        await asyncio.sleep(WARN_AFTER_S)
        logger.warning(
            "waiting for ZooKeeper hosts=%s reason=%s timeout_s=%g",
            self.hosts,
            await session.connect_failure(),
            self.connection_timeout_ms / 1000,
        )

    async def close(self) -> None:
        for session in list(self.sessions):
            await session.close()


def connect_attempt_s(share_s: float) -> float:
    """Return the timeout of one connection attempt. `share_s` is the session timeout divided by the number of servers.

    The timeout is short enough for further attempts before the session expires.

    >>> connect_attempt_s(18.0), connect_attempt_s(2.0), connect_attempt_s(0.5)
    (6.0, 1.0, 0.5)
    """
    return min(share_s, max(share_s / 3, SHORTEST_ATTEMPT_S))


class Call(Struct, eq=False):
    """A request in flight on connection number `connection`. `arm` is called with its result if it succeeds."""

    future: asyncio.Future[Any]
    connection: int
    is_read: bool
    arm: Callable[[Any], None] | None


class ZooKeeperSession:
    """One ZooKeeper session. See RegistrySession in ports.py for the contract."""

    def __init__(self, registry: ZooKeeperRegistry, timeout_ms: int) -> None:
        self.registry = registry
        self.chroot = registry.chroot
        self.loop = asyncio.get_running_loop()
        self.inbox = Inbox(self.loop)
        self.handler = OneThreadHandler(
            connect_attempt_s(timeout_ms / 1000 / registry.host_count), registry.security.tls
        )
        self.kazoo = KazooClient(
            hosts=registry.hosts,
            timeout=timeout_ms / 1000,
            handler=self.handler,
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.05, max_delay=0.5, sleep_func=self.handler.sleep_func
            ),
            # Not used, because the session retries itself. Kazoo requires the same sleep function.
            command_retry=KazooRetry(sleep_func=self.handler.sleep_func),
            logger=kazoo_logger,
        )
        self.kazoo.add_listener(self.on_state_in_thread)
        if registry.security.start_login is not None:
            # Kazoo's own login needs another package, and reports no reason when it fails.
            self.kazoo._connection.sasl_options = {}  # not None: kazoo calls the next one
            self.kazoo._connection._authenticate_with_sasl = self.log_in_in_thread
        self.login_failure: AuthFailed | None = None
        self.credentials: tuple[int, bytes] = (0, b"")  # session id and password
        self.state = SessionState.SUSPENDED
        self.listeners: list[Callable[[SessionState], None]] = []
        self.ended: asyncio.Future[None] | None = None

        self.ready = asyncio.Event()
        """Set while connected with all watches armed: requests may be sent. Also set at the end, to wake waiters."""
        self.connection = 0  # number of the current connection, from 0
        self.slots = asyncio.Semaphore(registry.in_flight_max)  # one per request in flight
        self.calls: dict[Call, None] = {}

        self.watches = ArmedWatches()
        self.unarmed_since: int | None = None
        """The last zxid before the connection was lost; None while the watches are armed."""
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
        if self.registry.has_multi_read:
            request = MultiRead([self.chroot.full(path) for path in paths])
            try:
                found = await self.perform("", partial(self.send, request), is_read=True)
            except Unimplemented:
                # ZooKeeper before 3.6, which also closes the connection. Do not send this request again.
                logger.info(
                    "ZooKeeper has no multi-read, reading nodes one by one session=%#x", self.id
                )
                self.registry.has_multi_read = False
            else:
                return [read_result(path, each) for path, each in zip(paths, found, strict=True)]
        return await asyncio.gather(*map(self.get_or_none, paths))

    async def get_or_none(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        try:
            return await self.get(path)
        except NoNode:
            return None

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        stat = await self.read(path, self.kazoo.exists_async, watch, self.watches.arm_data)
        return None if stat is None else to_stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        request = self.kazoo.get_children_async
        return sorted(await self.read(path, request, watch, self.watches.arm_child))

    async def read(
        self,
        path: str,
        request: Callable[[str, object], Any],
        watch: Watch | None,
        arm: Callable[[str, Watch, bool], None],
    ) -> Any:
        full = self.chroot.full(path)
        if watch is None:
            return await self.perform(path, lambda: request(full, None), is_read=True)
        return await self.perform(
            path,
            lambda: request(full, self.on_event_in_thread),
            is_read=True,
            # `arm` is called in the order of responses and events. The waiting task runs later.
            arm=lambda result: arm(path, watch, result is not None),
        )

    # ---- writes

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, ZnodeStat]:
        op = Create(path=path, data=data, ephemeral=ephemeral, sequential=sequential)
        # Create2 is a Create whose response includes the stat.
        request = serialization.Create2(*self.chroot.request(op))
        created, stat = await self.write(path, [op], request)
        return self.chroot.strip(created), to_stat(stat)

    async def set(self, path: str, data: bytes, version: int = -1) -> ZnodeStat:
        op = SetData(path=path, data=data, version=version)
        return to_stat(await self.write(path, [op], self.chroot.request(op)))

    async def delete(self, path: str, version: int = -1) -> None:
        op = Delete(path=path, version=version)
        await self.write(path, [op], self.chroot.request(op))

    async def multi(self, ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        requests = []
        for index, op in enumerate(ops):
            try:
                requests.append(self.chroot.request(op))
            except BadPath as error:
                raise MultiFailed(index, error) from None
        return self.chroot.results(
            ops, await self.write("", ops, serialization.Transaction(requests))
        )

    async def set_acl(self, path: str, *, is_secure: bool) -> None:
        """Replace the ACL of a node: the one that znode_acls.py defines, or an open one."""
        acl = acl_of(path, is_secure=is_secure)
        request = serialization.SetACL(self.chroot.full(path), acl, -1)
        await self.perform(path, partial(self.send, request))

    async def acl(self, path: str) -> list[Any]:
        """Return the ACL of a node, as objects of kazoo."""
        request = serialization.GetACL(self.chroot.full(path))
        acl, _ = await self.perform(path, partial(self.send, request), is_read=True)
        return list(acl)

    async def write(self, path: str, ops: Sequence[Op], request: Any) -> Any:
        check_request_size(ops)
        return await self.perform(path, partial(self.send, request))

    # ---- calls

    def send(self, request: Any) -> None:
        """Pass a request to kazoo. OneThreadHandler delivers its result."""
        self.kazoo._call(request, self.handler.async_result())

    async def perform(
        self,
        path: str,
        send: Callable[[], Any],
        *,
        is_read: bool = False,
        arm: Callable[[Any], None] | None = None,
    ) -> Any:
        """Return the response to the request that `send` sends. Retries after a lost connection."""
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
        """Send a request once and return its response. Raises ConnectionLoss and other errors of kazoo."""
        if self.state is SessionState.EXPIRED:
            raise self.expired_error()
        call = Call(self.loop.create_future(), self.connection, is_read, arm)
        self.calls[call] = None
        self.handler.send_request(
            send, lambda result: self.inbox.put(self.on_response, call, result)
        )
        return await call.future

    def on_response(self, call: Call, result: Any) -> None:
        self.calls.pop(call, None)
        if call.future.done():
            return
        if isinstance(result.exception, ConnectionLoss):
            self.ready.clear()  # retries wait for the next connection; the state changes soon
            # A new object, because kazoo shares its own among all requests.
            call.future.set_exception(ConnectionLoss())
        elif result.exception is not None:
            call.future.set_exception(result.exception)
        elif call.is_read and call.connection != self.connection:
            # Kazoo sent the request on the next connection, before the watches were set again. The result may include a
            # change whose event has not been delivered yet.
            call.future.set_exception(ConnectionLoss())
        else:
            if call.arm is not None:
                call.arm(result.value)
            call.future.set_result(result.value)

    # ---- watches

    def on_event_in_thread(self, event: WatchedEvent) -> None:
        if event.type in WATCH_KINDS:  # not NONE, which reports that kazoo drops a watch
            self.inbox.put(self.fire, WATCH_KINDS[event.type], event.path)

    def fire(self, kind: WatchKind, full: str) -> None:
        path = self.chroot.strip(full)
        for watch in self.watches.take(kind, path):
            # One call_soon per watch: the loop reports an exception of a watch, and the others still run.
            self.loop.call_soon(self.call_watch, watch, WatchEvent(kind, path))

    def call_watch(self, watch: Watch, event: WatchEvent) -> None:
        if self.state is not SessionState.EXPIRED:
            watch(event)

    async def arm_again(self) -> None:
        """Set all watches again on the new connection, and fire those whose node changed meanwhile."""
        since = self.unarmed_since
        assert since is not None
        hook = self.on_event_in_thread
        kazoo, watches = self.kazoo, self.watches

        async def read_again(send: Callable[[], Any]) -> Any:
            async with self.slots:
                try:
                    return await self.exchange(send)
                except NoNodeError:
                    return None

        async def check_data(path: str) -> None:
            full = self.chroot.full(path)
            stat = await read_again(lambda: kazoo.exists_async(full, hook))
            if missed := watches.missed_data(path, stat and stat.mzxid, since):
                self.fire(missed, full)

        async def check_children(path: str) -> None:
            full = self.chroot.full(path)
            found = await read_again(
                lambda: kazoo.get_children_async(full, hook, include_data=True)
            )
            if missed := watches.missed_children(found and found[1].pzxid, since):
                self.fire(missed, full)

        try:
            await asyncio.gather(
                *(check_data(path) for path in list(watches.data)),
                *(check_children(path) for path in list(watches.child)),
            )
        except (KazooException, RegistrySessionExpired):
            return  # this connection is lost as well
        self.unarmed_since = None
        self.ready.set()

    # ---- states

    def on_state_in_thread(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            if self.registry.security.start_login is None:
                self.inbox.put(self.on_connected, self.kazoo.client_id)
        elif state == KazooState.SUSPENDED:
            self.inbox.put(self.on_suspended, self.kazoo.last_zxid)
        else:
            self.handler.is_over = True  # prevents kazoo from opening a new session
            self.inbox.put(self.on_lost)

    def log_in_in_thread(self, host: str, timeout_s: float) -> None:
        """Log in on a new connection. Kazoo sends queued requests after this returns. Raises AuthFailedError."""
        start_login = self.registry.security.start_login
        assert start_login is not None
        try:
            log_in(self.kazoo._connection, start_login(), host, timeout_s)
        except AuthFailed as failure:
            self.login_failure = failure
            raise AuthFailedError(str(failure)) from None
        self.inbox.put(self.on_connected, self.kazoo.client_id)

    def on_connected(self, credentials: tuple[int, bytes]) -> None:
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
            logger.info("reconnected to ZooKeeper session=%#x", self.id)

    def on_suspended(self, last_zxid: int) -> None:
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

    def on_lost(self) -> None:
        if self.state is not SessionState.EXPIRED:
            self.change_state(SessionState.EXPIRED)
            self.end()

    def change_state(self, state: SessionState) -> None:
        self.state = state
        for listener in self.listeners:
            self.loop.call_soon(listener, state)

    def expired_error(self) -> RegistrySessionExpired:
        return RegistrySessionExpired("", f"session {self.id:#x} has ended")

    # ---- start and end

    async def connect_failure(self) -> str:
        """Return why there is no connection, or `no answer` if the reason is unknown."""
        if failure := self.handler.failure():
            return failure
        # Kazoo does not report which host it could not resolve.
        for host, port in self.kazoo.hosts:
            try:
                await self.loop.getaddrinfo(host, port)
            except OSError:
                return f"unknown host {host}"
        return "no answer"

    async def create_root(self) -> None:
        """Create the chroot and its parents."""
        root = self.chroot.root
        if not root or await self.exists(ROOT) is not None:
            return
        missing = [root]
        while (parent := parent_of(missing[0])) != ROOT:
            missing.insert(0, parent)
        acl = acl_of(ROOT, is_secure=self.chroot.is_secure)
        for path in missing:
            with suppress(NodeExists):
                await self.perform(path, partial(self.kazoo.create_async, path, None, acl))

    async def close(self) -> None:
        """Close the session on the server. Without a connection, abandon it, and it expires after its timeout."""
        if self.state is not SessionState.CONNECTED:
            await self.abandon()
            return
        self.state = SessionState.EXPIRED
        done, _ = await asyncio.wait([self.end()], timeout=CLOSE_TIMEOUT_S)
        if not done:
            await self.abandon()

    async def abandon(self) -> None:
        self.state = SessionState.EXPIRED
        self.handler.drop_connection()
        await asyncio.shield(self.end())

    def end(self) -> asyncio.Future[None]:
        """Fail all requests in flight and stop kazoo in a thread. Kazoo closes the session if there is a connection."""
        if self.ended is None:
            if self.arming is not None:
                self.arming.cancel()
            for call in list(self.calls):
                if not call.future.done():
                    call.future.set_exception(self.expired_error())
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
            logger.warning("cannot close a connection to ZooKeeper error=%s", reason(error))
