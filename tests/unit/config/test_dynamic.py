"""Dynamic settings: names and values that are allowed, and the resulting configuration."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.config.dynamic import (
    DynamicSettings,
    UnsupportedSetting,
    build_effective,
    check_change,
    check_setting,
    select_valid,
)
from barnabas.config.load import ALL_SETTINGS, load_broker_config
from barnabas.config.setting import PASSWORD, READ_ONLY
from barnabas.errors import ConfigError

FILE = {"broker.id": "1", "log.retention.hours": "5", "max.connections": "50"}
STATIC, _ = load_broker_config(FILE)


def dynamic(
    broker: Mapping[str, str] | None = None, default: Mapping[str, str] | None = None
) -> DynamicSettings:
    return DynamicSettings(broker=broker or {}, default=default or {})


# ---- names


@pytest.mark.parametrize(
    "name", [name for name, each in ALL_SETTINGS.items() if each.update is READ_ONLY]
)
def test_read_only_setting_is_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be changed at run time") as caught:
        check_setting(name, "1", per_broker=True)
    assert not isinstance(caught.value, UnsupportedSetting)


@pytest.mark.parametrize(
    "name",
    [
        *(f"listener.name.plaintext.{name}" for name in ("ssl.key.password", "sasl.jaas.config")),
        *(
            f"listener.name.x.{name}"
            for name, each in ALL_SETTINGS.items()
            if each.kind is PASSWORD and each.update is not READ_ONLY
        ),
    ],
)
def test_password_is_rejected_without_its_value(name: str) -> None:
    with pytest.raises(UnsupportedSetting, match="not stored") as caught:
        check_setting(name, "tops3cret", per_broker=True)
    assert "tops3cret" not in str(caught.value)


def test_unknown_setting_suggests_similar_name() -> None:
    with pytest.raises(UnsupportedSetting, match=r"did you mean log\.retention\.ms\?"):
        check_setting("log.retenton.ms", "1", per_broker=True)


def test_topic_setting_names_its_broker_setting() -> None:
    with pytest.raises(UnsupportedSetting, match=r"for all topics is log\.retention\.ms"):
        check_setting("retention.ms", "1", per_broker=True)


@pytest.mark.parametrize("name", ["ssl.keystore.location", "ssl.truststore.type"])
def test_key_store_needs_listener_prefix(name: str) -> None:
    with pytest.raises(ConfigError, match="prefix of a listener"):
        check_setting(name, "x", per_broker=True)
    check_setting(f"listener.name.plaintext.{name}", "x", per_broker=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listeners", "PLAINTEXT://:1"),
        ("advertised.listeners", "PLAINTEXT://a:1"),
        ("listener.name.plaintext.ssl.keystore.location", "x"),
    ],
)
def test_per_broker_setting_is_rejected_for_all_brokers(name: str, value: str) -> None:
    check_setting(name, value, per_broker=True)
    with pytest.raises(ConfigError, match="name one broker"):
        check_setting(name, value, per_broker=False)


@pytest.mark.parametrize(
    "name", ["max.connections", "leader.replication.throttled.rate", "log.retention.ms"]
)
def test_cluster_wide_setting_is_allowed_on_both_levels(name: str) -> None:
    for per_broker in (True, False):
        check_setting(name, "7", per_broker=per_broker)


def test_invalid_value_is_rejected() -> None:
    with pytest.raises(ConfigError, match="'soon' is not allowed"):
        check_setting("log.retention.ms", "soon", per_broker=True)


@pytest.mark.parametrize("connections", ["x", "0"])
def test_select_valid_drops_only_invalid_settings(connections: str) -> None:
    settings = {"log.retention.ms": "7", "broker.id": "2", "no.such": "1"}
    valid, errors = select_valid(settings | {"max.connections": connections}, per_broker=True)
    assert valid == {"log.retention.ms": "7"}
    assert sorted(error.key for error in errors) == ["broker.id", "max.connections", "no.such"]


# ---- effective configuration


def test_levels_take_precedence_in_order() -> None:
    config = build_effective(STATIC, dynamic())
    assert (config.max_connections, config.topic_defaults().retention_ms) == (50, 18_000_000)
    config = build_effective(STATIC, dynamic(default={"max.connections": "6"}))
    assert config.max_connections == 6
    both = dynamic({"max.connections": "7"}, {"max.connections": "6", "log.retention.ms": "9"})
    config = build_effective(STATIC, both)
    assert (config.max_connections, config.topic_defaults().retention_ms) == (7, 9)
    assert config.properties == STATIC.properties


def test_listeners_are_parsed_with_the_protocols_of_the_change() -> None:
    settings = {
        "listeners": "PLAINTEXT://:9092,INSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        "max.connections.per.ip.overrides": "10.0.0.1:3",
    }
    config = build_effective(STATIC, dynamic(settings))
    assert [each.listener for each in config.listeners] == ["PLAINTEXT", "INSIDE"]
    assert config.max_connections_per_ip_overrides == (("10.0.0.1", 3),)


@pytest.mark.parametrize(
    "settings",
    [
        {"listeners": "INSIDE://:1"},
        {"advertised.listeners": "OTHER://a:1"},
        {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
        {"log.retention.ms": "0"},
        {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
        {"max.connections.per.ip": "0"},
        {"log.cleaner.dedupe.buffer.size": "1024"},
        {"log.local.retention.ms": "20", "log.retention.ms": "10"},
        {"log.local.retention.bytes": "-1", "log.retention.bytes": "10"},
    ],
)
def test_contradicting_settings_are_rejected(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        check_change(STATIC, dynamic(), dynamic(settings))


PROTOCOLS = "listener.security.protocol.map"
TWO = {
    "listeners": "PLAINTEXT://:9092,EXTRA://:9093",
    PROTOCOLS: "PLAINTEXT:PLAINTEXT,EXTRA:SASL_PLAINTEXT",
}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {PROTOCOLS: "PLAINTEXT:SSL"}),
        ({}, {PROTOCOLS: "OTHER:SSL"}),
        ({}, {**TWO, PROTOCOLS: "PLAINTEXT:SASL_PLAINTEXT,EXTRA:SSL"}),
        (TWO, {**TWO, PROTOCOLS: "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT"}),
        (TWO, {"listeners": TWO["listeners"], PROTOCOLS: "PLAINTEXT:SSL,EXTRA:SASL_PLAINTEXT"}),
    ],
)
def test_listener_cannot_get_another_protocol(
    before: dict[str, str], after: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r"protocol\.map: listener .* cannot"):
        check_change(STATIC, dynamic(before), dynamic(after))


def test_listeners_are_added_and_removed_with_their_protocol() -> None:
    check_change(STATIC, dynamic(), dynamic(TWO))
    check_change(STATIC, dynamic(TWO), dynamic())
    check_change(STATIC, dynamic(TWO), dynamic({PROTOCOLS: "PLAINTEXT:PLAINTEXT,EXTRA:SSL"}))


def test_thousands_of_settings_are_rejected() -> None:
    prefixed = {f"listener.name.x{number}.max.connections": "1" for number in range(1000)}
    with pytest.raises(ConfigError, match="1000 are too many"):
        check_change(STATIC, dynamic(), dynamic(prefixed))


@pytest.mark.parametrize("name", ["num.io.threads", "num.replica.fetchers", "log.cleaner.threads"])
def test_number_of_threads_at_most_doubles_or_halves(name: str) -> None:
    eight = dynamic({name: "8"})
    for count in ("4", "8", "16"):
        check_change(STATIC, eight, dynamic({name: count}))
    for count in ("0", "3", "17"):
        with pytest.raises(ConfigError, match=f"^{name}"):
            check_change(STATIC, eight, dynamic({name: count}))


def test_unchanged_thread_count_of_the_file_is_accepted() -> None:
    check_change(STATIC, dynamic(), dynamic({"max.connections": "5"}))
