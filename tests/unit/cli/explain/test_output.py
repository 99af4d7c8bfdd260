"""Text of explanations on the terminal."""

from __future__ import annotations

from typing import Any

from barnabas.cli.explain.output import explanation_text
from barnabas.cli.terminal.output import wrap_around_commands
from barnabas.explain.finding import Cause, Finding, Severity
from barnabas.explain.text import finding_document
from tests.unit.explain.facts_of import FIRST, NOW_MS

DOWN = Finding(
    cause=Cause.FOLLOWER_DOWN,
    severity=Severity.WARNING,
    topic="orders",
    partitions=(FIRST,),
    brokers=(2,),
    since_ms=NOW_MS - 5000,
)


def document(subject: str) -> dict[str, Any]:
    return {
        "subject": subject,
        "summary": "1 warning",
        "findings": [finding_document(DOWN, NOW_MS)],
        "last_changes": [],
        "topic": "orders",
    }


def test_explanation_has_cause_time_and_next_step() -> None:
    assert explanation_text(document("topic orders")).splitlines() == [
        "topic orders: 1 warning",
        "  warning: orders-0: the replica on broker 2 is missing: the broker is down",
        "    since 2026-05-01 07:59:55 UTC (5.0 s)",
        "    next: start broker 2 again; `barnabas brokers explain 2` shows what waits for it",
    ]


def test_subject_is_not_repeated() -> None:
    text = explanation_text(document("partition orders-0"))
    assert "  warning: the replica on broker 2 is missing" in text


def test_commands_are_not_wrapped() -> None:
    command = f"`barnabas topics describe orders -b {'localhost:9092,' * 8}`"
    lines = wrap_around_commands(f"    next: see {command} and then wait", indent=6).splitlines()
    assert lines == ["    next: see", f"      {command}", "      and then wait"]
