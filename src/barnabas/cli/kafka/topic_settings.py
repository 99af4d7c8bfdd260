"""Checks of a topic's settings before any request, with the messages of Kafka's commands. Without I/O.

config/topic.py declares the settings and their allowed values. This module checks them with Kafka's error messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from barnabas.cli.kafka.failures import API_ERRORS, RequestRejected
from barnabas.config.setting import (
    BOOLEAN,
    JAVA_WHITE_SPACE,
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
    check_setting_names(configs)
    values = {
        name: parse_setting(declared, configs[name])
        for name, declared in TOPIC_SETTINGS.items()
        if name in configs
    }
    min_lag = values.get(MIN_LAG, TOPIC_SETTINGS[MIN_LAG].default)
    max_lag = values.get(MAX_LAG, TOPIC_SETTINGS[MAX_LAG].default)
    assert isinstance(min_lag, int)
    assert isinstance(max_lag, int)
    if min_lag > max_lag:
        raise RequestRejected(
            f"conflict topic config setting {MIN_LAG} ({min_lag}) > {MAX_LAG} ({max_lag})",
            INVALID_CONFIGURATION,
        )


def check_setting_names(names: Mapping[str, object]) -> None:
    for name in names:
        if name not in TOPIC_SETTINGS:
            raise RequestRejected(f"Unknown topic config name: {name}", INVALID_CONFIGURATION)


def format_version_warning(value: str) -> str:
    return (
        f"WARNING: The configuration {FORMAT_VERSION}={value} is specified. This configuration will"
        " be ignored if the version is newer than the inter.broker.protocol.version specified in the"
        " broker or if the inter.broker.protocol.version is 3.0 or newer. This configuration is"
        " deprecated and it will be removed in Apache Kafka 4.0."
    )


def parse_setting(declared: Setting, text: str) -> Value:
    text = text.strip(JAVA_WHITE_SPACE)
    try:
        value = READERS[declared.kind](text)
    except ValueError:
        why = f"Not a number of type {declared.kind.name}"
        if declared.kind is BOOLEAN:
            why = "Expected value to be either true or false"
        raise invalid_value_error(declared, text, why) from None
    if not declared.check.holds(value):
        raise rule_error(declared, value)
    return value


def rule_error(declared: Setting, value: Value) -> RequestRejected:
    """Return Kafka's error for a value that breaks a rule. The text of the rule determines the message."""
    allowed = declared.check.allowed
    if declared.check is RELEASE:
        return invalid_value_error(declared, value, f"Version {value} is not a valid version")
    if declared.check is THROTTLED_REPLICAS:
        form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        why = f"must be the literal '*' or a list of replicas in the following format: {form}"
        return invalid_value_error(declared, value, f"{declared.name} {why}")
    if found := re.fullmatch(r"at least (\S+)", allowed):
        return invalid_value_error(declared, value, f"Value must be at least {found[1]}")
    if found := re.fullmatch(r"from (\S+) to (\S+), or (\S+)", allowed):
        low, high, other = found.groups()
        return invalid_value_error(
            declared, value, f"Value must be between {low} and {high} or equal to {other}"
        )
    if found := re.fullmatch(r"from (\S+) to (\S+)", allowed):
        assert isinstance(value, int | float)
        is_low = value < float(found[1])
        why = f"at least {found[1]}" if is_low else f"no more than {found[2]}"
        return invalid_value_error(declared, value, f"Value must be {why}")
    if found := re.fullmatch(r"(?:one|a list) of (.*)", allowed):
        choices = found[1].split(", ")
        if isinstance(value, tuple):  # report the first invalid element
            value = next(each for each in value if each not in choices)
        return invalid_value_error(declared, value, f"String must be one of: {found[1]}")
    return invalid_value_error(declared, value, f"it must be {allowed}")


def invalid_value_error(declared: Setting, value: Value, why: str) -> RequestRejected:
    shown = f"[{', '.join(value)}]" if isinstance(value, tuple) else declared.show(value)
    return RequestRejected(
        f"Invalid value {shown} for configuration {declared.name}: {why}", CONFIG_EXCEPTION
    )
