from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete

from barnabas.cli.configs.entity import Entity
from barnabas.cli.configs.names import (
    effect_note,
    is_read_only,
    reject_lists_of_scalars,
    reject_typos,
)
from barnabas.cli.main import cli
from barnabas.client.config_admin import ConfigResource, QuotaEntity
from barnabas.errors import ConfigError
from barnabas.wire.messages.describe_configs import ResourceType

TOPIC = ConfigResource(ResourceType.TOPIC, "orders")
BROKER = ConfigResource(ResourceType.BROKER, "1")
LOGGERS = ConfigResource(ResourceType.BROKER_LOGGER, "1")
CLIENT = QuotaEntity(client_id="app")


@pytest.mark.parametrize(
    ("entity", "name", "near"),
    [
        (TOPIC, "retension.ms", "retention.ms"),
        (TOPIC, "Retention.Ms", "retention.ms"),
        (BROKER, "num.partition", "num.partitions"),
        (CLIENT, "producer.byte.rate", "producer_byte_rate"),
        (QuotaEntity(ip="::1"), "connection_creation_rates", "connection_creation_rate"),
    ],
)
def test_typo_suggests_known_name(entity: Entity, name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"no such .*; did you mean {near}\\?"):
        reject_typos(entity, [name])


@pytest.mark.parametrize(
    ("entity", "name", "counterpart"),
    [
        (TOPIC, "log.retention.hours", "retention.ms"),
        (BROKER, "max.message.bytes", "message.max.bytes"),
    ],
)
def test_name_of_another_level_is_translated(entity: Entity, name: str, counterpart: str) -> None:
    with pytest.raises(ConfigError, match=f"it is called {counterpart} here"):
        reject_typos(entity, [name])


@pytest.mark.parametrize(
    ("entity", "name"),
    [
        (TOPIC, "retention.ms"),
        (TOPIC, "a.setting.of.a.newer.release"),
        (BROKER, "listener.name.internal.max.connections"),
        (LOGGERS, "kafka.server.KafkaApi"),
        (CLIENT, "consumer_byte_rate"),
    ],
)
def test_known_and_unfamiliar_names_are_left_to_the_broker(entity: Entity, name: str) -> None:
    reject_typos(entity, [name])


def test_only_lists_can_be_appended_to() -> None:
    reject_lists_of_scalars(TOPIC, ["cleanup.policy", "unknown"], "--append")
    with pytest.raises(ConfigError, match=r"--append: retention\.ms is not a list"):
        reject_lists_of_scalars(TOPIC, ["retention.ms"], "--append")
    with pytest.raises(ConfigError, match="a quota is a number"):
        reject_lists_of_scalars(CLIENT, ["producer_byte_rate"], "--append")


def test_read_only_settings_are_those_of_kafka() -> None:
    assert is_read_only(BROKER, "broker.id")
    assert not is_read_only(BROKER, "log.retention.ms")
    assert not is_read_only(TOPIC, "retention.ms")


def completed(*words: str) -> list[str]:
    """Return the completions of the last word after `barnabas`."""
    complete = ShellComplete(cli, {}, "barnabas", "_BARNABAS_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]


def test_completion_knows_names_of_the_selected_entity() -> None:
    describe = ("configs", "describe")
    assert completed(*describe, "--topic", "a", "retention") == ["retention.bytes", "retention.ms"]
    assert completed(*describe, "--client-id", "a", "prod") == ["producer_byte_rate"]
    assert completed("configs", "reset", "--broker", "1", "broker.ra") == ["broker.rack"]
    assert completed(*describe, "retention") == []


def test_completion_of_assignments_skips_read_only_settings_and_knows_values() -> None:
    alter = ("configs", "alter")
    assert completed(*alter, "--topic", "a", "retention.m") == ["retention.ms="]
    assert completed(*alter, "--broker", "1", "broker.i") == []
    assert completed(*alter, "--topic", "a", "preallocate=") == [
        "preallocate=true",
        "preallocate=false",
    ]
    assert completed(*alter, "--topic", "a", "x=1", "message.timestamp.type=L") == [
        "message.timestamp.type=LogAppendTime"
    ]
    assert completed(*alter, "--broker-logger", "1", "root=D") == ["root=DEBUG"]


@pytest.mark.parametrize(
    ("entity", "names", "note"),
    [
        (CLIENT, ["producer_byte_rate", "request_percentage"], None),
        (QuotaEntity(ip="::1"), ["connection_creation_rate"], None),
        (BROKER, ["listener.name.plaintext.max.connection.creation.rate"], None),
        (
            BROKER,
            ["num.io.threads", "max.connections"],
            "num.io.threads: stored, but without effect",
        ),
        (BROKER, ["listener.name.plaintext.max.connections"], "without effect"),
        (BROKER, ["max.connections", "no.such.setting"], None),
        (TOPIC, ["retention.ms"], None),
        (LOGGERS, ["barnabas.network"], None),
    ],
)
def test_settings_that_brokers_do_not_use_are_named(
    entity: Entity, names: list[str], note: str | None
) -> None:
    found = effect_note(entity, names)
    assert found is None if note is None else note in (found or "")
