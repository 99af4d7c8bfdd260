"""Checks of a topic's settings before any request, with Kafka's messages. Pure.

Which there are and what they allow is declared once, in config/topic.py; here is only how Kafka's tools say that
something else was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from barnabas.cli.kafka.failures import API_ERRORS, Refused
from barnabas.config.setting import (
    BOOLEAN,
    JAVA_BLANKS,
    READERS,
    RELEASE,
    THROTTLED_REPLICAS,
    Setting,
    Value,
)
from barnabas.config.topic import TOPIC_SETTINGS

INVALID_CONFIGURATION = f"{API_ERRORS}.InvalidConfigurationException"
CONFIG_EXCEPTION = "org.apache.kafka.common.config.ConfigException"
MIN_LAG, MAX_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"
FORMAT_VERSION = "message.format.version"


def check_topic_settings(configs: Mapping[str, str]) -> None:
    check_names(configs)
    values = {name: parsed(declared, configs[name]) for name, declared in declared_in(configs)}
    least = values.get(MIN_LAG, TOPIC_SETTINGS[MIN_LAG].default)
    most = values.get(MAX_LAG, TOPIC_SETTINGS[MAX_LAG].default)
    assert isinstance(least, int)
    assert isinstance(most, int)
    if least > most:
        raise Refused(
            f"conflict topic config setting {MIN_LAG} ({least}) > {MAX_LAG} ({most})",
            INVALID_CONFIGURATION,
        )


def check_names(names: Mapping[str, object]) -> None:
    for name in names:
        if name not in TOPIC_SETTINGS:
            raise Refused(f"Unknown topic config name: {name}", INVALID_CONFIGURATION)


def declared_in(configs: Mapping[str, str]) -> list[tuple[str, Setting]]:
    return [(name, declared) for name, declared in TOPIC_SETTINGS.items() if name in configs]


def parsed(declared: Setting, text: str) -> Value:
    text = text.strip(JAVA_BLANKS)
    try:
        value = READERS[declared.kind](text)
    except ValueError:
        why = f"Not a number of type {declared.kind.name}"
        if declared.kind is BOOLEAN:
            why = "Expected value to be either true or false"
        raise invalid(declared, text, why) from None
    if not declared.check.holds(value):
        raise out_of_bounds(declared, value)
    return value


def out_of_bounds(declared: Setting, value: Value) -> Refused:
    """Return Kafka's error for a value that breaks a rule. The text of the rule (`Check.allowed`) selects it."""
    allowed = declared.check.allowed
    if declared.check is RELEASE:
        return invalid(declared, value, f"Version {value} is not a valid version")
    if declared.check is THROTTLED_REPLICAS:
        form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        why = f"must be the literal '*' or a list of replicas in the following format: {form}"
        return invalid(declared, value, f"{declared.name} {why}")
    if found := re.fullmatch(r"at least (\S+)", allowed):
        return invalid(declared, value, f"Value must be at least {found[1]}")
    if found := re.fullmatch(r"from (\S+) to (\S+), or (\S+)", allowed):
        low, high, other = found.groups()
        return invalid(
            declared, value, f"Value must be between {low} and {high} or equal to {other}"
        )
    if found := re.fullmatch(r"from (\S+) to (\S+)", allowed):
        assert isinstance(value, int | float)
        is_low = value < float(found[1])
        why = f"at least {found[1]}" if is_low else f"no more than {found[2]}"
        return invalid(declared, value, f"Value must be {why}")
    if found := re.fullmatch(r"(?:one|a list) of (.*)", allowed):
        choices = found[1].split(", ")
        if isinstance(value, tuple):  # the first that is none of them
            value = next(each for each in value if each not in choices)
        return invalid(declared, value, f"String must be one of: {found[1]}")
    return invalid(declared, value, f"it must be {allowed}")


def invalid(declared: Setting, value: Value, why: str) -> Refused:
    shown = f"[{', '.join(value)}]" if isinstance(value, tuple) else declared.show(value)
    return Refused(
        f"Invalid value {shown} for configuration {declared.name}: {why}", CONFIG_EXCEPTION
    )


def format_version_warning(configs: Mapping[str, str]) -> str | None:
    if FORMAT_VERSION not in configs:
        return None
    return (
        f"WARNING: The configuration {FORMAT_VERSION}={configs[FORMAT_VERSION]} is specified. This"
        " configuration will be ignored if the version is newer than the"
        " inter.broker.protocol.version specified in the broker or if the"
        " inter.broker.protocol.version is 3.0 or newer. This configuration is deprecated and it"
        " will be removed in Apache Kafka 4.0."
    )
