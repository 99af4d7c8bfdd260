"""Options that select the entity of `barnabas configs`: a topic, a broker, its loggers, or clients with a quota.

--topic orders   --broker 1   --brokers   --broker-logger 1
--client-id app   --user alice   --user alice --client-id app   --ip 10.0.0.7   --default-user, …

`barnabas quotas` has only the options of the second line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from shlex import quote
from typing import Any

import click

from barnabas.cli.cluster_command import complete_names, servers_hint
from barnabas.cli.options import is_encodable
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.topics.lookup import complete_topics, find_topic
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import DEFAULT_NAME, ConfigResource, QuotaEntity
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.wire.messages.describe_configs import ResourceType

Entity = ConfigResource | QuotaEntity

RESOURCE_OPTIONS = ("topic", "broker", "brokers", "broker_logger")
QUOTA_OPTIONS = ("user", "client_id", "ip", "default_user", "default_client_id", "default_ip")
RESOURCE_WORDS = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "broker",
    ResourceType.BROKER_LOGGER: "loggers of broker",
}
CHOICES = (
    "choose one of --topic NAME, --broker ID, --brokers, --broker-logger ID, --client-id ID,"
    " --user NAME, --ip ADDRESS"
)

complete_brokers = complete_names(lambda cluster: map(str, sorted(cluster.refresh([]).brokers)))

QUOTA_CHOICES = "choose --user NAME, --client-id ID, both, or --ip ADDRESS, or the default of one"

broker_id = click.IntRange(min=0)
RESOURCE_SELECTORS = (
    click.option("--topic", metavar="NAME", shell_complete=complete_topics, help="Settings of a topic."),
    click.option(
        "--broker", type=broker_id, metavar="ID", shell_complete=complete_brokers, help="Settings of one broker."
    ),
    click.option("--brokers", is_flag=True, help="Default settings of all brokers of the cluster."),
    click.option(
        "--broker-logger",
        type=broker_id,
        metavar="ID",
        shell_complete=complete_brokers,
        help="Log levels of a broker.",
    ),
)  # fmt: skip
QUOTA_SELECTORS = (
    click.option("--client-id", metavar="ID", help="Quotas of a client id; can be combined with a user."),
    click.option("--user", metavar="NAME", help="Quotas of a user."),
    click.option("--ip", metavar="ADDRESS", help="Connection quota of an IP address."),
    click.option("--default-client-id", is_flag=True, help="Default quotas of client ids."),
    click.option("--default-user", is_flag=True, help="Default quotas of users."),
    click.option("--default-ip", is_flag=True, help="Default connection quota of IP addresses."),
)  # fmt: skip


Command = Callable[..., None]


def entity_options(command: Command) -> Command:
    """Add the options that select an entity. The command gets it as `entity`."""
    names = (*RESOURCE_OPTIONS, *QUOTA_OPTIONS)
    return add_selectors(command, names, (*RESOURCE_SELECTORS, *QUOTA_SELECTORS), select_entity)


def quota_options(command: Command) -> Command:
    """Add the options that select an entity with quotas. The command gets it as `entity`."""

    def select(options: Mapping[str, Any]) -> Entity:
        return select_entity(options, "quotas", QUOTA_CHOICES)

    return add_selectors(command, QUOTA_OPTIONS, QUOTA_SELECTORS, select)


def quota_filter_options(command: Command) -> Command:
    """Like `quota_options`, but the options are not required. Without them, `entity` is None."""

    def select(options: Mapping[str, Any]) -> Entity | None:
        is_used = any(value is not None and value is not False for value in options.values())
        return select_entity(options, "quotas", QUOTA_CHOICES) if is_used else None

    return add_selectors(command, QUOTA_OPTIONS, QUOTA_SELECTORS, select)


def add_selectors(
    command: Command,
    names: Iterable[str],
    selectors: Sequence[Callable[[Command], Command]],
    select: Callable[[Mapping[str, Any]], Entity | None],
) -> Command:
    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        chosen = {name: options.pop(name) for name in names}
        command(*arguments, entity=select(chosen), **options)

    decorated: Command = run
    for add_option in reversed(selectors):
        decorated = add_option(decorated)
    return decorated


def select_entity(
    options: Mapping[str, Any], group: str = "configs", choices: str = CHOICES
) -> Entity:
    """Return the entity that the options select. Raises ConfigError if they select none, or several."""
    used = [name for name, value in options.items() if value is not None and value is not False]
    if not used:
        raise ConfigError(group, choices)
    if len(used) > 1 and not is_user_and_client(used):
        first, second = (f"--{name.replace('_', '-')}" for name in used[:2])
        raise ConfigError(first, f"cannot be combined with {second}; {choices}")
    for name in used:
        if isinstance(options[name], str) and not is_encodable(options[name]):
            raise ConfigError(
                f"--{name.replace('_', '-')}", f"{options[name]!r} is not valid UTF-8"
            )
    resource = select_resource(used[0], options[used[0]])
    if resource is not None:
        return resource
    for name in used:
        if options[name] == "":
            raise ConfigError(
                f"--{name.replace('_', '-')}",
                f"is empty; for the default use --default-{name.replace('_', '-')}",
            )
    names = {
        name.removeprefix("default_"): DEFAULT_NAME
        if name.startswith("default_")
        else options[name]
        for name in used
    }
    return QuotaEntity(**names)


def is_user_and_client(used: list[str]) -> bool:
    return sorted(name.removeprefix("default_") for name in used) == ["client_id", "user"]


def select_resource(option: str, value: Any) -> ConfigResource | None:
    """Return the resource of an option; None for the options of quotas."""
    match option:
        case "topic":
            return ConfigResource(ResourceType.TOPIC, value)
        case "broker":
            return ConfigResource(ResourceType.BROKER, str(value))
        case "brokers":
            return ConfigResource(ResourceType.BROKER, "")
        case "broker_logger":
            return ConfigResource(ResourceType.BROKER_LOGGER, str(value))
        case _:
            return None


def require_entity(cluster: Cluster, entity: Entity) -> None:
    """Raise ApiError, with similar names or the live brokers, if a topic or a broker does not exist."""
    if not isinstance(entity, ConfigResource):
        return
    if entity.type is ResourceType.TOPIC:
        find_topic(cluster, entity.name)
    elif entity.name:
        require_live_broker(cluster, int(entity.name))


def require_live_broker(cluster: Cluster, broker: int) -> None:
    """Raise BROKER_NOT_AVAILABLE if the broker is not alive: only it knows its settings."""
    brokers = cluster.refresh([]).brokers
    if broker in brokers:
        return
    raise ErrorWithHint(
        ApiError(ErrorCode.BROKER_NOT_AVAILABLE),
        f"broker {broker} is not alive; live brokers: {', '.join(map(str, sorted(brokers)))}",
        f"start it, or choose another one; `barnabas brokers list{servers_hint()}` shows them",
    )


def entity_text(entity: Entity) -> str:
    """Return `topic orders`, `broker 1`, `all brokers`, `loggers of broker 1` or `user alice, client id app`."""
    if isinstance(entity, QuotaEntity):
        return ", ".join(
            f"default {kind.replace('-', ' ')}"
            if name is None
            else f"{kind.replace('-', ' ')} {name}"
            for kind, name in quota_names(entity).items()
        )
    return f"{RESOURCE_WORDS[entity.type]} {entity.name}" if entity.name else "all brokers"


def entity_arguments(entity: Entity) -> str:
    """Return the options that select the entity, for commands in hints. Quoted for the shell."""
    if isinstance(entity, QuotaEntity):
        return " ".join(
            f"--default-{kind}" if name is None else f"--{kind} {quote(name)}"
            for kind, name in quota_names(entity).items()
        )
    return f"--{type_name(entity)} {quote(entity.name)}" if entity.name else "--brokers"


def entity_document(entity: Entity) -> dict[str, Any]:
    """Return the entity for JSON: its type and name. The name of a default is None."""
    if isinstance(entity, ConfigResource):
        return {"type": type_name(entity), "name": entity.name or None}
    names = quota_names(entity)
    if len(names) == 1:
        ((kind, name),) = names.items()
        return {"type": kind, "name": name}
    return {"type": "user,client-id", "name": names}


def type_name(resource: ConfigResource) -> str:
    """Return `topic`, `broker` or `broker-logger`."""
    return resource.type.name.lower().replace("_", "-")


def quota_names(entity: QuotaEntity) -> dict[str, str | None]:
    """Return the names of the entity by type: `user`, `client-id` or `ip`. None is the default of the type."""
    return {
        field.replace("_", "-"): None if name == DEFAULT_NAME else name
        for field, name in entity._asdict().items()
        if name is not None
    }
