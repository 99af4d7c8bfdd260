"""The checker of the group tests detects violations."""

from __future__ import annotations

from itertools import count
from typing import Any

from tests.groups.history import history_of


def make_lines(*events: tuple[str, str, Any]) -> list[dict[str, Any]]:
    """("a", "owns", [0]), ("a", "read", (0, 5)): offsets 0 to 4, ("a", "committed", 5); all for partition 0."""
    clock = count()
    lines = []
    for member, event, what in events:
        line = {"at": next(clock), "member": member, "event": event}
        if event == "owns":
            line["partitions"] = what
        elif event == "read":
            line |= {"partition": 0, "first": what[0], "count": what[1] - what[0]}
        elif event == "again":
            line["partition"] = what
        else:
            line["offsets"] = {"0": what}
        lines.append(line)
    return lines


BEFORE: tuple[tuple[str, str, Any], ...] = (
    ("a", "owns", [0]),
    ("a", "read", (0, 5)),
    ("a", "committed", 5),
    ("a", "read", (5, 8)),
    ("b", "owns", [0]),
)


def test_next_reader_starts_at_committed_offset() -> None:
    history = history_of(make_lines(*BEFORE, ("b", "read", (5, 8))))
    assert not history.violations
    assert [each.repeated for each in history.handovers] == [0, 3]
    assert (history.read, history.committed) == ({0: 8}, {0: 5})


def test_unanswered_commit_may_count() -> None:
    history = history_of(make_lines(*BEFORE, ("b", "read", (8, 9))))
    assert not history.violations
    assert history.handovers[-1].repeated == 0


def test_repeated_committed_record_is_detected() -> None:
    assert history_of(make_lines(*BEFORE, ("b", "read", (4, 8)))).violations


def test_skipped_record_is_detected() -> None:
    assert history_of(make_lines(*BEFORE, ("b", "read", (9, 12)))).violations


def test_gap_within_member_is_detected() -> None:
    assert history_of(make_lines(*BEFORE[:3], ("a", "read", (6, 8)))).violations


def test_reassigned_partition_starts_at_committed_offset() -> None:
    again: tuple[tuple[str, str, Any], ...] = (
        ("a", "owns", []),
        ("a", "owns", [0]),
        ("a", "read", (5, 9)),
    )
    history = history_of(make_lines(*BEFORE[:4], *again))
    assert not history.violations
    assert history.handovers[-1].repeated == 3


def test_redelivered_batch_starts_at_committed_offset() -> None:
    begun = (
        ("a", "owns", [0]),
        ("a", "read", (0, 5)),
        ("a", "committed", 5),
        ("a", "read", (5, 8)),
    )
    assert history_of(make_lines(*begun, ("a", "read", (5, 8)))).violations, "no `again` event"
    assert not history_of(make_lines(*begun, ("a", "again", 0), ("a", "read", (5, 8)))).violations
    assert history_of(make_lines(*begun, ("a", "again", 0), ("a", "read", (4, 8)))).violations
    assert history_of(make_lines(*begun, ("a", "again", 0), ("a", "read", (9, 10)))).violations


def test_expelled_member_may_handle_records_that_it_fetched_before() -> None:
    taken = (("b", "read", (5, 8)), ("b", "committed", 8))
    moved = (*BEFORE, *taken, ("a", "again", 0), ("a", "read", (5, 8)))
    history = history_of(make_lines(*moved))
    assert not history.violations
    assert [each.after for each in history.handovers] == ["a", "b"]
    assert history.read == {0: 8}
    again: tuple[tuple[str, str, Any], ...] = (("a", "owns", []), ("a", "owns", [0]))
    found = history_of(make_lines(*moved, *again, ("a", "read", (5, 8))))
    assert found.violations, "it has the partition again"


def test_expelled_member_must_not_leave_a_gap() -> None:
    assert history_of(make_lines(*BEFORE, ("a", "read", (9, 12)))).violations
    assert history_of(make_lines(*BEFORE, ("a", "again", 0), ("a", "read", (9, 12)))).violations
