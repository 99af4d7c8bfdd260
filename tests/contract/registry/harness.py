"""Helpers of the contract tests: sessions of a registry, recorded events, and waiting."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from barnabas.world.ports import Registry, RegistrySession, WatchEvent, WatchKind

DEADLINE_S = 20
QUIET_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """An empty registry, with ways to open and to expire a session."""

    registry: Registry
    connect: Callable[[], Awaitable[RegistrySession]]
    expire: Callable[[RegistrySession], Awaitable[None]]


class Events:
    """A watch that records events. Pass `events` itself to the reads."""

    def __init__(self) -> None:
        self.seen: list[WatchEvent] = []
        self.more = asyncio.Event()

    def __call__(self, event: WatchEvent) -> None:
        self.seen.append(event)
        self.more.set()

    async def arrive(self, *expected: tuple[WatchKind, str]) -> None:
        """Expect exactly these events in this order, and none after them for a moment."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.seen) < len(expected):
                self.more.clear()
                await self.more.wait()
        await self.stay_away()
        assert self.seen == [WatchEvent(*each) for each in expected]
        self.seen.clear()

    async def stay_away(self) -> None:
        """Expect no more events for a moment."""
        count = len(self.seen)
        try:
            async with asyncio.timeout(QUIET_S):
                self.more.clear()
                await self.more.wait()
        except TimeoutError:
            pass
        assert len(self.seen) == count, self.seen


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait: another session may see a change slightly later than the one that made it."""
    async with asyncio.timeout(DEADLINE_S):
        while not await holds():
            await asyncio.sleep(0.005)
