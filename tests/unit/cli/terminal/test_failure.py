from __future__ import annotations

from barnabas.cli.terminal.failure import CommandError, ErrorWithHint, explain, similar_names
from barnabas.client.cluster import Unreachable
from barnabas.errors import ApiError, ErrorCode, RemoteWireError


def test_error_shows_code_message_and_hint() -> None:
    text = explain(ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a' already exists."))
    assert text.splitlines()[0] == "error: TOPIC_ALREADY_EXISTS: Topic 'a' already exists."
    assert "--if-not-exists" in text.splitlines()[1]


def test_unreachable_cluster_lists_attempts_and_hint() -> None:
    text = explain(Unreachable([("localhost:9092", "Connection refused"), ("b:1", "timed out")]))
    assert "localhost:9092: Connection refused" in text
    assert "b:1: timed out" in text
    assert "barnabas up" in text


def test_specific_hint_replaces_general_hint() -> None:
    error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    text = explain(ErrorWithHint(error, "there is no topic 'ordres'", "did you mean 'orders'?"))
    assert text == (
        "error: UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'ordres'\nhint:  did you mean 'orders'?"
    )


def test_command_error_has_hint_and_no_code() -> None:
    text = explain(CommandError("there is nothing to report", "try again later"))
    assert text == "error: there is nothing to report\nhint:  try again later"


def test_remote_message_is_escaped() -> None:
    assert "\x1b" not in explain(ApiError(ErrorCode.INVALID_CONFIG, "\x1b[2J"))
    assert explain(RemoteWireError("odd")) == "error: odd"


def test_similar_names_ignore_case() -> None:
    assert similar_names("ordres", ["orders", "payments", "Orders-eu"])[0] == "orders"
    assert similar_names("ORDERS", ["orders"]) == ["orders"]
    assert similar_names("zzz", ["orders"]) == []


def test_replication_factor_hint_names_no_option() -> None:
    _, hint = explain(ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "5 of 1")).splitlines()
    assert "start more brokers" in hint
    assert "--" not in hint


def test_missing_coordinator_hint_names_the_topic_and_the_setting() -> None:
    _, hint = explain(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no leader")).splitlines()
    assert "barnabas topics describe __consumer_offsets" in hint
    assert "offsets.topic.replication.factor" in hint
