from __future__ import annotations

from barnabas.config import BrokerConfig, TopicConfig
from barnabas.config.describe import (
    SettingDescription,
    Source,
    Synonym,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from barnabas.config.load import load_broker_config
from barnabas.config.setting import Kind


def broker(**properties: str) -> BrokerConfig:
    config, _ = load_broker_config({k.replace("_", "."): v for k, v in properties.items()})
    return config


def synonyms(entry: SettingDescription) -> list[tuple[str, str | None, Source]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]


def single(entries: tuple[SettingDescription, ...]) -> SettingDescription:
    assert len(entries) == 1
    return entries[0]


def test_topic_setting_overrides_broker_setting() -> None:
    config = broker(message_max_bytes="100")
    entry = single(
        describe_topic({"max.message.bytes": " 7 "}, config, names=["max.message.bytes"])
    )
    assert entry == SettingDescription(
        name="max.message.bytes",
        value="7",
        source=Source.DYNAMIC_TOPIC_CONFIG,
        read_only=False,
        is_sensitive=False,
        synonyms=(
            Synonym(name="max.message.bytes", value="7", source=Source.DYNAMIC_TOPIC_CONFIG),
            Synonym(name="message.max.bytes", value="100", source=Source.STATIC_BROKER_CONFIG),
            Synonym(name="message.max.bytes", value="1048588", source=Source.DEFAULT_CONFIG),
        ),
        type=Kind.INT,
        documentation="Maximum size of a record batch",
    )
    assert not entry.is_default


def test_all_topic_settings_are_described_sorted_by_name() -> None:
    entries = describe_topic({}, BrokerConfig())
    names = [entry.name for entry in entries]
    assert names == sorted(names)
    assert len(names) == 36
    assert all(entry.is_default for entry in entries)
    values = {entry.name: entry.value for entry in entries}
    assert values["cleanup.policy"] == "delete"
    assert values["min.cleanable.dirty.ratio"] == "0.5"
    assert values["preallocate"] == "false"
    assert values["leader.replication.throttled.replicas"] == ""


def test_topic_shows_broker_value_in_its_own_unit() -> None:
    entry = single(describe_topic({}, broker(log_retention_hours="1"), names=["retention.ms"]))
    assert entry.value == "3600000"
    # As in Kafka: synonyms start at log.retention.ms, and only the hours are set here.
    assert entry.source is Source.DEFAULT_CONFIG
    assert synonyms(entry) == []


def test_synonyms_list_finest_unit_first() -> None:
    config = broker(log_retention_ms="5", log_retention_hours="1")
    entry = single(describe_topic({}, config, names=["retention.ms"]))
    assert synonyms(entry) == [
        ("log.retention.ms", "5", Source.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "1", Source.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", Source.DEFAULT_CONFIG),
    ]


def test_topic_only_setting_has_no_synonyms() -> None:
    entry = single(describe_topic({}, BrokerConfig(), names=["remote.storage.enable"]))
    assert (entry.source, entry.synonyms) == (Source.DEFAULT_CONFIG, ())


def test_described_values_recreate_the_topic_config() -> None:
    overrides = {"retention.ms": "1000", "cleanup.policy": "compact,delete", "flush.ms": "3"}
    config = broker(log_segment_bytes="1000", log_roll_hours="2")
    described = {e.name: e.value or "" for e in describe_topic(overrides, config)}
    again = TopicConfig().with_overrides(described)
    assert again == config.topic_defaults().with_overrides(overrides)


def test_broker_description_contains_all_documented_settings() -> None:
    entries = {entry.name: entry for entry in describe_broker(broker(broker_id="3"))}
    assert entries["broker.id"].value == entries["node.id"].value == "3"
    assert entries["broker.id"].source is Source.STATIC_BROKER_CONFIG
    assert entries["broker.id"].read_only
    assert entries["num.network.threads"].value == "3"
    assert not entries["num.network.threads"].read_only
    assert (entries["num.network.threads"].documentation or "").endswith("(no effect)")
    assert entries["listeners"].value == "PLAINTEXT://:9092"
    assert entries["advertised.listeners"].value is None
    assert entries["ssl.enabled.protocols"].value == "TLSv1.2,TLSv1.3"
    assert "log.initial.task.delay.ms" not in entries


def test_internal_setting_is_described_only_if_set() -> None:
    config = broker(log_initial_task_delay_ms="1")
    entry = single(describe_broker(config, names=["log.initial.task.delay.ms"]))
    assert entry.value == "1"


def test_secrets_and_undeclared_names_are_hidden() -> None:
    config, _ = load_broker_config(
        {
            "ssl.keystore.password": "hunter2",
            "listener.name.inside.ssl.key.password": "hunter2",
            "rsm.config.secret": "hunter2",
        }
    )
    entries = {entry.name: entry for entry in describe_broker(config)}
    assert "hunter2" not in repr(entries)
    for name in config.properties:
        assert entries[name].is_sensitive
        assert entries[name].source is Source.STATIC_BROKER_CONFIG
    assert entries["rsm.config.secret"].type == 0
    assert entries["ssl.keystore.password"].type == Kind.PASSWORD


def test_listener_setting_overrides_general_setting() -> None:
    config, _ = load_broker_config(
        {"listener.name.inside.ssl.protocol": "TLSv1.2", "ssl.protocol": "TLSv1.3"}
    )
    entry = single(describe_broker(config, names=["listener.name.inside.ssl.protocol"]))
    assert entry.value == "TLSv1.2"
    assert synonyms(entry) == [
        ("listener.name.inside.ssl.protocol", "TLSv1.2", Source.STATIC_BROKER_CONFIG),
        ("ssl.protocol", "TLSv1.3", Source.STATIC_BROKER_CONFIG),
        ("ssl.protocol", "TLSv1.3", Source.DEFAULT_CONFIG),
    ]


def test_dynamic_setting_overrides_static_setting() -> None:
    entry = single(
        describe_broker(
            broker(num_io_threads="4"),
            dynamic={"num.io.threads": "6"},
            dynamic_default={"num.io.threads": "5"},
            names=["num.io.threads"],
        )
    )
    assert entry.value == "6"
    assert synonyms(entry) == [
        ("num.io.threads", "6", Source.DYNAMIC_BROKER_CONFIG),
        ("num.io.threads", "5", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("num.io.threads", "4", Source.STATIC_BROKER_CONFIG),
        ("num.io.threads", "8", Source.DEFAULT_CONFIG),
    ]


def test_cluster_defaults_are_described_alone() -> None:
    entry = single(describe_broker_defaults({"num.io.threads": "5"}))
    assert entry.value == "5"
    assert synonyms(entry) == [("num.io.threads", "5", Source.DYNAMIC_DEFAULT_BROKER_CONFIG)]
