"""Dynamic settings of a broker: which settings can change at run time, and the configuration that results.

Dynamic settings are in the registry: one set for all brokers, and one set for each broker. They take precedence over
the file:

    this broker, dynamic  >  all brokers, dynamic  >  file  >  default

A request is rejected if any of its settings is invalid (`check_change`). Settings in the registry that are invalid, for
example because they were written by hand, are ignored one by one (`select_valid`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from barnabas.config.broker import BROKER_SETTINGS, BROKER_SYNONYMS, BrokerConfig
from barnabas.config.listeners import parse_listeners, parse_protocols
from barnabas.config.load import (
    ALL_SETTINGS,
    check_combinations,
    find_setting,
    normalize_prefix,
    parse_connection_limits,
)
from barnabas.config.security import SECURITY_SETTINGS
from barnabas.config.setting import (
    PASSWORD,
    PER_BROKER,
    READ_ONLY,
    Setting,
    unknown_setting_error,
)
from barnabas.errors import ConfigError

Settings = Mapping[str, str]

LISTENER_PREFIX_NEEDED = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")
"""Kafka changes these settings only with the prefix `listener.name.<name>.`."""
CLUSTER_WIDE_LISTENER_SETTINGS = (
    "max.connections",
    "max.connection.creation.rate",
    "num.network.threads",
)
"""Settings that may have a listener prefix in the settings for all brokers."""
COUNTS_OF_THREADS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
"""One change may at most halve or double these numbers."""
AT_LEAST_ONE = ("max.connections", "max.connection.creation.rate")
"""These settings may be 0 in the file, but not in the registry: no client could connect to change them back."""
NO_LIMIT, LIKE_TOTAL = -1, -2
SETTINGS_MAX = 500
"""Maximum dynamic settings of one broker, and of all brokers. Parsing this many takes a few milliseconds."""


class UnsupportedSetting(ConfigError):
    """The setting does not exist, or is never stored in the registry."""


class DynamicSettings(Struct, frozen=True, kw_only=True):
    """The dynamic settings of one broker, and of all brokers."""

    broker: Settings = field(default_factory=dict)
    default: Settings = field(default_factory=dict)

    @property
    def merged(self) -> dict[str, str]:
        return {**self.default, **self.broker}


def check_name(name: str, *, per_broker: bool) -> Setting:
    """Return the declaration of a setting that can change at run time. Raises ConfigError for any other name.

    `per_broker` is false for the settings of all brokers.
    """
    declared = find_setting(name)
    if declared is None:
        raise unknown_name_error(name)
    if declared.update is READ_ONLY:
        why = "cannot be changed at run time; set it in server.properties and restart the broker"
        raise ConfigError(name, why)
    has_prefix = declared.name != name
    if not has_prefix and name.startswith(LISTENER_PREFIX_NEEDED):
        raise ConfigError(name, f"needs the prefix of a listener: listener.name.<name>.{name}")
    if declared.kind is PASSWORD:
        why = "passwords are not stored in the registry; set it in server.properties"
        raise UnsupportedSetting(name, why)
    if not per_broker and is_per_broker(declared, has_prefix=has_prefix):
        raise ConfigError(name, "cannot be set for all brokers at once; name one broker")
    return declared


def unknown_name_error(name: str) -> UnsupportedSetting:
    synonyms = BROKER_SYNONYMS.get(name)
    if synonyms:
        why = f"is a setting of topics; its default for all topics is {synonyms[0].name}"
        return UnsupportedSetting(name, why)
    return UnsupportedSetting(
        name, unknown_setting_error(name, list(ALL_SETTINGS), "broker setting").why
    )


def is_per_broker(declared: Setting, *, has_prefix: bool) -> bool:
    if has_prefix:
        return declared.name not in CLUSTER_WIDE_LISTENER_SETTINGS
    return declared.update is PER_BROKER


def check_setting(name: str, text: str, *, per_broker: bool) -> None:
    """Raise ConfigError unless the setting can change at run time and the value is valid."""
    declared = check_name(name, per_broker=per_broker)
    value = replace(declared, name=name).parse(text)
    if declared.name in AT_LEAST_ONE and value == 0:
        raise ConfigError(name, "0 is not allowed, it must be at least 1")


def select_valid(
    settings: Settings, *, per_broker: bool
) -> tuple[dict[str, str], list[ConfigError]]:
    """Return the valid settings of the registry, and the errors of the others."""
    valid: dict[str, str] = {}
    errors: list[ConfigError] = []
    for name, text in settings.items():
        try:
            if find_setting(name) is None:  # without a suggestion, which takes a millisecond
                raise UnsupportedSetting(name, "no such broker setting")
            check_setting(name, text, per_broker=per_broker)
            if len(valid) == SETTINGS_MAX:
                raise ConfigError(name, f"is one of more than {SETTINGS_MAX} dynamic settings")
        except ConfigError as error:
            errors.append(error)
        else:
            valid[name] = text
    return valid, errors


def build_effective(static: BrokerConfig, dynamic: DynamicSettings) -> BrokerConfig:
    """Return the configuration with these valid settings. Raises ConfigError if they contradict each other.

    `properties` stay those of the file.
    """
    settings = dynamic.merged
    values: dict[str, Any] = {}
    security = dict(static.security)
    for name, text in settings.items():
        declared = find_setting(name)
        if declared is None:
            continue
        if name in BROKER_SETTINGS:
            values[declared.field] = declared.parse(text)
        elif declared.name in SECURITY_SETTINGS:
            security[normalize_prefix(name)] = declared.parse(text)
    if security != static.security:
        values["security"] = security
    convert_listeners(values, static)
    if "max_connections_per_ip_overrides" in values:
        values["max_connections_per_ip_overrides"] = parse_connection_limits(
            values["max_connections_per_ip_overrides"]
        )
    if not values:
        return static
    config = replace(static, **values)
    check_combinations(config, {*static.properties, *settings})
    return config


def convert_listeners(values: dict[str, Any], static: BrokerConfig) -> None:
    """Replace the text of listeners by endpoints."""
    protocols_text = values.get(
        "listener_security_protocol_map", static.listener_security_protocol_map
    )
    for name in ("listeners", "advertised.listeners"):
        key = BROKER_SETTINGS[name].field
        if key in values:
            protocols = parse_protocols("listener.security.protocol.map", protocols_text)
            values[key] = parse_listeners(name, values[key], protocols)


def check_change(static: BrokerConfig, before: DynamicSettings, after: DynamicSettings) -> None:
    """Validate a change of the dynamic settings as a whole. `before` are those in effect. Raises ConfigError."""
    count = max(len(after.broker), len(after.default))
    if count > SETTINGS_MAX:
        raise ConfigError(
            "dynamic settings", f"{count} are too many; at most {SETTINGS_MAX} are allowed"
        )
    config = build_effective(static, after)
    check_protocols(build_effective(static, before), config)
    for name in COUNTS_OF_THREADS:
        old, new = (find_number(name, static, each) for each in (before, after))
        if new != old and not max(old // 2, 1) <= new <= old * 2:
            allowed = f"from {max(old // 2, 1)} to {old * 2}, because it is {old} now"
            raise ConfigError(name, f"{new} is not allowed, it must be {allowed}")
    check_local_retention(config)


def check_protocols(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise ConfigError if a listener that stays gets another security protocol."""
    key = "listener.security.protocol.map"
    old, new = (
        parse_protocols(key, each.listener_security_protocol_map) for each in (before, after)
    )
    names = {each.listener for each in before.listeners}
    for name in [each.listener for each in after.listeners if each.listener in names]:
        if new.get(name) != old.get(name):
            why = f"listener {name} cannot change from {old.get(name)} to {new.get(name, 'no protocol')}"
            raise ConfigError(key, f"{why} at run time; add a listener with another name")


def find_number(name: str, static: BrokerConfig, dynamic: DynamicSettings) -> int:
    """Return the value of a numeric setting, which may be without effect."""
    declared = ALL_SETTINGS[name]
    text = dynamic.merged.get(name)
    if text is None and name in BROKER_SETTINGS:
        return int(getattr(static, declared.field))
    if text is None:
        text = static.properties.get(name)
    value = declared.default if text is None else declared.parse(text)
    assert isinstance(value, int), name
    return value


def check_local_retention(config: BrokerConfig) -> None:
    """Validate the local limits of remote storage against the total limits, as Kafka does."""
    defaults = config.topic_defaults()
    for name, local, total in (
        ("log.local.retention.ms", defaults.local_retention_ms, defaults.retention_ms),
        ("log.local.retention.bytes", defaults.local_retention_bytes, defaults.retention_bytes),
    ):
        if total <= NO_LIMIT or local == LIKE_TOTAL:
            continue
        if local == NO_LIMIT or local > total:
            limit = name.replace("local.", "")
            raise ConfigError(name, f"{local} is not allowed, it must be at most {limit}, {total}")
