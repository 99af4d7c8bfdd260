"""Known names of settings and quotas: suggestions for typos, shell completion, and documentation of quotas.

The names are those of Kafka 3.9. A cluster may know others, so an unknown name is an error only if a known name is very
similar. Otherwise the broker decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

import click
from click.shell_completion import CompletionItem

from barnabas.cli.configs.entity import (
    QUOTA_OPTIONS,
    RESOURCE_OPTIONS,
    Entity,
    select_entity,
)
from barnabas.cli.options import completions
from barnabas.client.config_admin import ConfigResource, QuotaEntity
from barnabas.config.broker import BROKER_SETTINGS, BROKER_SYNONYMS
from barnabas.config.client_quotas import CLIENT_QUOTAS, IP_QUOTAS
from barnabas.config.load import ALL_SETTINGS, find_setting
from barnabas.config.security import SECURITY_SETTINGS
from barnabas.config.setting import LIST, READ_ONLY, Setting
from barnabas.config.topic import TOPIC_SETTINGS
from barnabas.errors import ConfigError
from barnabas.wire.messages.describe_configs import ResourceType

TYPO_SIMILARITY = 0.8
"""Similarity from which an unknown name counts as a typo of a known one."""

LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


def known_names(entity: Entity) -> Collection[str]:
    """Return the names that an entity may have; empty for loggers, which only their broker knows."""
    if isinstance(entity, QuotaEntity):
        return IP_QUOTAS if entity.ip is not None else CLIENT_QUOTAS
    if entity.type is ResourceType.TOPIC:
        return TOPIC_SETTINGS
    return ALL_SETTINGS if entity.type is ResourceType.BROKER else ()


def find_declaration(entity: Entity, name: str) -> Setting | None:
    if not isinstance(entity, ConfigResource):
        return None
    if entity.type is ResourceType.TOPIC:
        return TOPIC_SETTINGS.get(name)
    return find_setting(name) if entity.type is ResourceType.BROKER else None


def reject_typos(entity: Entity, names: Iterable[str]) -> None:
    """Raise ConfigError for the first name that is surely wrong.

    Such a name is unknown, and very similar to a known one, or the name of the same setting at another level.
    """
    known = known_names(entity)
    for name in names:
        if name in known or find_declaration(entity, name) is not None:
            continue
        if (counterpart := find_counterpart(entity, name)) is not None:
            raise ConfigError(name, f"no such {noun(entity)}; it is called {counterpart} here")
        near = get_close_matches(name.lower(), known, n=1, cutoff=TYPO_SIMILARITY)
        if near:
            raise ConfigError(name, f"no such {noun(entity)}; did you mean {near[0]}?")


def find_counterpart(entity: Entity, name: str) -> str | None:
    """Return retention.ms for log.retention.ms of a topic, and the reverse for a broker."""
    if not isinstance(entity, ConfigResource):
        return None
    if entity.type is ResourceType.TOPIC:
        return ALL_SETTINGS[name].default_of if name in ALL_SETTINGS else None
    if entity.type is ResourceType.BROKER and name in BROKER_SYNONYMS:
        return BROKER_SYNONYMS[name][0].name
    return None


def reject_lists_of_scalars(entity: Entity, names: Iterable[str], option: str) -> None:
    """Raise ConfigError for a name whose setting is known not to be a list."""
    if not isinstance(entity, ConfigResource):
        raise ConfigError(
            option, "a quota is a number, not a list; write KEY=VALUE without an option"
        )
    for name in names:
        declared = find_declaration(entity, name)
        if declared is not None and declared.kind is not LIST:
            raise ConfigError(
                option, f"{name} is not a list; write {name}=VALUE without the option"
            )


def is_read_only(entity: Entity, name: str) -> bool:
    """Return whether Kafka cannot change this broker setting at run time."""
    declared = find_declaration(entity, name)
    is_broker = isinstance(entity, ConfigResource) and entity.type is ResourceType.BROKER
    return is_broker and declared is not None and declared.update is READ_ONLY


def effect_note(entity: Entity, names: Collection[str]) -> str | None:
    """Return a note about broker settings that brokers store, but do not use; None if there are none."""
    if isinstance(entity, QuotaEntity) or entity.type is not ResourceType.BROKER:
        return None
    unused = [name for name in names if name not in BROKER_SETTINGS and is_unused(name)]
    return (
        f"{', '.join(unused)}: stored, but without effect on Barnabas brokers" if unused else None
    )


def is_unused(name: str) -> bool:
    declared = find_setting(name)
    return declared is not None and declared.name not in SECURITY_SETTINGS


def short_noun(entity: Entity) -> str:
    """Return `setting`, `logger` or `quota`."""
    return noun(entity).split()[-1]


def noun(entity: Entity) -> str:
    """Return `topic setting`, `broker setting`, `logger` or `quota`."""
    if isinstance(entity, QuotaEntity):
        return "quota"
    if entity.type is ResourceType.BROKER_LOGGER:
        return "logger"
    return f"{entity.type.name.lower()} setting"


# ---- shell completion --------------------------------------------------------------------------------------------


def complete_setting_names(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete names of all settings of the entity on the command line."""
    return completions(names_in_context(context), incomplete)


def complete_assignments(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete `KEY=` for settings that can be changed, and values of a known set after it."""
    entity = entity_in_context(context)
    key, equals, _ = incomplete.partition("=")
    if entity is None:
        return []
    if equals:
        return completions((f"{key}={value}" for value in allowed_values(entity, key)), incomplete)
    names = (name for name in known_names(entity) if not is_read_only(entity, name))
    return completions((f"{name}=" for name in sorted(names)), incomplete)


def allowed_values(entity: Entity, name: str) -> Collection[str]:
    if isinstance(entity, ConfigResource) and entity.type is ResourceType.BROKER_LOGGER:
        return LOG_LEVELS
    declared = find_declaration(entity, name)
    if declared is None:
        return ()
    if declared.kind.name == "BOOLEAN":
        return ("true", "false")
    _, is_enumeration, values = declared.check.allowed.partition(" of ")
    return values.split(", ") if is_enumeration else ()


def names_in_context(context: click.Context) -> list[str]:
    entity = entity_in_context(context)
    return sorted(known_names(entity)) if entity is not None else []


def entity_in_context(context: click.Context) -> Entity | None:
    names = (*RESOURCE_OPTIONS, *QUOTA_OPTIONS)
    try:
        return select_entity({name: context.params.get(name) for name in names})
    except ConfigError:
        return None
