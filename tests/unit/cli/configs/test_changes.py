from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.configs.alter import parse_changes
from barnabas.cli.configs.changes import (
    changes_document,
    changes_text,
    check_changes,
    explain_rejected_change,
    predict_value,
)
from barnabas.cli.configs.reading import ShownSetting
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.client.config_admin import ConfigChange, ConfigResource, QuotaEntity
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation

TOPIC = ConfigResource(ResourceType.TOPIC, "orders")
BROKER = ConfigResource(ResourceType.BROKER, "1")
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def setting(name: str, value: str | None, *, is_override: bool, **fields: Any) -> ShownSetting:
    known: dict[str, Any] = {"source": "DYNAMIC_TOPIC_CONFIG", "default": None}
    return ShownSetting(
        name=name,
        value=value,
        documentation=None,
        is_set=is_override,
        is_override=is_override,
        **{**known, **fields},
    )


def test_changes_are_parsed_with_their_operations() -> None:
    assert parse_changes(["retention.ms = 5", "a=b=c"], ["cleanup.policy=compact"], ["x=y"]) == [
        ConfigChange("retention.ms", "5", SET),
        ConfigChange("a", "b=c", SET),
        ConfigChange("cleanup.policy", "compact", APPEND),
        ConfigChange("x", "y", SUBTRACT),
    ]


@pytest.mark.parametrize(
    ("assignments", "append", "message"),
    [
        ([], [], "alter: name a setting"),
        (["a"], [], "KEY=VALUE: 'a' is not KEY=VALUE"),
        (["=1"], [], "KEY=VALUE: '=1' is not KEY=VALUE"),
        ([], ["a"], "--append: 'a' is not KEY=VALUE"),
        (["a=1"], ["a=2"], "a: is given twice"),
    ],
)
def test_wrong_changes_are_rejected(
    assignments: list[str], append: list[str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_changes(assignments, append, [])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (ConfigChange("flush.ms", "5"), setting("flush.ms", "9", is_override=True), "5"),
        (
            ConfigChange("flush.ms", None, DELETE),
            setting("flush.ms", "9", is_override=True, default="7"),
            "7",
        ),
        (
            ConfigChange("flush.ms", None, DELETE),
            setting("flush.ms", "7", is_override=False, default="7"),
            "7",
        ),
        (
            ConfigChange("cleanup.policy", "compact,delete", APPEND),
            setting("cleanup.policy", "delete", is_override=True),
            "delete,compact",
        ),
        (
            ConfigChange("cleanup.policy", "delete", SUBTRACT),
            setting("cleanup.policy", "compact,delete", is_override=True),
            "compact",
        ),
        # Kafka appends to the built-in default, even if the broker's file has another one.
        (
            ConfigChange("cleanup.policy", "compact", APPEND),
            setting("cleanup.policy", "compact", is_override=False),
            "delete,compact",
        ),
        (ConfigChange("unknown", None, DELETE), None, None),
    ],
)
def test_value_after_change_is_predicted(
    change: ConfigChange, before: ShownSetting | None, after: str | None
) -> None:
    assert predict_value(TOPIC, change, before) == after


def test_changes_are_shown_before_and_after() -> None:
    changes = [
        ConfigChange("retention.ms", "5"),
        ConfigChange("flush.ms", None, DELETE),
        ConfigChange("segment.ms", "7"),
    ]
    before = {
        "retention.ms": setting("retention.ms", "604800000", is_override=False),
        "flush.ms": setting("flush.ms", "9", is_override=True, default="7"),
        "segment.ms": setting("segment.ms", "7", is_override=True),
    }
    document = changes_document(TOPIC, changes, before, dry_run=False)
    assert (document["altered"], document["dry_run"]) == (True, False)
    assert changes_text(document, TOPIC).splitlines() == [
        "altered topic orders: 3 settings",
        "SETTING       BEFORE     AFTER",
        "retention.ms  604800000  5",
        "flush.ms      9          7      the default",
        "segment.ms    7          7      unchanged",
    ]
    dry = changes_document(TOPIC, changes, before, dry_run=True)
    assert changes_text(dry, TOPIC).startswith("would alter topic orders: ")


def test_passwords_are_not_shown() -> None:
    before = {"x": setting("x", None, is_override=True, is_sensitive=True)}
    document = changes_document(BROKER, [ConfigChange("x", "secret")], before, dry_run=False)
    assert "secret" not in str(document)
    assert "secret" not in changes_text(document, BROKER)


def test_quota_must_be_a_number() -> None:
    entity = QuotaEntity(client_id="app")
    check_changes(entity, [ConfigChange("producer_byte_rate", "1e6")])
    with pytest.raises(ConfigError, match="producer_byte_rate: 'fast' is not a number"):
        check_changes(entity, [ConfigChange("producer_byte_rate", "fast")])


def test_typos_and_invalid_text_are_rejected_before_a_request() -> None:
    with pytest.raises(ConfigError, match=r"did you mean retention\.ms"):
        check_changes(TOPIC, [ConfigChange("retentoin.ms", "1")])
    with pytest.raises(ConfigError, match="not valid UTF-8"):
        check_changes(TOPIC, [ConfigChange("retention.ms", "\udcff")])


def test_rejected_read_only_setting_points_to_the_file() -> None:
    error = ApiError(ErrorCode.INVALID_REQUEST, "no")
    found = explain_rejected_change(error, BROKER, ["broker.id"], ["broker.id"])
    assert isinstance(found, ErrorWithHint)
    assert found.hint.startswith("broker.id is read from server.properties")
    assert found.message == "no"


def test_rejected_unknown_name_suggests_similar_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.cli.configs.changes.servers_hint", lambda: "")
    error = ApiError(ErrorCode.INVALID_CONFIG, "Unknown topic config name: retain.ms")
    found = explain_rejected_change(error, TOPIC, ["retain.ms"], [])
    assert isinstance(found, ErrorWithHint)
    assert "retention.ms" in found.hint
    assert "`barnabas configs describe --topic orders --all`" in found.hint
    other = ApiError(ErrorCode.POLICY_VIOLATION, "no")
    assert explain_rejected_change(other, TOPIC, ["retention.ms"], ["retention.ms"]) is other


def test_rejected_level_of_a_known_logger_has_no_hint() -> None:
    loggers = ConfigResource(ResourceType.BROKER_LOGGER, "1")
    error = ApiError(ErrorCode.INVALID_CONFIG, "root: 'LOUD' is not allowed")
    assert explain_rejected_change(error, loggers, ["root"], ["root"]) is error
