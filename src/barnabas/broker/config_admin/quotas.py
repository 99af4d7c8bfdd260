"""Client quotas in the registry: described by a filter, and changed per entity.

client_quotas.py, mutation_quotas.py and connection_rates.py enforce them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from barnabas.broker.config_admin.quota_entities import (
    CLIENT_ID,
    IP,
    RELATIVE_NAMES,
    USER,
    Names,
    QuotaCondition,
    QuotaOperation,
    apply_quotas,
    find_quota_entity,
    known_quotas,
    matches_filter,
    parse_quotas,
)
from barnabas.broker.config_admin.write import Entity, FoundSettings, change_settings, read_entity
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.topics import run_limited, to_api_error
from barnabas.errors import ApiError, NoNode, RegistryError, StorageError
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.tasks import in_thread_if_large
from barnabas.wire.messages.describe_client_quotas import QuotaMatch

logger = logging.getLogger("barnabas.config")

ENTITY_TYPES = {"users": USER, "clients": CLIENT_ID, "ips": IP}
"""Entity types of the protocol, by name in /config."""

Conditions = Mapping[str, QuotaCondition]
DescribedEntity = tuple[Names, dict[str, float]]
"""The names of an entity, and its quotas."""


async def alter_quotas(
    context: BrokerContext,
    parts: Sequence[tuple[str, str | None]],
    operations: Sequence[QuotaOperation],
    *,
    controller_version: int | None,
) -> ApiError | None:
    """Change the quotas of one entity. Returns the error, or None. A controller version of None only validates."""
    size = len(parts) + len(operations)
    try:
        entity = await in_thread_if_large(size, find_quota_entity, parts)

        def decide(settings: dict[str, str]) -> dict[str, str]:
            return apply_quotas(settings, operations, entity)

        if controller_version is None:
            found = await read_entity(context.registry, entity)
            await in_thread_if_large(size, decide, found.settings)
            return None
        await change_settings(
            context.registry,
            entity,
            decide,
            size=size,
            controller_version=controller_version,
            removes_empty=True,
        )
    except (ApiError, RegistryError, StorageError) as error:
        return to_api_error(error)
    logger.info("changed quotas entity=%s/%s", *entity)
    return None


async def describe_quotas(
    registry: RegistryClient, conditions: Conditions, *, strict: bool
) -> list[DescribedEntity]:
    """Return all entities that match the conditions, with their quotas. Raises RegistryError."""
    if strict and not conditions:
        return []
    paths: list[tuple[str, ...]] = []
    if IP not in conditions:
        paths += await list_clients(registry, conditions)
    if not conditions or IP in conditions:
        paths += [("ips", name) for name in await list_names(registry, "ips", conditions.get(IP))]
    chosen = await in_thread_if_large(len(paths), select_entities, paths, conditions, strict)
    found = await run_limited(lambda each: read_entity(registry, each), list(chosen))
    return await in_thread_if_large(len(chosen), collect_quotas, chosen, found)


async def list_clients(registry: RegistryClient, conditions: Conditions) -> list[tuple[str, ...]]:
    """Return the paths in /config of the entities with a user, a client id or both that may match."""
    user, client = conditions.get(USER), conditions.get(CLIENT_ID)
    paths: list[tuple[str, ...]] = []
    if user is None:
        paths += [("clients", name) for name in await list_names(registry, "clients", client)]
    users = await list_names(registry, "users", user)
    if client is None:
        paths += [("users", name) for name in users]
    clients = await run_limited(
        lambda name: list_names(registry, f"users/{name}/clients", client), users
    )
    for name, names in zip(users, clients, strict=True):
        paths += [("users", name, "clients", each) for each in names]
    return paths


async def list_names(
    registry: RegistryClient, path: str, condition: QuotaCondition | None
) -> list[str]:
    """Return the names under a path in /config that may match; for an exact match without reading the registry."""
    if condition is not None and condition.match is QuotaMatch.EXACT:
        return [] if condition.name in RELATIVE_NAMES else [znodes.sanitise(condition.name)]
    if condition is not None and condition.match is QuotaMatch.DEFAULT:
        return [znodes.DEFAULT_ENTITY]
    try:
        return sorted(await registry.children(f"{znodes.CONFIG}/{path}"))
    except NoNode:
        return []


def select_entities(
    paths: Iterable[tuple[str, ...]], conditions: Conditions, strict: bool
) -> dict[Entity, Names]:
    """Return the entities that match the conditions, with their names."""
    chosen: dict[Entity, Names] = {}
    for path in paths:
        types = (ENTITY_TYPES[each] for each in path[::2])
        names = dict(zip(types, map(znodes.desanitise, path[1::2]), strict=True))
        if matches_filter(names, conditions, strict=strict):
            chosen[Entity(path[0], "/".join(path[1:]))] = names
    return chosen


def collect_quotas(
    chosen: Mapping[Entity, Names], found: Iterable[FoundSettings]
) -> list[DescribedEntity]:
    """Return the entities that have quotas. Settings that are not quotas are left out."""
    described = []
    for (entity, names), each in zip(chosen.items(), found, strict=True):
        quotas = parse_quotas(each.settings, known_quotas(entity))
        if quotas:
            described.append((names, quotas))
    return described
