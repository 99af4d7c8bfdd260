"""kafka-configs with --zookeeper: reads and writes settings in znodes, without a broker, as in Kafka 2.8.

    topics    /config/topics/orders             clients   /config/clients/app
    brokers   /config/brokers/1                 users     /config/users/alice, /config/users/alice/clients/app
    ips       /config/ips/10.0.0.7              <default> instead of a name: the default of a type

A change also writes a notification in /config/changes. Names of users and clients are percent-encoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.cli.kafka.config_options import (
    BROKERS,
    CLIENTS,
    DEFAULT_NAME,
    TOPICS,
    USERS,
    Entities,
    change_warnings,
    settings_to_add,
    settings_to_delete,
)
from barnabas.cli.kafka.entity_settings import (
    check_broker_settings,
    check_quotas,
    needs_stopped_broker,
)
from barnabas.cli.kafka.failures import RequestRejected
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.quotas_by_protocol import scala_text
from barnabas.cli.kafka.scram_by_protocol import is_scram, shown_value, stored_credentials
from barnabas.cli.kafka.topics_by_zookeeper import ADMIN_OPERATION_EXCEPTION, apply_changes
from barnabas.cli.kafka.znodes import (
    change_entity_settings,
    children_or_empty,
    read_entity_settings,
    registered_broker_ids,
    run_in_session,
)
from barnabas.cli.terminal.output import print_lines
from barnabas.metadata import znodes
from barnabas.metadata.znodes import DEFAULT_ENTITY
from barnabas.world.ports import RegistrySession

TYPE_WORDS = {TOPICS: "topic", USERS: "user-principal", CLIENTS: "client-id"}
"""Words for entity types in Kafka's output; the others are printed as they are."""
BOOTSTRAPPING = (
    "Broker configuration updates using ZooKeeper are supported for bootstrapping before brokers"
    " are started to enable encrypted password configs to be stored in ZooKeeper."
)


class ZnodeEntity(NamedTuple):
    """One part of the path of a config znode. The name is encoded as in the path; None means all entities."""

    kind: str
    name: str | None

    def __str__(self) -> str:
        word = TYPE_WORDS.get(self.kind, self.kind)
        if self.name is None:
            return self.kind
        if self.name == DEFAULT_ENTITY:
            return f"default {word}"
        return f"{word} '{znodes.desanitise(self.name) if self.kind in (USERS, CLIENTS) else self.name}'"


EntityPath = tuple[ZnodeEntity, ...]
"""One entity, or a user and one of its clients."""


def run_configs_on_znodes(connect: str, options: ParsedOptions, entities: Entities) -> None:
    work = alter_znodes if options.has("alter") else describe_znodes
    file = options.value("zk-tls-config-file")
    run_in_session(connect, lambda session: work(session, options, entities), file)


# ---- entities


def parse_entity_path(entities: Entities) -> EntityPath:
    """Return the selected entity. A user comes before its client, whatever the order of the options."""
    types, names = list(entities.types), list(entities.names)
    if types[0] == CLIENTS and len(types) == 2:
        types.reverse()
        names = names[::-1] if len(names) == 2 else names
    padded = [*names, *[None] * (len(types) - len(names))]
    return tuple(
        ZnodeEntity(kind, None if name is None else encode_name(kind, name))
        for kind, name in zip(types, padded, strict=False)
    )


def encode_name(kind: str, name: str) -> str:
    """Return the name as in the path of a znode. Kafka encodes names of users and clients.

    >>> encode_name("users", "CN=a b*"), encode_name("topics", "a_b"), encode_name("brokers", "")
    ('CN%3Da%20b%2A', 'a_b', '<default>')
    """
    if name == DEFAULT_NAME:
        return DEFAULT_ENTITY
    return znodes.sanitise(name) if kind in (USERS, CLIENTS) else name


def path_text(entity: EntityPath) -> str:
    """Return `topics/orders` or `users/alice/clients/app`: the path in /config."""
    return "/".join(part for each in entity for part in (each.kind, each.name or ""))


def entity_line(entity: EntityPath) -> str:
    return ", ".join(map(str, entity))


async def expand_entity(session: RegistrySession, entity: EntityPath) -> list[EntityPath]:
    """Return all entities with a config znode that the path selects."""
    first, *rest = entity
    if first.name is not None:
        firsts = [first]
    else:
        names = await children_or_empty(session, f"{znodes.CONFIG}/{first.kind}")
        firsts = [ZnodeEntity(first.kind, name) for name in names]
    if not rest:
        return [(each,) for each in firsts]
    (client,) = rest
    if client.name is not None and first.name is not None:
        return [entity]
    found: list[EntityPath] = []
    for user in firsts:
        below = f"{znodes.CONFIG}/{user.kind}/{user.name}/{client.kind}"
        found += [
            (user, ZnodeEntity(client.kind, name))
            for name in await children_or_empty(session, below)
        ]
    return found


# ---- describe


async def describe_znodes(
    session: RegistrySession, options: ParsedOptions, entities: Entities
) -> None:
    selected = parse_entity_path(entities)
    describes_users = entities.types == (USERS,) and not entities.names
    for entity in await expand_entity(session, selected):
        settings, _ = await read_entity_settings(session, path_text(entity))
        if settings or not describes_users:  # a user may have only quotas of clients
            pairs = ",".join(f"{key}={shown_value(key, text)}" for key, text in settings.items())
            print_lines(f"Configs for {entity_line(entity)} are {pairs}")


# ---- alter


async def alter_znodes(
    session: RegistrySession, options: ParsedOptions, entities: Entities
) -> None:
    entity = parse_entity_path(entities)
    added = settings_to_add(options)
    print_lines(*change_warnings(added))
    kind, name = entity[0].kind, entity[0].name or ""
    if kind == TOPICS and await session.exists(znodes.topic_path(name)) is None:
        raise RequestRejected(f"Topic '{name}' does not exist.", ADMIN_OPERATION_EXCEPTION)
    if kind == BROKERS:
        check_stopped(name, added, await registered_broker_ids(session))
    if any(map(is_scram, added)):
        if len(entity) > 1 or kind != USERS or name == DEFAULT_ENTITY:
            raise RequestRejected("SCRAM credentials are settings of one user; name it")
        added = stored_credentials(added)
    change = partial(changed_settings, options, kind, name, added)
    await change_entity_settings(session, path_text(entity), change)
    print_lines(f"Completed updating config for entity: {entity_line(entity)}.")


def changed_settings(
    options: ParsedOptions,
    kind: str,
    name: str,
    added: Mapping[str, str],
    before: dict[str, str],
) -> dict[str, str]:
    """Return the settings after the change. Raises RequestRejected for invalid ones."""
    deleted = settings_to_delete(options, list(before))
    if kind == TOPICS:
        return apply_changes(before, added=dict(added), deleted=deleted)
    if kind == BROKERS:
        check_broker_settings(added, per_broker=name != DEFAULT_ENTITY)
    after = {key: value for key, value in {**before, **added}.items() if key not in deleted}
    if kind != BROKERS:
        check_quotas(kind, after)
    return after


def check_stopped(name: str, added: Mapping[str, str], running: Sequence[int]) -> None:
    """Raise RequestRejected if a broker that uses the new settings runs: it would not validate them."""
    names = needs_stopped_broker(added)
    if not names:
        return
    message = (
        "requirement failed: --bootstrap-server option must be specified to update broker configs"
        f" {scala_text('Set', names)}."
    )
    if name == DEFAULT_ENTITY:
        if running:
            raise RequestRejected(
                f"{message} for default cluster if any broker is running. {BOOTSTRAPPING}"
            )
    elif int(name) in running:
        raise RequestRejected(f"{message} when broker {name} is running. {BOOTSTRAPPING}")
