"""Documents and texts of the explain commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import to_builtins

from barnabas.cli.history.narrator import Narrator
from barnabas.cli.terminal.colour import Style, paint
from barnabas.cli.terminal.output import plural, wrap, wrap_around_commands
from barnabas.explain.facts import ClusterFacts
from barnabas.explain.finding import Finding, Severity
from barnabas.explain.text import finding_document
from barnabas.history.event import AnyEvent, PartitionEvent, ReplicaEvent, TopicEvent
from barnabas.history.report import json_types
from barnabas.model import TopicPartition

CHANGES_MAX = 8
"""Number of last changes that are shown."""


def explanation_document(
    subject: str,
    findings: Sequence[Finding],
    *,
    facts: ClusterFacts,
    servers: str,
    healthy: str,
    changes: Sequence[AnyEvent] = (),
    topic: str | None = None,
) -> dict[str, Any]:
    """Return the document of an explanation. `healthy` is its text without findings."""
    return {
        "subject": subject,
        "healthy": not any(each.severity is not Severity.NOTE for each in findings),
        "summary": severity_counts(findings) or healthy,
        "findings": [
            finding_document(each, facts.now_ms, servers, facts.start_commands) for each in findings
        ],
        "topic": topic,
        "last_changes": [{**to_builtins(each), "at": json_types(each.at)} for each in changes],
    }


def severity_counts(findings: Sequence[Finding]) -> str:
    """Return `1 error, 2 warnings`, or an empty text."""
    counts = [(sum(each.severity is level for each in findings), level) for level in Severity]
    return ", ".join(plural(count, level.name.lower()) for count, level in counts if count)


def explanation_text(document: dict[str, Any]) -> str:
    summary = paint(document["summary"], worst_style(document["findings"]))
    lines = [f"{document['subject']}: {summary}"]
    for finding in document["findings"]:
        lines += finding_lines(finding, document["subject"])
    if document["last_changes"]:
        lines += ["", "last changes:", *change_lines(document["last_changes"], document["topic"])]
    return "\n".join(lines)


SEVERITY_STYLES = {"error": Style.BAD, "warning": Style.WARNING, "note": Style.FAINT}


def worst_style(findings: Sequence[dict[str, Any]]) -> Style:
    severities = {finding["severity"] for finding in findings}
    if "error" in severities:
        return Style.BAD
    return Style.WARNING if "warning" in severities else Style.GOOD


def finding_lines(finding: dict[str, Any], subject: str = "") -> list[str]:
    about = finding["subject"]
    is_subject = subject in (about, f"partition {about}")
    head = "" if not about or is_subject else f"{about}: "
    severity = paint(finding["severity"], SEVERITY_STYLES.get(finding["severity"]))
    lines = [wrap(f"  {severity}: {head}{finding['why']}", indent=4)]
    if finding["since"]:
        lines.append(f"    {finding['since']}")
    return [*lines, wrap_around_commands(f"    next: {finding['next']}", indent=6)]


# ---- last changes ---------------------------------------------------------------------------------------------


def changes_of(
    events: Iterable[AnyEvent], topic: str, number: int | None = None
) -> Sequence[AnyEvent]:
    """Return the last changes of a topic or of one partition, without requests to brokers."""
    found = [
        event
        for event in events
        if isinstance(event, PartitionEvent | ReplicaEvent | TopicEvent)
        and event.topic == topic
        and (number is None or isinstance(event, TopicEvent) or event.partition == number)
    ]
    return found[-CHANGES_MAX:]


def change_lines(changes: Sequence[dict[str, Any]], topic: str | None) -> list[str]:
    narrator = Narrator(topic or "")
    return [f"  {line}" for line in narrator.lines(list(changes))]


def partition_subject(partition: TopicPartition) -> str:
    return f"partition {partition}"
