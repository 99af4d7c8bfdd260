"""ACLs in the registry: read at the start, kept up to date by notifications, and changed by conditional writes.

One transaction writes the ACLs of a pattern and creates the notification. It fails if another client has changed the
ACLs since they were read; then the change is computed again. The broker that makes a change applies it before it
responds. The others apply it when they see the notification.

A znode that cannot be decoded prevents the start: it may deny something. If a running broker reads such a znode, it
logs an error and keeps the former ACLs of that pattern.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import NamedTuple

from barnabas.broker.config_admin.changes import ConfigChanges, NotificationSource
from barnabas.errors import (
    ApiError,
    BadVersion,
    ErrorCode,
    MultiFailed,
    NodeExists,
    NoNode,
    RegistryError,
)
from barnabas.metadata.registry_client import RegistryClient
from barnabas.retry import CONFLICT_S, Backoff
from barnabas.security.acl import znodes
from barnabas.security.acl.authorizer import AclAuthorizer
from barnabas.security.acl.decision import AclIndex
from barnabas.security.acl.filters import AclFilter
from barnabas.security.acl.model import (
    AccessControlEntry,
    Acl,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from barnabas.tasks import in_chunks, in_thread_if_large
from barnabas.world.ports import Clock, Create, Delete, Op, SetData

logger = logging.getLogger("barnabas.security")

ATTEMPTS_MAX = 20
READ_TOGETHER = 500
ACLS_BYTES_MAX = 512 * 1024
"""Maximum size of the ACLs of one pattern. ZooKeeper closes connections that send packets of 1 MiB."""
SOURCES = tuple(
    NotificationSource(znodes.CHANGES[pattern], znodes.CHANGE_PREFIX, decode)
    for pattern, decode in (
        (PatternType.LITERAL, znodes.decode_literal_change),
        (PatternType.PREFIXED, znodes.decode_extended_change),
    )
)

Entries = tuple[AccessControlEntry, ...]
Change = Callable[[Entries], Entries]
"""Returns the new entries of a pattern for the current ones."""


class FoundEntries(NamedTuple):
    """The entries of a pattern, and the version of its znode. The version is None without a znode."""

    entries: Entries
    version: int | None


class AclStore:
    """The ACLs of one cluster. `authorizer` always has those that this broker knows."""

    def __init__(
        self, registry: RegistryClient, authorizer: AclAuthorizer, clock: Clock, random: Random
    ) -> None:
        self.registry = registry
        self.authorizer = authorizer
        self.random = random
        self.is_loaded = False
        """Whether all ACLs have been read at least once."""
        self.lock = asyncio.Lock()
        """Held from a read until its result is in the authorizer: no older result may replace a newer one."""
        self.changes = [ConfigChanges(registry, self, clock, random, source) for source in SOURCES]

    async def load(self) -> None:
        """Create the paths and read all ACLs. Raises RegistryError."""
        for path in znodes.PERSISTENT_PATHS:
            with suppress(NodeExists):
                await self.registry.create(path)
        await self.apply_all()

    # ---- changes by other brokers and tools (Applier)

    async def apply(self, entity_type: str, entity: str) -> None:
        """Read the ACLs of one pattern again. `entity_type` is the path of its directory."""
        pattern = znodes.parse_acl_path(entity_type, entity)
        async with self.lock:
            try:
                found = await self.read(pattern)
            except InvalidAcls as error:
                logger.error("keeping former ACLs pattern=%s error=%s", pattern, error)
                return
            self.authorizer.replace(pattern, found.entries)
        logger.info("ACLs changed pattern=%s entries=%d", pattern, len(found.entries))

    async def apply_all(self) -> None:
        """Read all ACLs. Raises RegistryError; for a znode that cannot be decoded only at the start."""
        async with self.lock:
            acls: list[Acl] = []
            for store, pattern_type in [(path, each) for each, path in znodes.STORES.items()]:
                for label in await self.registry.children(store):
                    resource_type = ResourceType.parse(label)
                    if resource_type not in znodes.TYPES:
                        logger.warning("ignoring unknown resource type path=%s/%s", store, label)
                        continue
                    names = await self.registry.children(f"{store}/{label}")
                    patterns = [
                        ResourcePattern(resource_type, each, pattern_type) for each in names
                    ]
                    acls += await self.read_all(patterns)
            index = await in_thread_if_large(len(acls), AclIndex, acls)
            self.authorizer.use_index(index)
            self.is_loaded = True

    async def read_all(self, patterns: Sequence[ResourcePattern]) -> list[Acl]:
        acls: list[Acl] = []
        async for chunk in in_chunks(tuple(patterns), READ_TOGETHER):
            paths = [znodes.acl_path(each) for each in chunk]
            found = await self.registry.get_many(paths)
            for pattern, path, each in zip(chunk, paths, found, strict=True):
                if each is not None:
                    entries = self.decode(pattern, path, each[0])
                    acls += (Acl(pattern, entry) for entry in entries)
        return acls

    def decode(self, pattern: ResourcePattern, path: str, data: bytes) -> Entries:
        """Return the entries of a znode, or the former ones of its pattern if they cannot be decoded.

        Before the first load there are no former ones. Then it raises RegistryError.
        """
        try:
            return tuple(znodes.decode_acls(path, data))
        except RegistryError as error:
            if not self.is_loaded:
                raise
            logger.error("keeping former ACLs pattern=%s error=%s", pattern, error)
            return self.authorizer.index.entries.get(pattern, ())

    async def read(self, pattern: ResourcePattern) -> FoundEntries:
        """Read the ACLs of a pattern. Raises InvalidAcls if they cannot be decoded, and RegistryError."""
        path = znodes.acl_path(pattern)
        try:
            data, stat = await self.registry.get(path)
        except NoNode:
            return FoundEntries((), None)
        try:
            return FoundEntries(tuple(dict.fromkeys(znodes.decode_acls(path, data))), stat.version)
        except RegistryError as error:
            raise InvalidAcls(str(error)) from error

    # ---- changes by clients of this broker

    async def add(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> None:
        """Add entries to a pattern. Raises ApiError or RegistryError."""
        added = tuple(entries)
        await self.change(pattern, lambda found: tuple(dict.fromkeys((*found, *added))))

    async def delete(
        self, filters: Sequence[AclFilter]
    ) -> tuple[dict[Acl, int], dict[Acl, ApiError | RegistryError]]:
        """Delete the ACLs that match a filter. Returns them with the position of their first filter, and the errors."""
        patterns = tuple(self.authorizer.index.entries)
        matches = await in_thread_if_large(
            len(patterns) * len(filters), match_patterns, patterns, filters
        )
        deleted: dict[Acl, int] = {}
        errors: dict[Acl, ApiError | RegistryError] = {}
        for pattern, positions in matches.items():
            found: dict[Acl, int] = {}

            def remove(
                entries: Entries,
                pattern: ResourcePattern = pattern,
                positions: Sequence[int] = positions,
                found: dict[Acl, int] = found,
            ) -> Entries:
                found.clear()
                for entry in entries:
                    at = next((n for n in positions if filters[n].entry.matches(entry)), None)
                    if at is not None:
                        found[Acl(pattern, entry)] = at
                return tuple(each for each in entries if Acl(pattern, each) not in found)

            try:
                await self.change(pattern, remove)
            except (ApiError, RegistryError) as error:
                errors |= dict.fromkeys(found, error)
            deleted |= found
        return deleted, errors

    async def change(self, pattern: ResourcePattern, change: Change) -> None:
        """Change the entries of a pattern, and apply the result. Raises ApiError or RegistryError."""
        backoff = Backoff(*CONFLICT_S, random=self.random)
        async with self.lock:
            for _ in range(ATTEMPTS_MAX):
                try:
                    found = await self.read(pattern)
                except InvalidAcls as error:
                    raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
                wanted = change(found.entries)
                if wanted == found.entries:
                    self.authorizer.replace(pattern, wanted)
                    return
                try:
                    await self.registry.multi(plan_write(pattern, found, wanted))
                except MultiFailed as failed:
                    if not isinstance(failed.error, BadVersion | NodeExists | NoNode):
                        raise
                    await backoff.wait()
                    continue
                self.authorizer.replace(pattern, wanted)
                logger.info("changed ACLs pattern=%s entries=%d", pattern, len(wanted))
                return
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the ACLs of {pattern} were changed by other clients {ATTEMPTS_MAX} times; retry later",
        )


class InvalidAcls(Exception):
    """The content of a znode cannot be decoded."""


def plan_write(pattern: ResourcePattern, found: FoundEntries, wanted: Entries) -> list[Op]:
    """Return the operations that write the entries of a pattern and create the notification. Raises ApiError."""
    path = znodes.acl_path(pattern)
    data = znodes.encode_acls(wanted)
    if len(data) > ACLS_BYTES_MAX:
        why = f"the ACLs of {pattern} have {len(data)} bytes; at most {ACLS_BYTES_MAX} are allowed"
        raise ApiError(ErrorCode.INVALID_REQUEST, why)
    write: Op
    if found.version is None:
        write = Create(path=path, data=data)
    elif wanted:
        write = SetData(path=path, data=data, version=found.version)
    else:
        write = Delete(path=path, version=found.version)
    change_path = f"{znodes.CHANGES[pattern.pattern]}/{znodes.CHANGE_PREFIX}"
    return [write, Create(path=change_path, data=znodes.encode_change(pattern), sequential=True)]


def match_patterns(
    patterns: Iterable[ResourcePattern], filters: Sequence[AclFilter]
) -> Mapping[ResourcePattern, Sequence[int]]:
    """Return the patterns that match filters, and the positions of those filters.

    A filter that names its pattern applies also to one that this broker does not know yet.
    """
    named = [pattern for each in filters for pattern in each.pattern.named_patterns()]
    matches: dict[ResourcePattern, list[int]] = {}
    for pattern in dict.fromkeys((*patterns, *named)):
        positions = [at for at, each in enumerate(filters) if each.pattern.matches(pattern)]
        if positions:
            matches[pattern] = positions
    return matches
