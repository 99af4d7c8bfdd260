"""`barnabas configs` with three brokers: settings are changed at run time, shown, validated and reset."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from barnabas.cli.configs.reading import read_settings_of
from barnabas.cli.main import run_command
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigResource
from barnabas.cluster.local import LocalCluster
from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.messages.describe_configs import ResourceType
from support.waiting import eventually

NUMBERS = count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as running:
        yield running


class Commands:
    """Runs commands in this process. `out` and `err` are the output of the last one."""

    def __init__(self, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.servers = cluster.bootstrap_servers
        self.capsys = capsys
        self.out = self.err = ""

    def run(self, *arguments: str) -> int:
        code = run_command([*arguments, "-b", self.servers])
        self.out, self.err = self.capsys.readouterr()
        return code

    def ok(self, *arguments: str) -> list[str]:
        assert self.run(*arguments) == 0, self.err
        return self.out.splitlines()

    def fails(self, code: int, *arguments: str) -> str:
        assert self.run(*arguments) == code, self.out
        assert self.out == ""
        return self.err

    def document(self, *arguments: str) -> dict[str, Any]:
        self.ok(*arguments, "-o", "json")
        found: dict[str, Any] = json.loads(self.out)
        return found

    def settings(self, *arguments: str) -> dict[str, dict[str, Any]]:
        found = self.document("configs", "describe", *arguments)["settings"]
        return {each["name"]: each for each in found}


@pytest.fixture
def commands(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(cluster, capsys)


@pytest.fixture
def topic(commands: Commands) -> str:
    name = f"topic-{next(NUMBERS)}"
    commands.ok("topics", "create", name, "--replication-factor", "3")
    return name


def test_topic_setting_is_altered_shown_and_reset(commands: Commands, topic: str) -> None:
    assert commands.ok("configs", "describe", "--topic", topic) == [
        f"topic {topic}: nothing is set; --all shows 36 values in effect"
    ]
    changed = ("configs", "alter", "--topic", topic, "retention.ms=3600000")
    assert commands.ok(*changed, "--append", "cleanup.policy=compact") == [
        f"altered topic {topic}: 2 settings",
        "SETTING         BEFORE     AFTER",
        "retention.ms    604800000  3600000",
        "cleanup.policy  delete     delete,compact",
    ]
    shown = commands.settings("--topic", topic)
    assert {name: each["value"] for name, each in shown.items()} == {
        "cleanup.policy": "delete,compact",
        "retention.ms": "3600000",
    }
    retention = shown["retention.ms"]
    assert (retention["source"], retention["default"]) == ("DYNAMIC_TOPIC_CONFIG", "604800000")
    assert retention["documentation"]
    assert commands.ok("configs", "reset", "--topic", topic, "retention.ms")[-1].split() == [
        *("retention.ms", "3600000", "604800000", "the", "default")
    ]
    commands.ok("configs", "alter", "--topic", topic, "--subtract", "cleanup.policy=delete")
    assert commands.settings("--topic", topic)["cleanup.policy"]["value"] == "compact"
    assert list(commands.settings("--topic", topic)) == ["cleanup.policy"]


def test_dry_run_validates_and_changes_nothing(commands: Commands, topic: str) -> None:
    alter = ("configs", "alter", "--topic", topic, "--dry-run")
    assert commands.ok(*alter, "flush.ms=5")[0] == f"would alter topic {topic}: 1 setting"
    assert commands.settings("--topic", topic) == {}
    why = commands.fails(1, *alter, "flush.ms=x")
    assert why.startswith("error: INVALID_CONFIG: ")


def test_typo_is_reported_without_a_broker(commands: Commands) -> None:
    commands.servers = "127.0.0.1:1"
    why = commands.fails(2, "configs", "alter", "--topic", "orders", "retension.ms=5")
    assert why == "error: retension.ms: no such topic setting; did you mean retention.ms?\n"


def test_unfamiliar_name_is_rejected_by_the_broker(commands: Commands, topic: str) -> None:
    why = commands.fails(1, "configs", "alter", "--topic", topic, "x.y.z=5")
    assert why.startswith("error: INVALID_CONFIG: ")
    assert f"hint:  `barnabas configs describe --topic {topic} -b " in why


def test_unknown_entities_are_explained(commands: Commands, topic: str) -> None:
    why = commands.fails(1, "configs", "describe", "--topic", topic.upper())
    assert f"hint:  did you mean '{topic}'" in why
    why = commands.fails(1, "configs", "alter", "--broker", "9", "log.cleaner.threads=2")
    assert "error: BROKER_NOT_AVAILABLE: broker 9 is not alive; live brokers: 1, 2, 3" in why


def test_settings_of_a_topic_that_was_deleted_meanwhile_are_an_error(commands: Commands) -> None:
    with Cluster(commands.servers) as client, pytest.raises(ApiError) as caught:
        read_settings_of(ConfigAdmin(client), ConfigResource(ResourceType.TOPIC, "deleted"))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_broker_setting_takes_precedence_over_that_of_all_brokers(commands: Commands) -> None:
    commands.ok("configs", "alter", "--brokers", "log.cleaner.backoff.ms=20000")
    commands.ok("configs", "alter", "--broker", "2", "log.cleaner.backoff.ms=30000")

    def seen(broker: str) -> tuple[str, str]:
        found = commands.settings("--broker", broker, "log.cleaner.backoff.ms")
        setting = found["log.cleaner.backoff.ms"]
        return setting["value"], setting["source"]

    eventually(
        lambda: seen("1") == ("20000", "DYNAMIC_DEFAULT_BROKER_CONFIG"), "broker 1 applies it"
    )
    eventually(lambda: seen("2") == ("30000", "DYNAMIC_BROKER_CONFIG"), "broker 2 applies it")
    lines = commands.ok("configs", "describe", "--broker", "2", "--synonyms")
    assert "    all brokers: log.cleaner.backoff.ms = 20000" in lines
    assert not any(line.endswith("…") for line in lines)  # nothing is cut in a pipe
    commands.ok("configs", "reset", "--broker", "2", "log.cleaner.backoff.ms")
    eventually(lambda: seen("2")[0] == "20000", "broker 2 falls back to the setting of all brokers")
    commands.ok("configs", "reset", "--brokers", "log.cleaner.backoff.ms")
    eventually(
        lambda: seen("1") == ("15000", "DEFAULT_CONFIG"), "broker 1 falls back to the default"
    )


def test_read_only_setting_is_rejected_with_the_next_step(commands: Commands) -> None:
    why = commands.fails(1, "configs", "alter", "--broker", "1", "broker.id=5")
    assert why.startswith("error: INVALID_REQUEST: ")
    assert "server.properties" in why


def test_log_level_is_changed(commands: Commands) -> None:
    logger = "barnabas.maintenance"
    before = commands.settings("--broker-logger", "1", logger)[logger]["value"]
    commands.ok("configs", "alter", "--broker-logger", "1", f"{logger}=ERROR")
    assert commands.settings("--broker-logger", "1", logger)[logger]["value"] == "ERROR"
    commands.ok("configs", "reset", "--broker-logger", "1", logger)
    assert commands.settings("--broker-logger", "1", logger)[logger]["value"] == before


@pytest.mark.parametrize(
    "entity",
    [
        ("--client-id", "app"),
        ("--user", "CN=alice, O=Ä"),
        ("--user", "alice", "--client-id", "app"),
        ("--default-user", "--default-client-id"),
        ("--default-client-id",),
    ],
)
def test_quota_is_altered_shown_and_reset(commands: Commands, entity: tuple[str, ...]) -> None:
    assert "nothing is set" in commands.ok("configs", "describe", *entity)[0]
    commands.ok(
        "configs", "alter", *entity, "producer_byte_rate=1048576", "request_percentage=12.5"
    )
    found = commands.settings(*entity)
    assert {name: each["value"] for name, each in found.items()} == {
        "producer_byte_rate": "1048576",
        "request_percentage": "12.5",
    }
    commands.ok("configs", "reset", *entity, "producer_byte_rate", "request_percentage")
    assert commands.settings(*entity) == {}


def test_connection_quota_of_an_address(commands: Commands) -> None:
    commands.ok("configs", "alter", "--ip", "10.0.0.7", "connection_creation_rate=5")
    assert commands.settings("--ip", "10.0.0.7")["connection_creation_rate"]["value"] == "5"
    assert commands.settings("--default-ip") == {}
    why = commands.fails(2, "configs", "alter", "--ip", "10.0.0.7", "connection_creation_rate=x")
    assert "'x' is not a number" in why


def test_entity_is_required(commands: Commands) -> None:
    why = commands.fails(2, "configs", "describe")
    assert "choose one of --topic NAME, --broker ID" in why
