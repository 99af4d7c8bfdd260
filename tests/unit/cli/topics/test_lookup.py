from __future__ import annotations

from barnabas.cli.terminal.failure import explain
from barnabas.cli.topics.lookup import explain_rejected_name
from barnabas.errors import ApiError, ErrorCode


def hint_for(name: str, code: ErrorCode = ErrorCode.INVALID_TOPIC_EXCEPTION) -> str:
    _, hint = explain(
        explain_rejected_name(ApiError(code, "the broker's message"), name)
    ).splitlines()
    return hint


def test_rejected_valid_name_hints_at_collision() -> None:
    assert "choose another name" in hint_for("a_b")
    assert "characters" not in hint_for("a_b")


def test_rejected_invalid_name_hints_at_allowed_characters() -> None:
    assert "characters" in hint_for("a/b")


def test_other_creation_errors_keep_their_hint() -> None:
    assert "--if-not-exists" in hint_for("a_b", ErrorCode.TOPIC_ALREADY_EXISTS)
