"""The options of kafka-configs: which there are, which go together, and whose settings are meant. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from barnabas.cli.kafka.failures import Refused, WrongUsage
from barnabas.cli.kafka.options import Option, ParsedOptions, forbid, is_int32
from barnabas.cli.kafka.topic_settings import INVALID_CONFIGURATION

ABOUT = (
    "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip"
    " or client-metrics"
)
TOPICS, CLIENTS, USERS, BROKERS, IPS = "topics", "clients", "users", "brokers", "ips"
LOGGERS, CLIENT_METRICS = "broker-loggers", "client-metrics"
OF_BROKERS = (TOPICS, CLIENTS, USERS, BROKERS, IPS, LOGGERS, CLIENT_METRICS)
OF_ZOOKEEPER = (TOPICS,)
"""What the brokers read there. Kafka keeps settings of brokers and users there, too, and ours have none."""

NAMED = {
    "topic": TOPICS,
    "client": CLIENTS,
    "user": USERS,
    "broker": BROKERS,
    "broker-logger": LOGGERS,
    "ip": IPS,
}
DEFAULTS = {
    "client-defaults": CLIENTS,
    "user-defaults": USERS,
    "broker-defaults": BROKERS,
    "ip-defaults": IPS,
}
CONNECTIONS = ("bootstrap-server", "bootstrap-controller", "zookeeper")
DEFAULT_NAME = ""

OPTIONS = (
    Option("bootstrap-server", "Bootstrap brokers, as host:port,host:port.", "brokers"),
    Option("bootstrap-controller", "For clusters without ZooKeeper; refused here.", "controllers"),
    Option(
        "zookeeper",
        "Instead of a broker, the ZooKeeper with the state of the cluster; for topics.",
        "host:port/chroot",
    ),
    Option("zk-tls-config-file", "Refused: ZooKeeper is spoken to in plain text.", "file"),
    Option("command-config", "A file with settings of the client, as client.id.", "file"),
    Option("describe", "Show settings."),
    Option("alter", "Change settings."),
    Option("all", "Show those that are not set, too."),
    Option("entity-type", "Whose: topics, brokers, and Kafka's other kinds.", "kind"),
    Option("entity-name", "The topic, or the id of the broker.", "name"),
    Option("entity-default", "What holds for all that set nothing for themselves."),
    *(Option(name, f"Short for --entity-type {of} --entity-name.", "name") for name, of in NAMED.items()),
    *(Option(name, f"Short for --entity-type {of} --entity-default.") for name, of in DEFAULTS.items()),
    Option(
        "add-config",
        "Settings to set, as a=1,b=2; a value with commas in it stands in brackets: a=[x,y],b=2.",
        "name=value,…",
    ),
    Option("add-config-file", "The same, in a file.", "file"),
    Option("delete-config", "Settings to take away, as a,b.", "names", is_list=True),
    Option("force", "Accepted; has no effect."),
    Option("help", "Show this."),
    Option("version", "Show the release of Kafka whose command this is, and ours."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entities:
    """Entities whose settings are meant: kinds and names as given; the name "" is the default of a kind."""

    types: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def type(self) -> str:
        return self.types[0]

    @property
    def name(self) -> str | None:
        return self.names[0] if self.names else None


def types_of(given: ParsedOptions) -> tuple[str, ...]:
    flags = (kind for flag, kind in {**NAMED, **DEFAULTS}.items() if given.has(flag))
    return (*given.values("entity-type"), *flags)


def names_of(given: ParsedOptions) -> tuple[str, ...]:
    named = [
        DEFAULT_NAME if option == "entity-default" else value or ""
        for option, value in given.found
        if option in ("entity-name", "entity-default")
    ]
    return (
        *named,
        *(given.value(flag) or "" for flag in NAMED if given.has(flag)),
        *(DEFAULT_NAME for flag in DEFAULTS if given.has(flag)),
    )


def checked(given: ParsedOptions) -> Entities:
    """Run Kafka's checks, in Kafka's order."""
    if given.has("alter") == given.has("describe"):
        raise WrongUsage("Command must include exactly one action: --describe, --alter")
    forbid(given, "describe", ("add-config", "delete-config"))
    types = types_of(given)
    check_types(given, types)
    entities = Entities(types, names_of(given))
    check_connections(given)
    if BROKERS in entities.types or LOGGERS in entities.types:
        check_broker_ids(entities)
    if given.has("describe") and LOGGERS in entities.types and not any(entities.names):
        raise Refused(f"an entity name must be specified with --describe of {LOGGERS}")
    if given.has("alter"):
        check_alteration(given, entities)
    return entities


def check_types(given: ParsedOptions, types: Sequence[str]) -> None:
    twice = [kind for index, kind in enumerate(types) if kind in types[:index]]
    if twice:
        raise Refused(f"Duplicate entity type(s) specified: {','.join(twice)}")
    by_zookeeper = given.has("zookeeper") and not given.has("bootstrap-server")
    allowed = OF_ZOOKEEPER if by_zookeeper else OF_BROKERS
    how = "--zookeeper" if by_zookeeper else "--bootstrap-server or --bootstrap-controller"
    for kind in types:
        if kind not in allowed:
            raise Refused(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(allowed)}"
                f" with a {how} argument"
            )
    if not types:
        raise Refused("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        raise Refused("Only 'users' and 'clients' entity types may be specified together")
    long_form = any(given.has(name) for name in ("entity-type", "entity-name", "entity-default"))
    if long_form and any(given.has(flag) for flag in (*NAMED, *DEFAULTS)):
        raise Refused(
            "--entity-{type,name,default} should not be used in conjunction with specific entity"
            " flags"
        )


def check_connections(given: ParsedOptions) -> None:
    named = [name for name in CONNECTIONS if given.has(name)]
    if not named:
        # "boostrap" is Kafka's.
        raise Refused(
            "One of the required --bootstrap-server, --boostrap-controller, or --zookeeper"
            " arguments must be specified"
        )
    if len(named) > 1:
        raise Refused(
            "Only one of --bootstrap-server, --boostrap-controller, and --zookeeper can be"
            " specified"
        )
    if given.has("bootstrap-controller"):
        raise Refused("--bootstrap-controller is for clusters without ZooKeeper; ask a broker")
    if given.has("all") and given.has("zookeeper"):
        raise Refused("--bootstrap-server must be specified for --all")
    if given.has("zk-tls-config-file"):
        raise Refused("--zk-tls-config-file: ZooKeeper is spoken to in plain text only")


def check_broker_ids(entities: Entities) -> None:
    for name in entities.names:
        if name and not is_int32(name):
            raise Refused(
                f"The entity name for {entities.type} must be a valid integer broker id, but it is:"
                f" {name}"
            )


def check_alteration(given: ParsedOptions, entities: Entities) -> None:
    kinds = {USERS, CLIENTS, BROKERS, IPS}
    if kinds & set(entities.types):
        if not entities.names:
            raise Refused(
                "an entity-name or default entity must be specified with --alter of users, clients,"
                " brokers or ips"
            )
    elif not any(entities.names):
        raise Refused(
            f"an entity name must be specified with --alter of {','.join(entities.types)}"
        )
    if given.has("add-config") and given.has("add-config-file"):
        raise Refused("Only one of --add-config or --add-config-file must be specified")
    if not any(given.has(name) for name in ("add-config", "add-config-file", "delete-config")):
        raise Refused(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified"
            " with --alter"
        )
    if len(entities.types) != len(entities.names):
        raise Refused("An entity name must be specified for every entity type")


# ---- what is changed

NOT_IN_BRACKETS = r"(?=[^\]]*(?:\[|$))"


def settings_to_add(
    given: ParsedOptions, read_file: Callable[[str | None], dict[str, str]]
) -> dict[str, str]:
    """`a=1,b=[x,y]` → a is "1", b is "x,y"."""
    added = dict(read_file(given.value("add-config-file")))
    text = given.value("add-config")
    if text is not None:
        pairs = [
            re.split(rf"\s*=\s*{NOT_IN_BRACKETS}", pair)
            for pair in re.split(f",{NOT_IN_BRACKETS}", text.rstrip(","))
        ]
        if any(len(pair) != 2 for pair in pairs):
            raise Refused(
                "requirement failed: Invalid entity config: all configs to be added must be in the"
                ' format "key=val".'
            )
        added |= {key.strip(): re.sub(r"[\[\]]", "", value).strip() for key, value in pairs}
    for key in added:
        if not re.fullmatch(r"[a-zA-Z0-9._-]*", key):
            raise Refused(f"Invalid character found for config key: {key}")
    return added


def settings_to_delete(given: ParsedOptions, present: Sequence[str]) -> list[str]:
    """Return the settings to delete. Raises if one of them is not set."""
    deleted = [name.strip() for name in given.values("delete-config")]
    unknown = [name for name in deleted if name not in present]
    if unknown:
        raise Refused(f"Invalid config(s): {','.join(unknown)}", INVALID_CONFIGURATION)
    return deleted
