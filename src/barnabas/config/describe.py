"""Contents of a DescribeConfigs response: settings, their values and their sources.

Each setting has a value, the source of the value, and synonyms: all values that the setting has under any of its
names, highest precedence first. A broker setting can have several names (log.retention.ms, .minutes, .hours) on four
levels. An override of a topic takes precedence over all of them.

    topic  >  this broker, dynamic  >  all brokers, dynamic  >  file  >  default

As in Kafka, synonyms before the first one with the setting's own name are left out (for retention.ms:
log.retention.ms). So if the file has only log.retention.hours, the source of retention.ms is DEFAULT_CONFIG.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from itertools import dropwhile

from msgspec import Struct

from barnabas.config.broker import BROKER_SYNONYMS, BrokerConfig
from barnabas.config.load import ALL_SETTINGS, find_setting
from barnabas.config.setting import PASSWORD, READ_ONLY, Setting
from barnabas.config.topic import TOPIC_SETTINGS
from barnabas.config.without_effect import WITHOUT_EFFECT


class Source(IntEnum):
    """Source of a value, with its number in the protocol."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6


UNKNOWN_TYPE = 0
LOG_LEVELS = ((5, "TRACE"), (10, "DEBUG"), (20, "INFO"), (30, "WARN"), (40, "ERROR"))
"""Highest effective level of a Python logger that is reported as each Kafka level."""


class Synonym(Struct, frozen=True, kw_only=True):
    name: str
    value: str | None
    source: Source


class SettingDescription(Struct, frozen=True, kw_only=True):
    """One setting of the response. The value of a sensitive setting is None."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    is_sensitive: bool
    synonyms: tuple[Synonym, ...]
    type: int
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source is Source.DEFAULT_CONFIG


class BrokerLevels(Struct, frozen=True, kw_only=True):
    """Properties of one broker by level. `static` comes from `BrokerConfig.properties`."""

    dynamic: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    static: Mapping[str, str]

    def texts(self, name: str) -> Iterable[tuple[str, Source]]:
        """Yield each value of a property with its source, highest precedence first."""
        for level, source in (
            (self.dynamic, Source.DYNAMIC_BROKER_CONFIG),
            (self.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, Source.STATIC_BROKER_CONFIG),
        ):
            if name in level:
                yield level[name], source


def broker_levels(
    config: BrokerConfig,
    dynamic: Mapping[str, str] | None = None,
    dynamic_default: Mapping[str, str] | None = None,
) -> BrokerLevels:
    static = dict(config.properties)
    if "broker.id" in static or "node.id" in static:  # two names of one setting
        static |= {"broker.id": str(config.broker_id), "node.id": str(config.broker_id)}
    return BrokerLevels(dynamic=dynamic or {}, dynamic_default=dynamic_default or {}, static=static)


def describe_topic(
    overrides: Mapping[str, str],
    config: BrokerConfig,
    *,
    dynamic: Mapping[str, str] | None = None,
    dynamic_default: Mapping[str, str] | None = None,
    names: Collection[str] | None = None,
) -> tuple[SettingDescription, ...]:
    """Describe all settings of a topic with these overrides, or only `names`, in alphabetical order.

    `config` is the effective configuration of the broker: with its dynamic settings, and the properties of its file.
    """
    defaults = config.topic_defaults()
    levels = broker_levels(config, dynamic, dynamic_default)
    entries = []
    for name, declared in sorted(TOPIC_SETTINGS.items()):
        if names and name not in names:
            continue
        settings = BROKER_SYNONYMS.get(name)
        synonyms = find_synonyms(settings[0].name, levels) if settings else ()
        if name in overrides:
            value = declared.show(declared.parse(overrides[name]))
            own = Synonym(name=name, value=value, source=Source.DYNAMIC_TOPIC_CONFIG)
            synonyms = (own, *synonyms)
        else:
            value = declared.show(getattr(defaults, declared.field))
        entries.append(describe_setting(name, declared, value, synonyms, read_only=False))
    return tuple(entries)


def describe_broker(
    config: BrokerConfig,
    *,
    dynamic: Mapping[str, str] | None = None,
    dynamic_default: Mapping[str, str] | None = None,
    names: Collection[str] | None = None,
) -> tuple[SettingDescription, ...]:
    """Describe all settings of a broker, or only `names`, in alphabetical order."""
    levels = broker_levels(config, dynamic, dynamic_default)
    documented = [each.name for each in ALL_SETTINGS.values() if not each.internal]
    described = sorted({*documented, *levels.dynamic, *levels.dynamic_default, *levels.static})
    return tuple(
        describe_broker_setting(name, levels, find_synonyms(name, levels))
        for name in described
        if not names or name in names
    )


def describe_broker_defaults(
    dynamic_default: Mapping[str, str], *, names: Collection[str] | None = None
) -> tuple[SettingDescription, ...]:
    """Describe the dynamic settings for all brokers of the cluster, or only `names`, in alphabetical order."""
    levels = BrokerLevels(dynamic={}, dynamic_default=dynamic_default, static={})
    entries = []
    for name in sorted(dynamic_default):
        if not names or name in names:
            synonyms = tuple(
                s for s in find_synonyms(name, levels) if s.source is not Source.DEFAULT_CONFIG
            )
            entries.append(describe_broker_setting(name, levels, synonyms))
    return tuple(entries)


def describe_loggers(levels: Mapping[str, int]) -> tuple[SettingDescription, ...]:
    """Describe loggers in alphabetical order. `levels` are the effective Python levels by logger name."""
    return tuple(
        SettingDescription(
            name=name,
            value=log_level(level),
            source=Source.DYNAMIC_BROKER_LOGGER_CONFIG,
            read_only=False,
            is_sensitive=False,
            synonyms=(),
            type=UNKNOWN_TYPE,
            documentation=None,
        )
        for name, level in sorted(levels.items())
    )


def log_level(level: int) -> str:
    return next((name for highest, name in LOG_LEVELS if level <= highest), "FATAL")


def describe_setting(
    name: str,
    declared: Setting | None,
    value: str | None,
    synonyms: tuple[Synonym, ...],
    read_only: bool,
) -> SettingDescription:
    # An undeclared setting belongs to a plugin and may be a secret.
    sensitive = declared is None or declared.kind is PASSWORD
    return SettingDescription(
        name=name,
        value=None if sensitive else value,
        source=synonyms[0].source if synonyms else Source.DEFAULT_CONFIG,
        read_only=read_only,
        is_sensitive=sensitive,
        synonyms=synonyms,
        type=declared.kind if declared else UNKNOWN_TYPE,
        documentation=documentation_of(declared) if declared else None,
    )


def documentation_of(declared: Setting) -> str:
    return f"{declared.doc} (no effect)" if declared.name in WITHOUT_EFFECT else declared.doc


def describe_broker_setting(
    name: str, levels: BrokerLevels, synonyms: tuple[Synonym, ...]
) -> SettingDescription:
    declared = find_setting(name)
    value = None
    if declared is not None:
        text = next((text for text, _ in levels.texts(name)), None)
        value = declared.show(declared.default if text is None else declared.parse(text))
    read_only = name not in ALL_SETTINGS or ALL_SETTINGS[name].update is READ_ONLY
    return describe_setting(name, declared, value, synonyms, read_only)


SYNONYM_NAMES = {
    each.name: tuple(synonym.name for synonym in synonyms)
    for synonyms in BROKER_SYNONYMS.values()
    for each in synonyms
    if each.name != "log.flush.scheduler.interval.ms"  # has no synonyms
}
"""Synonyms of each broker setting that is the default of a topic setting, highest precedence first."""


def find_synonyms(name: str, levels: BrokerLevels) -> tuple[Synonym, ...]:
    """Return all values of a broker setting and of its alternative names, highest precedence first."""
    declared = find_setting(name)
    names = SYNONYM_NAMES.get(name, (name,))
    if declared is not None and declared.name != name:  # has a listener prefix
        names = (name, declared.name)
    is_hidden = declared is None or declared.kind is PASSWORD
    found = [
        Synonym(name=each, value=None if is_hidden else text, source=source)
        for each in names
        for text, source in levels.texts(each)
    ]
    # The sort is stable: it keeps the order of names within a level.
    found.sort(key=lambda each: each.source)
    for each in names:
        synonym = ALL_SETTINGS.get(each)
        if synonym is not None and synonym.default is not None:
            shown = None if is_hidden else synonym.show(synonym.default)
            found.append(Synonym(name=each, value=shown, source=Source.DEFAULT_CONFIG))
    return tuple(dropwhile(lambda each: each.name != name, found))
