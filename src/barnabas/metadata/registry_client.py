"""Registry client of a broker: has the operations of a session, and opens a new session when one expires.

    CONNECTED ◄─► SUSPENDED ─► EXPIRED ─► on_expired() awaited ─► connect until it succeeds ─► on_new_session()

Calls use the current session. They wait while the connection is lost. After the session expired they raise
RegistrySessionExpired, until there is a new session. A new session has no watches and no ephemeral nodes: the owner
creates them again in `on_new_session`.

`on_expired` is awaited before a new session is opened. So no event handler of a controller in the old session writes in
the new one.
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
    """A RegistrySession that outlives expired sessions. Call `open` first and `close` last."""

    def __init__(
        self, registry: Registry, session_timeout_ms: int, random: Random | None = None
    ) -> None:
        """`random` is the source of the jitter between connection attempts."""
        self.registry = registry
        self.random = random or Random(0)
        self.session_timeout_ms = session_timeout_ms
        self.session_ids: set[int] = set()
        """All sessions of this client so far. Their ephemeral nodes belong to this broker."""
        self.on_expired: Callable[[], Awaitable[None]] | None = None
        self.on_new_session: Callable[[], object] | None = None
        self.on_lost: Callable[[], None] | None = None
        """Called when the embedded registry has failed because of its disk. There will be no new session."""
        self.listeners: list[Callable[[SessionState], None]] = []
        self.session: RegistrySession | None = None
        self.renewal: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the first session. Raises RegistryError if the registry cannot be reached in time."""
        self.use_session(await self.registry.connect(self.session_timeout_ms))

    @property
    def id(self) -> int:
        assert self.session is not None, "the client is not open"
        return self.session.id

    @property
    def state(self) -> SessionState:
        return SessionState.EXPIRED if self.session is None else self.session.state

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` with each state change of the current session and of all later ones."""
        self.listeners.append(listener)

    # ---- operations of a session

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]:
        return await self.current_session().get(path, watch)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, ZnodeStat] | None]:
        return await self.current_session().get_many(paths)

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        return await self.current_session().exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self.current_session().children(path, watch)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, ZnodeStat]:
        return await self.current_session().create(
            path, data, ephemeral=ephemeral, sequential=sequential
        )

    async def set(self, path: str, data: bytes, version: int = -1) -> ZnodeStat:
        return await self.current_session().set(path, data, version)

    async def delete(self, path: str, version: int = -1) -> None:
        await self.current_session().delete(path, version)

    async def multi(self, ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        return await self.current_session().multi(ops)

    async def close(self) -> None:
        """End the session. Its ephemeral nodes are deleted at once. A second call has no effect."""
        session = await self.detach_session()
        if session is not None:
            await session.close()

    async def abandon(self) -> None:
        """Drop the connection without ending the session, as in a crash. The session times out."""
        session = await self.detach_session()
        if session is not None:
            await session.abandon()

    # ---- session changes

    def current_session(self) -> RegistrySession:
        if self.session is None:
            raise RegistrySessionExpired("", "the registry client is closed")
        return self.session

    def use_session(self, session: RegistrySession) -> None:
        self.session = session
        self.session_ids.add(session.id)
        session.on_state(lambda state: self.on_session_state(session, state))
        if session.state is SessionState.EXPIRED:  # before the listener was added
            self.on_session_state(session, session.state)

    def on_session_state(self, session: RegistrySession, state: SessionState) -> None:
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
        self.renewal.add_done_callback(self.on_renewal_done)

    async def renew(self, expired: RegistrySession) -> None:
        logger.warning("registry session expired id=%#x", expired.id)
        if self.on_expired is not None:
            await self.on_expired()
        if self.session is not expired:
            return  # the owner has closed this client
        await expired.close()  # release its local resources
        session = await self.connect_again()
        self.use_session(session)
        logger.info("new registry session id=%#x", session.id)
        if self.on_new_session is not None:
            self.on_new_session()

    async def connect_again(self) -> RegistrySession:
        backoff = Backoff(*RETRY_S, random=self.random)
        while True:
            try:
                return await self.registry.connect(self.session_timeout_ms)
            except RegistryError as error:
                logger.warning("cannot open a registry session error=%s; retrying", error)
                await backoff.wait()

    def on_renewal_done(self, renewal: asyncio.Task[None]) -> None:
        self.renewal = None
        if renewal.cancelled():
            return
        error = renewal.exception()
        if isinstance(error, StorageError):
            logger.error("the registry has failed permanently error=%s", error)
            if self.on_lost is not None:
                self.on_lost()
        elif error is not None:
            logger.error("cannot renew the registry session", exc_info=error)
        elif self.session is not None and self.session.state is SessionState.EXPIRED:
            # The new session expired before this renewal ended.
            self.start_renewal(self.session)

    async def detach_session(self) -> RegistrySession | None:
        """Stop using the session, and stop its renewal. Returns the session, or None if there is none."""
        session, self.session = self.session, None
        renewal = self.renewal
        if renewal is not None and renewal is not asyncio.current_task():
            renewal.cancel()
            try:
                await renewal
            except asyncio.CancelledError:
                pass
            except Exception:  # noqa: BLE001 - logged by on_renewal_done()
                pass
        return session
