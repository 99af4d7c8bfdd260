"""Notifications of config changes, as in Kafka: a broker learns of each change and applies it.

    /config/topics/orders                        {"version":1,"config":{"retention.ms":"1000"}}      written first
    /config/changes/config_change_0000000007     {"version":2,"entity_path":"topics/orders"}         then this one

Every broker watches /config/changes. It applies new notifications in order: it reads the settings of the entity again,
so several notifications of one entity need one read. The largest number that was applied is remembered. After a start
all notifications are applied, because a change may have been written while the broker read its settings. A new registry
session reads all settings: notifications may have been purged since the last one. Tools that write to ZooKeeper
directly create the same notifications.

A notification is purged 15 minutes after its creation, by the next broker that sees it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from random import Random
from typing import Protocol

from barnabas.errors import NoNode, RegistryError, RegistrySessionExpired, StorageError
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.retry import Backoff
from barnabas.tasks import in_chunks
from barnabas.world.ports import Clock, WatchEvent

logger = logging.getLogger("barnabas.config")

PURGE_AGE_MS = 15 * 60 * 1000
READ_TOGETHER = 500
RETRY_S = (0.1, 5.0)
PREFIX = znodes.CONFIG_CHANGE_PREFIX.rpartition("/")[2]


class Applier(Protocol):
    async def apply(self, entity_type: str, entity: str) -> None:
        """Read the settings of one entity and apply them. Raises RegistryError if they cannot be read."""

    async def apply_all(self) -> None:
        """Read and apply all settings that concern this broker. Raises RegistryError."""


class ConfigChanges:
    """Watches the notifications of one broker. `run` applies them until it is cancelled."""

    def __init__(
        self, registry: RegistryClient, applier: Applier, clock: Clock, random: Random
    ) -> None:
        self.registry = registry
        self.applier = applier
        self.clock = clock
        self.random = random
        self.last_number = -1
        """Number of the last notification that was applied."""
        self.created_ms: dict[str, int] = {}
        """Creation times of the applied notifications that are not purged yet, by name."""
        self.must_read_all = False
        self.wakeup = asyncio.Event()
        self.wakeup.set()

    def session_opened(self) -> None:
        """Read everything again: the new session has no watch yet, and changes may have been missed."""
        self.must_read_all = True
        self.wakeup.set()

    def on_watch(self, _: WatchEvent) -> None:
        self.wakeup.set()

    async def run(self) -> None:
        backoff = Backoff(*RETRY_S, random=self.random)
        while True:
            await self.wakeup.wait()
            self.wakeup.clear()
            try:
                await self.process()
                backoff.reset()
            except RegistrySessionExpired:
                await backoff.wait()  # the next session calls session_opened()
            except (RegistryError, StorageError) as error:
                logger.warning("cannot read config changes error=%s; retrying", error)
                self.wakeup.set()
                await backoff.wait()

    async def process(self) -> None:
        """Apply all new notifications, then purge old ones."""
        names = await self.registry.children(znodes.CONFIG_CHANGES, self.on_watch)
        if self.must_read_all:
            await self.applier.apply_all()
            self.must_read_all = False
        numbers = {name: number for name in names if (number := parse_number(name)) is not None}
        new = sorted((number, name) for name, number in numbers.items())
        new = [each for each in new if each[0] > self.last_number]
        async for chunk in in_chunks(tuple(new), READ_TOGETHER):
            await self.apply_chunk([name for _, name in chunk])
            self.last_number = chunk[-1][0]
        await self.purge(names)

    async def apply_chunk(self, names: list[str]) -> None:
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in names]
        entities: dict[tuple[str, str], None] = {}
        for name, path, found in zip(
            names, paths, await self.registry.get_many(paths), strict=True
        ):
            if found is None:
                continue  # purged by another broker
            data, stat = found
            self.created_ms[name] = stat.ctime_ms
            try:
                entities[znodes.decode_config_change(path, data)] = None
            except RegistryError as error:
                logger.warning("ignoring config change error=%s", error)
        for entity in entities:
            try:
                await self.applier.apply(*entity)
            except (RegistryError, StorageError):
                raise
            except Exception:
                # Later changes must be applied all the same.
                logger.exception("cannot apply config change entity=%s/%s", *entity)

    async def purge(self, names: Iterable[str]) -> None:
        existing = set(names)
        now_ms = self.clock.now_ms()
        for name, created_ms in list(self.created_ms.items()):
            if name not in existing:
                del self.created_ms[name]
            elif now_ms - created_ms > PURGE_AGE_MS:
                with suppress(NoNode):
                    await self.registry.delete(f"{znodes.CONFIG_CHANGES}/{name}")
                del self.created_ms[name]


def parse_number(name: str) -> int | None:
    """Return the number of a notification, or None for another znode.

    >>> parse_number("config_change_0000000012"), parse_number("note")
    (12, None)
    """
    digits = name.removeprefix(PREFIX)
    is_number = digits.isascii() and digits.isdecimal()
    return int(digits) if is_number and name.startswith(PREFIX) else None
