"""Client quotas in the registry: described by a filter, and changed per entity.

byte_quotas.py and mutation_quotas.py enforce those of bytes and partitions. The others are only stored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from barnabas.broker.config_admin.quota_entities import (
    CLIENT_ID,
    CLIENT_QUOTAS,
    IP,
    IP_QUOTAS,
    USER,
    Names,
    QuotaCondition,
    QuotaOperation,
    apply_quotas,
    desanitise,
    find_quota_entity,
    matches_filter,
    parse_quotas,
    sanitise,
)
from barnabas.broker.config_admin.write import Entity, change_settings, read_entity
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.topics import run_limited, to_api_error
from barnabas.errors import ApiError, NoNode, RegistryError, StorageError
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.wire.messages.describe_client_quotas import QuotaMatch

logger = logging.getLogger("barnabas.config")

Conditions = Mapping[str, QuotaCondition]


async def alter_quotas(
    context: BrokerContext,
    parts: Iterable[tuple[str, str | None]],
    operations: Sequence[QuotaOperation],
    *,
    validate_only: bool,
) -> ApiError | None:
    """Change the quotas of one entity, or only validate the change. Returns the error, or None."""
    try:
        entity = find_quota_entity(parts)

        def decide(settings: dict[str, str]) -> dict[str, str]:
            return apply_quotas(settings, operations, entity)

        if validate_only:
            decide((await read_entity(context.registry, entity)).settings)
            return None
        await change_settings(
            context.registry,
            entity,
            decide,
            controller_version=await context.topics.controller_version(),
            removes_empty=True,
        )
    except (ApiError, RegistryError, StorageError) as error:
        return to_api_error(error)
    logger.info("changed quotas entity=%s/%s", *entity)
    return None


async def describe_quotas(
    registry: RegistryClient, conditions: Conditions, *, strict: bool
) -> list[tuple[Names, dict[str, float]]]:
    """Return all entities that match the conditions, with their quotas. Raises RegistryError."""
    if strict and not conditions:
        return []
    entities: dict[Entity, Names] = {}
    if IP not in conditions:
        entities |= await list_clients(registry, conditions)
    if not conditions or IP in conditions:
        entities |= {
            Entity("ips", name): {IP: desanitise(name)}
            for name in await list_names(registry, "/config/ips", conditions.get(IP))
        }
    chosen = [
        entity
        for entity, names in entities.items()
        if matches_filter(names, conditions, strict=strict)
    ]
    found = await run_limited(lambda entity: read_entity(registry, entity), chosen)
    quotas = [
        parse_quotas(each.settings, IP_QUOTAS if entity.type == "ips" else CLIENT_QUOTAS)
        for entity, each in zip(chosen, found, strict=True)
    ]
    return [(entities[entity], each) for entity, each in zip(chosen, quotas, strict=True) if each]


async def list_clients(registry: RegistryClient, conditions: Conditions) -> dict[Entity, Names]:
    """Return the entities with a user, a client id or both that may match."""
    user, client = conditions.get(USER), conditions.get(CLIENT_ID)
    entities: dict[Entity, Names] = {}
    if user is None:
        for name in await list_names(registry, "/config/clients", client):
            entities[Entity("clients", name)] = {CLIENT_ID: desanitise(name)}
    users = await list_names(registry, "/config/users", user)
    if client is None:
        entities |= {Entity("users", name): {USER: desanitise(name)} for name in users}
    clients = await run_limited(
        lambda name: list_names(registry, f"/config/users/{name}/clients", client), users
    )
    for name, client_names in zip(users, clients, strict=True):
        for each in client_names:
            names = {USER: desanitise(name), CLIENT_ID: desanitise(each)}
            entities[Entity("users", f"{name}/clients/{each}")] = names
    return entities


async def list_names(
    registry: RegistryClient, path: str, condition: QuotaCondition | None
) -> list[str]:
    """Return the names under a path that may match; for an exact match without reading the registry."""
    if condition is not None and condition.match is QuotaMatch.EXACT:
        return [sanitise(condition.name)]
    if condition is not None and condition.match is QuotaMatch.DEFAULT:
        return [znodes.DEFAULT_ENTITY]
    try:
        return sorted(await registry.children(path))
    except NoNode:
        return []
