"""The registry as one broker uses it: the calls of a session, and a new session when one expires.

    CONNECTED ◄─► SUSPENDED ─► EXPIRED ─► on_expired() awaited ─► connect until it succeeds ─► on_new_session()

A call goes to the session of the moment. It waits out a lost connection; on a session that has expired it raises
RegistrySessionExpired, and does so until the next session is up. Nothing is carried over: watches and ephemeral nodes
went with the old session, and whoever needs them makes them anew when `on_new_session` is called.

`on_expired` is awaited before a new session is opened, so that its owner can first forget what it believed: a broker
that had been the controller must have resigned before it can act under a session again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from barnabas.errors import RegistryError, RegistrySessionExpired, StorageError
from barnabas.retry import Backoff
from barnabas.world.ports import Op, Registry, RegistrySession, SessionState, Watch, ZnodeStat

logger = logging.getLogger("barnabas.registry")

RETRY_S = (0.1, 1.0)


class RegistryClient:
    """`await open()`, use it like a RegistrySession, `await close()`."""

    def __init__(
        self, registry: Registry, session_timeout_ms: int, random: Random | None = None
    ) -> None:
        """`random` spreads the reconnections of many brokers."""
        self.registry = registry
        self.random = random or Random(0)
        self.session_timeout_ms = session_timeout_ms
        self.session_ids: set[int] = set()
        """All sessions this client ever had: their ephemeral nodes are our own."""
        self.on_expired: Callable[[], Awaitable[None]] | None = None
        self.on_new_session: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        """The registry was part of this process, and its disk has failed: there will be no other session."""
        self.listeners: list[Callable[[SessionState], None]] = []
        self.session: RegistrySession | None = None
        self.renewal: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """The first session; RegistryError if the registry cannot be reached in time."""
        self.adopt(await self.registry.connect(self.session_timeout_ms))

    @property
    def id(self) -> int:
        assert self.session is not None, "the client is not open"
        return self.session.id

    @property
    def state(self) -> SessionState:
        return SessionState.EXPIRED if self.session is None else self.session.state

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        """Told of the states of the present registry session and of all that follow it."""
        self.listeners.append(listener)

    # ---- the calls of a session

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]:
        return await self.current().get(path, watch)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, ZnodeStat] | None]:
        return await self.current().get_many(paths)

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        return await self.current().exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self.current().children(path, watch)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, ZnodeStat]:
        return await self.current().create(path, data, ephemeral=ephemeral, sequential=sequential)

    async def set(self, path: str, data: bytes, version: int = -1) -> ZnodeStat:
        return await self.current().set(path, data, version)

    async def delete(self, path: str, version: int = -1) -> None:
        await self.current().delete(path, version)

    async def multi(self, ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        return await self.current().multi(ops)

    async def close(self) -> None:
        """End the session; ephemeral nodes go at once. Fine if it is closed already."""
        session = await self.let_go()
        if session is not None:
            await session.close()

    async def abandon(self) -> None:
        """As if the process had died: no goodbye, and the session times out by itself."""
        session = await self.let_go()
        if session is not None:
            await session.abandon()

    # ---- one session after the other

    def current(self) -> RegistrySession:
        if self.session is None:
            raise RegistrySessionExpired("", "the registry client is closed")
        return self.session

    def adopt(self, session: RegistrySession) -> None:
        self.session = session
        self.session_ids.add(session.id)
        session.on_state(lambda state: self.hear(session, state))
        if session.state is SessionState.EXPIRED:  # so soon that the listener was too late for it
            self.hear(session, session.state)

    def hear(self, session: RegistrySession, state: SessionState) -> None:
        if session is not self.session:
            return
        for listener in self.listeners:
            listener(state)
        if state is SessionState.EXPIRED and self.renewal is None:
            self.start_renewal(session)

    def start_renewal(self, expired: RegistrySession) -> None:
        self.renewal = asyncio.get_running_loop().create_task(
            self.renew(expired), name="registry session"
        )
        self.renewal.add_done_callback(self.renewed)

    async def renew(self, expired: RegistrySession) -> None:
        logger.warning("registry session expired id=%#x", expired.id)
        if self.on_expired is not None:
            await self.on_expired()
        if self.session is not expired:
            return  # the owner had enough, and closed this client
        await expired.close()  # let go of what is left of it on this side
        session = await self.connect_again()
        self.adopt(session)
        logger.info("new registry session id=%#x", session.id)
        if self.on_new_session is not None:
            self.on_new_session()

    async def connect_again(self) -> RegistrySession:
        backoff = Backoff(*RETRY_S, random=self.random)
        while True:
            try:
                return await self.registry.connect(self.session_timeout_ms)
            except RegistryError as error:
                logger.warning("no new registry session yet error=%s", error)
                await backoff.wait()

    def renewed(self, renewal: asyncio.Task[None]) -> None:
        self.renewal = None
        if renewal.cancelled():
            return
        error = renewal.exception()
        if isinstance(error, StorageError):
            logger.error("the registry is lost for good error=%s", error)
            if self.on_lost is not None:
                self.on_lost()
        elif error is not None:
            logger.error("cannot renew the registry session", exc_info=error)
        elif self.session is not None and self.session.state is SessionState.EXPIRED:
            self.start_renewal(
                self.session
            )  # it came and went while the last renewal was still at work

    async def let_go(self) -> RegistrySession | None:
        session, self.session = self.session, None
        renewal = self.renewal
        if renewal is not None and renewal is not asyncio.current_task():
            renewal.cancel()
            try:
                await renewal
            except asyncio.CancelledError:
                pass
            except Exception:  # noqa: BLE001 - told by renewed()
                pass
        return session
