from __future__ import annotations

from barnabas.cli.terminal.failure import explain
from barnabas.cli.topics.lookup import explain_rejected_name
from barnabas.errors import ApiError, ErrorCode


def hint_for(name: str, code: ErrorCode = ErrorCode.INVALID_TOPIC_EXCEPTION) -> str:
    _, hint = explain(
        explain_rejected_name(ApiError(code, "the broker's message"), name)
    ).splitlines()
    return hint


def test_a_well_formed_name_that_is_rejected_collides_with_another() -> None:
    assert "choose a name with another difference" in hint_for("a_b")
    assert "characters" not in hint_for("a_b")


def test_a_malformed_name_is_answered_with_the_allowed_characters() -> None:
    assert "characters" in hint_for("a/b")


def test_other_errors_of_a_creation_keep_their_hint() -> None:
    assert "--if-not-exists" in hint_for("a_b", ErrorCode.TOPIC_ALREADY_EXISTS)
