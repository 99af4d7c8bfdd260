"""The settings against Kafka 3.9's own, as listed in the two tables beside this file."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import fields

from barnabas.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, TopicConfig
from barnabas.config.setting import ANY, Setting
from barnabas.config.topic import BROKER_SYNONYMS
from barnabas.config.without_effect import WITHOUT_EFFECT

HERE = Path(__file__).parent


def kafka(which: str) -> dict[str, dict[str, str]]:
    with (HERE / f"kafka-3.9-{which}.tsv").open(encoding="utf-8") as lines:
        return {row["name"]: row for row in csv.DictReader(lines, delimiter="\t")}


KAFKA_BROKER = kafka("broker")
KAFKA_TOPIC = kafka("topic")
SET_WHILE_RUNNING = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""In Kafka they are no settings of the file, and not in its table."""
OUR_DEFAULTS = {"socket.send.buffer.bytes": "524288", "socket.receive.buffer.bytes": "262144"}
"""A turn of a loop costs more in Python than in Java: fewer, with more to do in each."""
OURS = {
    name: declared
    for name, declared in (BROKER_SETTINGS | WITHOUT_EFFECT).items()
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


def test_the_broker_settings_are_kafkas_and_none_is_missing() -> None:
    assert sorted(OURS) == sorted(KAFKA_BROKER)
    assert len(KAFKA_BROKER) == 329


def test_the_topic_settings_are_kafkas_and_none_is_missing() -> None:
    assert sorted(TOPIC_SETTINGS) == sorted(KAFKA_TOPIC)


def test_a_setting_either_has_an_effect_or_has_none() -> None:
    assert not BROKER_SETTINGS.keys() & WITHOUT_EFFECT.keys()


def test_type_default_range_and_update_mode_of_broker_settings_are_kafkas() -> None:
    for name, declared in OURS.items():
        update = "internal" if declared.internal else declared.update.value
        theirs = KAFKA_BROKER[name]
        default = OUR_DEFAULTS.get(name, theirs["default"])
        assert facts(declared) | {"update": update} == theirs | {"default": default}


def test_the_defaults_that_are_our_own_are_not_kafkas() -> None:
    for name, default in OUR_DEFAULTS.items():
        assert KAFKA_BROKER[name]["default"] != default


def test_type_default_and_range_of_topic_settings_are_kafkas() -> None:
    for name, declared in TOPIC_SETTINGS.items():
        assert facts(declared) == KAFKA_TOPIC[name]


def test_a_default_is_what_its_own_text_reads_as() -> None:
    for declared in (*OURS.values(), *TOPIC_SETTINGS.values()):
        shown = declared.show(declared.default)
        assert shown is None or declared.parse(shown) == declared.default


def test_a_setting_says_what_it_does_in_one_short_line() -> None:
    for declared in (*BROKER_SETTINGS.values(), *OURS.values(), *TOPIC_SETTINGS.values()):
        assert 8 <= len(declared.doc) <= 100, declared.name
        assert "\n" not in declared.doc
        assert not declared.doc.endswith(".")


@pytest.mark.parametrize(
    ("config", "settings"), [(BrokerConfig, BROKER_SETTINGS), (TopicConfig, TOPIC_SETTINGS)]
)
def test_a_field_is_the_settings_name_with_underscores_and_holds_its_default(
    config: type[Struct], settings: dict[str, Setting]
) -> None:
    defaults = {field.name: field.default for field in fields(config)}
    assert defaults.keys() - {"properties"} == {declared.field for declared in settings.values()}
    for declared in settings.values():
        if declared.field not in HELD_IN_ANOTHER_FORM:
            assert defaults[declared.field] == declared.default


HELD_IN_ANOTHER_FORM = (
    "listeners",
    "advertised_listeners",
    "log_dirs",
    "max_connections_per_ip_overrides",
)


def test_without_any_property_the_topic_defaults_are_kafkas_defaults() -> None:
    assert BrokerConfig().topic_defaults() == TopicConfig()


def test_a_topic_setting_falls_back_to_broker_settings_that_exist() -> None:
    for name, synonyms in BROKER_SYNONYMS.items():
        assert TOPIC_SETTINGS[name].kind is BROKER_SETTINGS[synonyms[0][0]].kind
        assert all(broker_name in BROKER_SETTINGS for broker_name, _ in synonyms)


def test_five_topic_settings_have_no_broker_default() -> None:
    assert sorted(TOPIC_SETTINGS.keys() - BROKER_SYNONYMS.keys()) == [
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    ]
