"""Comparison of the settings with those of Kafka 3.9, listed in the two tables next to this file."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import fields

from barnabas.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, TopicConfig
from barnabas.config.broker import BROKER_SYNONYMS
from barnabas.config.security import SECURITY_SETTINGS
from barnabas.config.setting import ANY, Setting
from barnabas.config.without_effect import WITHOUT_EFFECT

TABLES = Path(__file__).parent


def read_kafka_table(which: str) -> dict[str, dict[str, str]]:
    with (TABLES / f"kafka-3.9-{which}.tsv").open(encoding="utf-8") as lines:
        return {row["name"]: row for row in csv.DictReader(lines, delimiter="\t")}


KAFKA_BROKER = read_kafka_table("broker")
KAFKA_TOPIC = read_kafka_table("topic")
SET_WHILE_RUNNING = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Dynamic settings in Kafka, which are not in its table."""
OUR_DEFAULTS = {
    "socket.send.buffer.bytes": "524288",
    "socket.receive.buffer.bytes": "262144",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.migration.policy": "bidirectional",
}
"""Buffer sizes are reported, but not applied: unless they are set, the kernel chooses them.

The new consumer protocol and the migration to it are enabled, as in Kafka 4.0.
"""
OURS = {
    name: declared
    for name, declared in (BROKER_SETTINGS | SECURITY_SETTINGS | WITHOUT_EFFECT).items()
    if not name.startswith("barnabas.") and name not in SET_WHILE_RUNNING
}


def facts(declared: Setting) -> dict[str, str]:
    shown = declared.show(declared.default)
    return {
        "name": declared.name,
        "type": declared.kind.name.lower(),
        "default": "null" if shown is None else shown,
        "allowed": "" if declared.check is ANY else declared.check.allowed,
    }


def test_broker_settings_match_kafka() -> None:
    assert sorted(OURS) == sorted(KAFKA_BROKER)
    assert len(KAFKA_BROKER) == 329


def test_topic_settings_match_kafka() -> None:
    assert sorted(TOPIC_SETTINGS) == sorted(KAFKA_TOPIC)


def test_settings_with_and_without_effect_are_disjoint() -> None:
    with_effect = [*BROKER_SETTINGS, *SECURITY_SETTINGS]
    assert len(set(with_effect)) == len(with_effect)
    assert not WITHOUT_EFFECT.keys() & set(with_effect)


def test_broker_setting_attributes_match_kafka() -> None:
    for name, declared in OURS.items():
        update = "internal" if declared.internal else declared.update.value
        theirs = KAFKA_BROKER[name]
        default = OUR_DEFAULTS.get(name, theirs["default"])
        assert facts(declared) | {"update": update} == theirs | {"default": default}


def test_own_defaults_differ_from_kafka() -> None:
    for name, default in OUR_DEFAULTS.items():
        assert KAFKA_BROKER[name]["default"] != default


def test_topic_setting_attributes_match_kafka() -> None:
    for name, declared in TOPIC_SETTINGS.items():
        assert facts(declared) == KAFKA_TOPIC[name]


def test_default_round_trips_through_text() -> None:
    for declared in (*OURS.values(), *TOPIC_SETTINGS.values()):
        shown = declared.show(declared.default)
        assert shown is None or declared.parse(shown) == declared.default


def test_setting_doc_is_one_short_line() -> None:
    for declared in (*BROKER_SETTINGS.values(), *OURS.values(), *TOPIC_SETTINGS.values()):
        assert 8 <= len(declared.doc) <= 100, declared.name
        assert "\n" not in declared.doc
        assert not declared.doc.endswith(".")


@pytest.mark.parametrize(
    ("config", "settings"), [(BrokerConfig, BROKER_SETTINGS), (TopicConfig, TOPIC_SETTINGS)]
)
def test_config_field_has_name_and_default_of_setting(
    config: type[Struct], settings: dict[str, Setting]
) -> None:
    defaults = {field.name: field.default for field in fields(config)}
    assert defaults.keys() - {"properties", "security", "jaas_sections"} == {
        declared.field for declared in settings.values()
    }
    for declared in settings.values():
        if declared.field not in PARSED_FIELDS:
            assert defaults[declared.field] == declared.default


PARSED_FIELDS = (
    "listeners",
    "advertised_listeners",
    "log_dirs",
    "max_connections_per_ip_overrides",
)


def test_topic_defaults_without_properties_match_kafka() -> None:
    assert BrokerConfig().topic_defaults() == TopicConfig()


def test_synonyms_have_type_of_topic_setting() -> None:
    for name, synonyms in BROKER_SYNONYMS.items():
        assert TOPIC_SETTINGS[name].kind is synonyms[0].kind
        declared = [each for each in BROKER_SETTINGS.values() if each.default_of == name]
        assert list(synonyms) == declared


def test_five_topic_settings_have_no_broker_default() -> None:
    assert sorted(TOPIC_SETTINGS.keys() - BROKER_SYNONYMS.keys()) == [
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    ]
