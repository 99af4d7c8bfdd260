"""kafka-configs for users, clients and ips with --bootstrap-server: client quotas, with Kafka's output.

scram_by_protocol.py has the SCRAM credentials, which kafka-configs also changes with --entity-type users.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest

from barnabas.cli.configs.reading import quota_filters
from barnabas.cli.kafka.config_options import (
    CLIENTS,
    DEFAULT_NAME,
    IPS,
    USERS,
    Entities,
    change_warnings,
    completed_line,
    settings_to_add,
    settings_to_delete,
)
from barnabas.cli.kafka.failures import RequestRejected
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.scram_by_protocol import alter_scram, describe_scram, is_scram
from barnabas.cli.terminal.output import print_lines
from barnabas.client import config_admin
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, QuotaEntity, QuotaFilter
from barnabas.config.client_quotas import CLIENT_QUOTAS, IP_QUOTAS
from barnabas.config.setting import java_double, read_double
from barnabas.wire.messages.describe_client_quotas import QuotaMatch

FIELDS = {USERS: "user", CLIENTS: "client_id", IPS: "ip"}
TYPE_NAMES = {"user": "user-principal", "client_id": "client-id", "ip": "ip"}
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class BrokerQuotas:
    def __init__(self, cluster: Cluster, options: ParsedOptions, entities: Entities) -> None:
        self.cluster = cluster
        self.admin = ConfigAdmin(cluster)
        self.options = options
        self.entities = entities

    def run(self) -> None:
        if self.options.has("alter"):
            self.alter()
        else:
            self.describe()

    def describe(self) -> None:
        found = self.admin.describe_client_quotas(build_filters(self.entities), strict=True)
        for entity, quotas in sorted(found.items(), key=lambda item: quota_entity_text(item[0])):
            print_lines(quota_line(entity, quotas))
        if self.entities.types == (USERS,) and DEFAULT_NAME not in self.entities.names:
            describe_scram(self.cluster, self.entities.names)

    def alter(self) -> None:
        added = settings_to_add(self.options)
        print_lines(*change_warnings(added))
        deleted = [name.strip() for name in self.options.values("delete-config")]
        check_quota_names(self.entities, list(added), deleted)
        if any(map(is_scram, (*added, *deleted))):
            alter_scram(self.cluster, self.entities.names[0], added, deleted)
            print_lines(completed_line(self.entities.type, self.entities.names[0]))
            return
        entity = build_entity(self.entities)
        before = self.admin.describe_client_quotas(quota_filters(entity), strict=True)
        settings_to_delete(self.options, list(before.get(entity, {})))
        changes: dict[str, float | None] = {
            **{name: parse_quota_value(name, text) for name, text in added.items()},
            **dict.fromkeys(deleted),
        }
        error = self.admin.alter_client_quotas({entity: changes})[entity]
        if error is not None:
            raise error
        print_lines(completed_line(self.entities.type, self.entities.names[0]))


def build_entity(entities: Entities) -> QuotaEntity:
    """Return the entity of --alter, which has a name for every type."""
    names = {
        FIELDS[kind]: name or config_admin.DEFAULT_NAME
        for kind, name in zip(entities.types, entities.names, strict=True)
    }
    return QuotaEntity(**names)


def build_filters(entities: Entities) -> list[QuotaFilter]:
    """Return the filters of --describe. A type without a name matches all names and the default."""
    filters = []
    for kind, name in zip_longest(entities.types, entities.names):
        if kind is None:
            raise RequestRejected("More entity names specified than entity types")
        if name is None:
            filters.append(QuotaFilter(config_admin.QUOTA_TYPES[FIELDS[kind]], QuotaMatch.ANY))
        else:
            filters += quota_filters(
                QuotaEntity(**{FIELDS[kind]: name or config_admin.DEFAULT_NAME})
            )
    return filters


def check_quota_names(entities: Entities, added: Sequence[str], deleted: Sequence[str]) -> None:
    """Raise RequestRejected, with Kafka's message, for names that are not quotas of these entities."""
    if entities.type == IPS:
        unknown = [name for name in (*added, *deleted) if name not in IP_QUOTAS]
        if unknown:
            raise RequestRejected(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server."
                f" Unexpected config names: {','.join(unknown)}"
            )
        return
    for verb, names, collection in (("added", added, "Set"), ("deleted", deleted, "ArrayBuffer")):
        check_client_quota_names(entities, names, verb, collection)
    check_scram(entities, (*added, *deleted))


def check_scram(entities: Entities, names: Sequence[str]) -> None:
    """Raise RequestRejected, with Kafka's message, if SCRAM credentials cannot be changed so."""
    if not any(map(is_scram, names)):
        return
    if DEFAULT_NAME in entities.names:
        raise RequestRejected(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM"
            " Credentials using --bootstrap-server."
        )
    if not all(map(is_scram, names)):
        raise RequestRejected(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using"
            " --bootstrap-server."
        )


def check_client_quota_names(
    entities: Entities, names: Sequence[str], verb: str, collection: str
) -> None:
    """`collection` is the Scala type that appears in Kafka's message."""
    unknown = [name for name in names if name not in CLIENT_QUOTAS]
    if CLIENTS in entities.types:
        if unknown:
            raise RequestRejected(
                f"Only quota configs can be {verb} for 'clients' using --bootstrap-server."
                f" Unexpected config names: {scala_text(collection, unknown)}"
            )
        return
    unknown = [name for name in unknown if name not in SCRAM_MECHANISMS]
    if unknown:
        raise RequestRejected(
            f"Only quota and SCRAM credential configs can be {verb} for 'users' using"
            f" --bootstrap-server. Unexpected config names: {scala_text(collection, unknown)}"
        )


def scala_text(collection: str, names: Collection[str]) -> str:
    """Return `Set(a, b)`."""
    return f"{collection}({', '.join(names)})"


def parse_quota_value(name: str, text: str) -> float:
    try:
        return read_double(text.strip())
    except ValueError:
        raise RequestRejected(
            f"Cannot parse quota configuration value for {name}: {text}"
        ) from None


def quota_line(entity: QuotaEntity, quotas: Mapping[str, float]) -> str:
    values = ", ".join(f"{name}={java_double(value)}" for name, value in sorted(quotas.items()))
    return f"Quota configs for {quota_entity_text(entity)} are {values}"


def quota_entity_text(entity: QuotaEntity) -> str:
    """Return `user-principal 'alice', the default client-id`."""
    return ", ".join(
        f"the default {TYPE_NAMES[field]}"
        if name == config_admin.DEFAULT_NAME
        else f"{TYPE_NAMES[field]} '{name}'"
        for field, name in entity._asdict().items()
        if name is not None
    )
