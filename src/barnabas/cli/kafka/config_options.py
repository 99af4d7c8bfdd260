"""Options of kafka-configs, their checks, and the entities and settings they select."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from barnabas.cli.kafka.command import read_properties
from barnabas.cli.kafka.failures import RequestRejected, WrongUsage
from barnabas.cli.kafka.options import (
    COMMON_OPTIONS,
    Option,
    ParsedOptions,
    forbid_together,
    is_int32,
)
from barnabas.cli.kafka.topic_settings import (
    FORMAT_VERSION,
    INVALID_CONFIGURATION,
    format_version_warning,
)
from barnabas.cli.options import is_encodable

ABOUT = (
    "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip"
    " or client-metrics"
)
TOPICS, CLIENTS, USERS, BROKERS, IPS = "topics", "clients", "users", "brokers", "ips"
LOGGERS, CLIENT_METRICS = "broker-loggers", "client-metrics"
ENTITY_TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS, LOGGERS, CLIENT_METRICS)
ZOOKEEPER_ENTITY_TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS)
"""Entity types allowed with --zookeeper, as in Kafka 2.8. Kafka 3.9 allows only users and brokers."""

ENTITY_OPTIONS = {
    "topic": TOPICS,
    "client": CLIENTS,
    "user": USERS,
    "broker": BROKERS,
    "broker-logger": LOGGERS,
    "ip": IPS,
}
DEFAULT_ENTITY_OPTIONS = {
    "client-defaults": CLIENTS,
    "user-defaults": USERS,
    "broker-defaults": BROKERS,
    "ip-defaults": IPS,
}
CONNECTIONS = ("bootstrap-server", "bootstrap-controller", "zookeeper")
DEFAULT_NAME = ""

OPTIONS = (
    *COMMON_OPTIONS,
    Option("bootstrap-controller", "For clusters without ZooKeeper; rejected here.", "controllers"),
    Option(
        "zookeeper",
        "ZooKeeper of the cluster, to use instead of a broker; not for broker-loggers.",
        "host:port/chroot",
    ),
    Option("zk-tls-config-file", "File with zookeeper.ssl.* settings, for TLS connections to ZooKeeper.", "file"),
    Option("describe", "Show settings."),
    Option("alter", "Change settings."),
    Option("all", "Also show settings that are not set explicitly."),
    Option(
        "entity-type",
        "Entity type: topics, clients, users, brokers, ips or broker-loggers. client-metrics is rejected.",
        "type",
    ),
    Option("entity-name", "Topic name, client id, user name, broker id or IP address.", "name"),
    Option("entity-default", "The default for all entities of the type."),
    *(Option(name, f"Short for --entity-type {of} --entity-name.", "name") for name, of in ENTITY_OPTIONS.items()),
    *(Option(name, f"Short for --entity-type {of} --entity-default.") for name, of in DEFAULT_ENTITY_OPTIONS.items()),
    Option(
        "add-config",
        "Settings to add or change: a=1,b=2. A value with commas needs brackets: a=[x,y],b=2.",
        "name=value,…",
    ),
    Option("add-config-file", "Properties file with settings to add or change.", "file"),
    Option("delete-config", "Settings to delete: a,b.", "names", is_list=True),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entities:
    """Types and names of the selected entities. The name "" (DEFAULT_NAME) is the default of a type."""

    types: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def type(self) -> str:
        return self.types[0]

    @property
    def name(self) -> str | None:
        return self.names[0] if self.names else None


def entity_types(options: ParsedOptions) -> tuple[str, ...]:
    flags = (
        kind
        for flag, kind in {**ENTITY_OPTIONS, **DEFAULT_ENTITY_OPTIONS}.items()
        if options.has(flag)
    )
    return (*options.values("entity-type"), *flags)


def entity_names(options: ParsedOptions) -> tuple[str, ...]:
    named = [
        DEFAULT_NAME if option == "entity-default" else value or ""
        for option, value in options.pairs
        if option in ("entity-name", "entity-default")
    ]
    return (
        *named,
        *(options.value(flag) or "" for flag in ENTITY_OPTIONS if options.has(flag)),
        *(DEFAULT_NAME for flag in DEFAULT_ENTITY_OPTIONS if options.has(flag)),
    )


def check_options(options: ParsedOptions) -> Entities:
    """Run Kafka's checks in Kafka's order, and return the selected entities."""
    if options.has("alter") == options.has("describe"):
        raise WrongUsage("Command must include exactly one action: --describe, --alter")
    forbid_together(options, "describe", ("add-config", "delete-config"))
    types = entity_types(options)
    check_types(options, types)
    entities = Entities(types, entity_names(options))
    check_connections(options)
    if BROKERS in entities.types or LOGGERS in entities.types:
        check_broker_ids(entities)
    check_encodable(options, entities)
    if IPS in entities.types:
        check_addresses(entities)
    if options.has("describe") and LOGGERS in entities.types and not any(entities.names):
        raise RequestRejected(f"an entity name must be specified with --describe of {LOGGERS}")
    if options.has("alter"):
        check_alteration(options, entities)
    return entities


def check_types(options: ParsedOptions, types: Sequence[str]) -> None:
    duplicates = [kind for index, kind in enumerate(types) if kind in types[:index]]
    if duplicates:
        raise RequestRejected(f"Duplicate entity type(s) specified: {','.join(duplicates)}")
    by_zookeeper = options.has("zookeeper") and not options.has("bootstrap-server")
    allowed = ZOOKEEPER_ENTITY_TYPES if by_zookeeper else ENTITY_TYPES
    how = "--zookeeper" if by_zookeeper else "--bootstrap-server or --bootstrap-controller"
    for kind in types:
        if kind not in allowed:
            raise RequestRejected(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(allowed)}"
                f" with a {how} argument"
            )
    if not types:
        raise RequestRejected("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        raise RequestRejected("Only 'users' and 'clients' entity types may be specified together")
    long_form = any(options.has(name) for name in ("entity-type", "entity-name", "entity-default"))
    if long_form and any(options.has(flag) for flag in (*ENTITY_OPTIONS, *DEFAULT_ENTITY_OPTIONS)):
        raise RequestRejected(
            "--entity-{type,name,default} should not be used in conjunction with specific entity"
            " flags"
        )


def check_connections(options: ParsedOptions) -> None:
    named = [name for name in CONNECTIONS if options.has(name)]
    if not named:
        # "boostrap" is a misspelling in Kafka's message.
        raise RequestRejected(
            "One of the required --bootstrap-server, --boostrap-controller, or --zookeeper"
            " arguments must be specified"
        )
    if len(named) > 1:
        raise RequestRejected(
            "Only one of --bootstrap-server, --boostrap-controller, and --zookeeper can be"
            " specified"
        )
    if options.has("bootstrap-controller"):
        raise RequestRejected(
            "--bootstrap-controller is for clusters without ZooKeeper; use --bootstrap-server"
        )
    if options.has("all") and options.has("zookeeper"):
        raise RequestRejected("--bootstrap-server must be specified for --all")
    if options.has("zk-tls-config-file") and not options.has("zookeeper"):
        raise RequestRejected(
            "Only the --zookeeper option can be used with the --zk-tls-config-file option."
        )


def check_broker_ids(entities: Entities) -> None:
    for name in entities.names:
        if name and not is_int32(name):
            raise RequestRejected(
                f"The entity name for {entities.type} must be a valid integer broker id, but it is:"
                f" {name}"
            )


def check_encodable(options: ParsedOptions, entities: Entities) -> None:
    """Raise RequestRejected for a name or a setting that is not valid UTF-8. Topic names have their own check."""
    names = () if entities.type == TOPICS else entities.names
    for text in (*names, *options.values("add-config"), *options.values("delete-config")):
        if not is_encodable(text):
            raise RequestRejected(f"{text} is not valid UTF-8")


def check_addresses(entities: Entities) -> None:
    for name in entities.names:
        if name and not is_address(name):
            raise RequestRejected(
                f"The entity name for {entities.type} must be a valid IP or resolvable host, but it"
                f" is: {name}"
            )


def is_address(text: str) -> bool:
    """Return whether the text is an IP address, or a host name that can be resolved."""
    try:
        socket.getaddrinfo(text, None)
    except (OSError, UnicodeError):
        return False
    return True


def check_alteration(options: ParsedOptions, entities: Entities) -> None:
    if {USERS, CLIENTS, BROKERS, IPS} & set(entities.types):
        if not entities.names:
            raise RequestRejected(
                "an entity-name or default entity must be specified with --alter of users, clients,"
                " brokers or ips"
            )
    elif not any(entities.names):
        raise RequestRejected(
            f"an entity name must be specified with --alter of {','.join(entities.types)}"
        )
    if options.has("add-config") and options.has("add-config-file"):
        raise RequestRejected("Only one of --add-config or --add-config-file must be specified")
    if not any(options.has(name) for name in ("add-config", "add-config-file", "delete-config")):
        raise RequestRejected(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified"
            " with --alter"
        )
    if len(entities.types) != len(entities.names):
        raise RequestRejected("An entity name must be specified for every entity type")


# ---- changes


def change_warnings(added: Mapping[str, str]) -> list[str]:
    """Return the lines that Kafka's command prints before it changes these settings."""
    if FORMAT_VERSION not in added:
        return []
    return [format_version_warning(added[FORMAT_VERSION])]


def completed_line(kind: str, name: str) -> str:
    if name == DEFAULT_NAME:
        return f"Completed updating default config for {kind} in the cluster."
    return f"Completed updating config for {kind[:-1]} {name}."


NOT_IN_BRACKETS = r"(?=[^\]]*(?:\[|$))"  # lookahead: the next bracket, if any, opens


def settings_to_add(options: ParsedOptions) -> dict[str, str]:
    """Parse --add-config and --add-config-file: `a=1,b=[x,y]` sets a to "1" and b to "x,y"."""
    added = read_properties(options.value("add-config-file"))
    text = options.value("add-config")
    if text is not None:
        pairs = [
            re.split(rf"\s*=\s*{NOT_IN_BRACKETS}", pair)
            for pair in re.split(f",{NOT_IN_BRACKETS}", text.rstrip(","))
        ]
        if any(len(pair) != 2 for pair in pairs):
            raise RequestRejected(
                "requirement failed: Invalid entity config: all configs to be added must be in the"
                ' format "key=val".'
            )
        added |= {key.strip(): re.sub(r"[\[\]]", "", value).strip() for key, value in pairs}
    for key in added:
        if not re.fullmatch(r"[a-zA-Z0-9._-]*", key):
            raise RequestRejected(f"Invalid character found for config key: {key}")
    return added


def settings_to_delete(options: ParsedOptions, present: Sequence[str]) -> list[str]:
    """Return the settings of --delete-config. Raises RequestRejected if one of them is not in `present`."""
    deleted = [name.strip() for name in options.values("delete-config")]
    unknown = [name for name in deleted if name not in present]
    if unknown:
        raise RequestRejected(f"Invalid config(s): {','.join(unknown)}", INVALID_CONFIGURATION)
    return deleted
