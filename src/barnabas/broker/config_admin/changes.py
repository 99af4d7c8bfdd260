"""Notifications of config changes, as in Kafka: a broker learns of each change and applies it.

    /config/topics/orders                        {"version":1,"config":{"retention.ms":"1000"}}      written first
    /config/changes/config_change_0000000007     {"version":2,"entity_path":"topics/orders"}         then this one

Every broker watches /config/changes. It applies new notifications in order: it reads the settings of the entity again,
so several notifications of one entity need one read. It remembers the names of those that it has applied. Kafka
remembers the largest number instead, and misses changes after /config/changes was created anew. After a start all
notifications are applied, because a change may have been written while the broker read its settings. A new registry
session reads all settings: notifications may have been purged since the last one. Tools that write to ZooKeeper
directly create the same notifications.

A notification is purged 15 minutes after its creation, by the next broker that sees it.

Changes of ACLs have notifications of the same kind in other paths (security/acl_store.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from itertools import takewhile
from random import Random
from typing import NamedTuple, Protocol

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


class NotificationSource(NamedTuple):
    """Where notifications are, and what they say."""

    path: str
    prefix: str
    """Begin of their names."""
    decode: Callable[[str, bytes], tuple[str, str]]
    """Returns the arguments of Applier.apply. Raises RegistryError."""


CONFIG_SOURCE = NotificationSource(
    znodes.CONFIG_CHANGES,
    znodes.CONFIG_CHANGE_PREFIX.rpartition("/")[2],
    znodes.decode_config_change,
)


class Applier(Protocol):
    async def apply(self, entity_type: str, entity: str) -> None:
        """Read the settings of one entity and apply them. Raises RegistryError if they cannot be read."""

    async def apply_all(self) -> None:
        """Read and apply all settings that concern this broker. Raises RegistryError."""


class ConfigChanges:
    """Watches the notifications of one broker. `run` applies them until it is cancelled."""

    def __init__(
        self,
        registry: RegistryClient,
        applier: Applier,
        clock: Clock,
        random: Random,
        source: NotificationSource = CONFIG_SOURCE,
    ) -> None:
        self.registry = registry
        self.applier = applier
        self.clock = clock
        self.random = random
        self.source = source
        self.applied: dict[str, int] = {}
        """Names of the applied notifications that are not purged yet, oldest first, with their creation times in ms."""
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
                logger.warning("cannot read changes error=%s; retrying", error)
                self.wakeup.set()
                await backoff.wait()

    async def process(self) -> None:
        """Apply all new notifications, then purge old ones."""
        names = await self.registry.children(self.source.path, self.on_watch)
        if self.must_read_all:
            await self.applier.apply_all()
            self.must_read_all = False
        existing = set(names)
        # Set operations are fast: there may be thousands of notifications, and this runs after each change.
        unknown = existing - self.applied.keys()
        new = sorted(name for name in unknown if name.startswith(self.source.prefix))
        async for chunk in in_chunks(tuple(new), READ_TOGETHER):
            self.applied |= await self.apply_chunk(chunk)
        await self.purge(existing)

    async def apply_chunk(self, names: Sequence[str]) -> dict[str, int]:
        """Apply these notifications. Returns their creation times."""
        paths = [f"{self.source.path}/{name}" for name in names]
        created_ms: dict[str, int] = {}
        entities: dict[tuple[str, str], None] = {}
        for name, path, found in zip(
            names, paths, await self.registry.get_many(paths), strict=True
        ):
            if found is None:
                continue  # purged by another broker
            data, stat = found
            created_ms[name] = stat.ctime_ms
            try:
                entities[self.source.decode(path, data)] = None
            except RegistryError as error:
                logger.warning("ignoring change error=%s", error)
        for entity in entities:
            try:
                await self.applier.apply(*entity)
            except (RegistryError, StorageError):
                raise
            except Exception:
                # Later changes must be applied all the same.
                logger.exception("cannot apply change entity=%s/%s", *entity)
        return created_ms

    async def purge(self, existing: Set[str]) -> None:
        for name in self.applied.keys() - existing:  # purged by another broker
            del self.applied[name]
        now_ms = self.clock.now_ms()
        old = takewhile(lambda item: now_ms - item[1] > PURGE_AGE_MS, self.applied.items())
        for name, _ in list(old):
            with suppress(NoNode):
                await self.registry.delete(f"{self.source.path}/{name}")
            del self.applied[name]
