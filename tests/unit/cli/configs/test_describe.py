from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.configs.describe import select_settings, settings_document, settings_text
from barnabas.cli.configs.reading import ShownSetting
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.client.config_admin import ConfigResource, QuotaEntity
from barnabas.errors import ErrorCode
from barnabas.wire.messages.describe_configs import (
    ConfigSource,
    DescribeConfigsSynonym,
    ResourceType,
)

TOPIC = ConfigResource(ResourceType.TOPIC, "orders")


def shown(name: str, value: str | None, **fields: Any) -> ShownSetting:
    known: dict[str, Any] = {
        "source": "DYNAMIC_TOPIC_CONFIG",
        "default": None,
        "documentation": None,
        "is_set": True,
        "is_override": True,
    }
    return ShownSetting(name=name, value=value, **{**known, **fields})


def text(*settings: ShownSetting, known: int = 35, synonyms: bool = False) -> list[str]:
    document = settings_document(TOPIC, settings, known, synonyms)
    return settings_text(document, TOPIC).splitlines()


def test_table_has_value_source_default_and_documentation() -> None:
    assert text(
        shown(
            "retention.ms", "3600000", default="604800000", documentation="Age of deleted records"
        ),
        shown("cleanup.policy", "", default="delete"),
    ) == [
        "topic orders: 2 settings of 35",
        "SETTING         VALUE    SOURCE  DEFAULT",
        "retention.ms    3600000  topic   604800000",
        "  Age of deleted records",
        'cleanup.policy  ""       topic   delete',
    ]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)


@pytest.mark.usefixtures("terminal")
def test_table_fits_the_terminal() -> None:
    long = shown(
        "x" * 60, "y" * 60, default="z" * 60, documentation="w" * 200, source="DEFAULT_CONFIG"
    )
    assert all(len(line) <= 100 for line in text(long))


def test_table_in_a_pipe_is_not_cut() -> None:
    assert any("w" * 200 in line for line in text(shown("x", "y", documentation="w" * 200)))


@pytest.mark.usefixtures("terminal")
def test_names_are_not_cut() -> None:
    name = "alter.log.dirs.replication.quota.window.size.seconds"
    lines = text(shown(name, "y" * 60, default="z" * 60))
    assert lines[2].startswith(f"{name}  yyyyyyyy")
    assert len(lines[2]) <= 100


def test_sensitive_values_are_hidden() -> None:
    synonym = DescribeConfigsSynonym("ssl.key.password", None, ConfigSource.STATIC_BROKER_CONFIG)
    lines = text(
        shown("ssl.key.password", None, is_sensitive=True, synonyms=(synonym,)), synonyms=True
    )
    assert lines[2].split() == ["ssl.key.password", "(hidden)", "topic", "-"]
    assert lines[3] == "    file: ssl.key.password = (hidden)"


def test_synonyms_follow_their_setting() -> None:
    synonyms = (
        DescribeConfigsSynonym("retention.ms", "5", ConfigSource.TOPIC_CONFIG),
        DescribeConfigsSynonym("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    )
    lines = text(shown("retention.ms", "5", synonyms=synonyms), synonyms=True)
    assert lines[-2:] == [
        "    topic: retention.ms = 5",
        "    default: log.retention.hours = 168",
    ]
    document = settings_document(TOPIC, [shown("retention.ms", "5", synonyms=synonyms)], 1, True)
    assert document["settings"][0]["synonyms"][0]["source"] == "DYNAMIC_TOPIC_CONFIG"


def test_nothing_set_points_to_all() -> None:
    assert text() == ["topic orders: nothing is set; --all shows 35 values in effect"]
    assert text(known=0) == ["topic orders: nothing is set"]


def test_hostile_names_cannot_forge_lines() -> None:
    entity = QuotaEntity(client_id="x\nforged")
    document = settings_document(entity, [shown("producer_byte_rate", "1")], 4, False)
    assert not any(
        line.startswith("forged") for line in settings_text(document, entity).split("\n")
    )


def test_unset_quota_has_no_source() -> None:
    quota = shown("producer_byte_rate", None, source="QUOTA", is_set=False, is_override=False)
    document = settings_document(QuotaEntity(user="a"), [quota], 4, False)
    assert document["settings"][0]["source"] is None
    row = settings_text(document, QuotaEntity(user="a")).splitlines()[2]
    assert row.split() == ["producer_byte_rate", "-", "not", "set", "-"]


def test_selected_settings_keep_the_order_of_the_command_line() -> None:
    settings = [shown("a", "1"), shown("b", "2")]
    assert [each.name for each in select_settings(TOPIC, settings, ["b", "a", "b"])] == ["b", "a"]


def test_name_that_the_broker_lacks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.cli.configs.describe.servers_hint", lambda: "")
    with pytest.raises(ErrorWithHint) as caught:
        select_settings(TOPIC, [shown("a", "1")], ["unheard.of"])
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert "no topic setting 'unheard.of'" in caught.value.message
    assert caught.value.hint == "`barnabas configs describe --topic orders --all` lists them"
