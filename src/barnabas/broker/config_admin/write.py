"""Conditional writes of settings to the registry, with their notification.

One transaction writes the settings and creates the notification. It fails if the controller has changed since the
request began, as in Kafka, or if another client has changed the settings since they were read. In the second case the
change is computed again from the new settings. Kafka writes both znodes separately and overwrites concurrent changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from barnabas.broker.topic_admin.topics import not_controller
from barnabas.errors import (
    ApiError,
    BadVersion,
    ErrorCode,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    RegistryError,
)
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.retry import CONFLICT_S, Backoff
from barnabas.tasks import in_thread_if_large
from barnabas.world.ports import CheckVersion, Create, Delete, Op, SetData

logger = logging.getLogger("barnabas.config")

ATTEMPTS_MAX = 20
SETTINGS_BYTES_MAX = 512 * 1024
"""Maximum size of the settings of one entity. ZooKeeper closes connections that send packets of 1 MiB."""
ANY_VERSION = -1
CONTROLLER_CHECK, EXISTENCE_CHECK = 0, 1


class Entity(NamedTuple):
    """An entity in the registry, such as ("topics", "orders") or ("users", "anna/clients/reports")."""

    type: str
    name: str

    @property
    def path(self) -> str:
        return znodes.config_path(self.type, self.name)


class FoundSettings(NamedTuple):
    """The settings of an entity, and the version of its znode. The version is None without a znode.

    With `error`, the content of the znode is invalid, and the settings are empty.
    """

    settings: dict[str, str]
    version: int | None
    error: RegistryError | None = None


Decide = Callable[[dict[str, str]], dict[str, str]]
"""Returns the new settings for the current ones, or raises ApiError."""


async def read_entity(registry: RegistryClient, entity: Entity) -> FoundSettings:
    """Read the settings of an entity. Raises RegistryError if the registry cannot be read."""
    try:
        data, stat = await registry.get(entity.path)
    except NoNode:
        return FoundSettings({}, None)
    try:
        return FoundSettings(znodes.decode_config(entity.path, data), stat.version)
    except RegistryError as error:
        return FoundSettings({}, stat.version, error)


async def change_settings(
    registry: RegistryClient,
    entity: Entity,
    decide: Decide,
    *,
    size: int = 1,
    controller_version: int,
    required_path: str | None = None,
    removes_empty: bool = False,
) -> dict[str, str]:
    """Change the settings of an entity. Returns the new settings. Raises ApiError or RegistryError.

    `size` is the number of changed settings: a large change is decided in a thread. `required_path` is a znode that
    must exist: UNKNOWN_TOPIC_OR_PARTITION otherwise. `removes_empty` removes the znode of an entity that has no
    settings and no children.
    """
    backoff = Backoff(*CONFLICT_S, random=Random(controller_version))
    for _ in range(ATTEMPTS_MAX):
        found = await read_entity(registry, entity)
        if found.error is not None:
            logger.error("overwriting invalid settings error=%s", found.error)
        wanted = await in_thread_if_large(size, decide, found.settings)
        checks: list[Op] = [CheckVersion(path=znodes.CONTROLLER, version=controller_version)]
        if required_path is not None:
            checks.append(CheckVersion(path=required_path, version=ANY_VERSION))
        writes = await plan_write(registry, entity, found, wanted, removes_empty=removes_empty)
        notification = Create(
            path=znodes.CONFIG_CHANGE_PREFIX,
            data=znodes.encode_config_change(f"{entity.type}/{entity.name}"),
            sequential=True,
        )
        try:
            await registry.multi([*checks, *writes, notification])
            return wanted
        except MultiFailed as failed:
            if failed.index == CONTROLLER_CHECK:
                raise not_controller() from failed
            if failed.index == EXISTENCE_CHECK and required_path is not None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from failed
            if not isinstance(failed.error, BadVersion | NodeExists | NoNode | NotEmpty):
                raise
            await backoff.wait()
    raise ApiError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"the settings were changed by other clients {ATTEMPTS_MAX} times; retry later",
    )


async def plan_write(
    registry: RegistryClient,
    entity: Entity,
    found: FoundSettings,
    wanted: dict[str, str],
    *,
    removes_empty: bool,
) -> Sequence[Op]:
    """Return the operations that write the settings."""
    if removes_empty and not wanted:
        if found.version is None:
            return []
        removals = await plan_removal(registry, entity, found.version)
        if removals:
            return removals
    data = znodes.encode_config(wanted)
    if len(data) > SETTINGS_BYTES_MAX:
        why = f"the settings have {len(data)} bytes; at most {SETTINGS_BYTES_MAX} are allowed"
        raise ApiError(ErrorCode.INVALID_CONFIG, why)
    if found.version is not None:
        return [SetData(path=entity.path, data=data, version=found.version)]
    parents = [parent for parent in parents_of(entity) if await registry.exists(parent) is None]
    return [*(Create(path=parent) for parent in parents), Create(path=entity.path, data=data)]


async def plan_removal(registry: RegistryClient, entity: Entity, version: int) -> list[Op]:
    """Return the operations that remove an entity and its unused parents. Returns [] if it has children."""
    if await registry.children(entity.path):
        return []
    removals: list[Op] = [Delete(path=entity.path, version=version)]
    child = entity.path
    for parent in reversed(parents_of(entity)):
        name = child.rpartition("/")[2]
        if await registry.children(parent) != [name]:
            break
        data, stat = await registry.get(parent)
        try:
            if znodes.decode_config(parent, data):
                break
        except RegistryError:
            break
        removals.append(Delete(path=parent, version=stat.version))
        child = parent
    return removals


def parents_of(entity: Entity) -> list[str]:
    """Return the paths between /config/<type> and the entity.

    >>> parents_of(Entity("users", "anna/clients/reports"))
    ['/config/users/anna', '/config/users/anna/clients']
    """
    parts = entity.name.split("/")[:-1]
    return [Entity(entity.type, "/".join(parts[: n + 1])).path for n in range(len(parts))]
