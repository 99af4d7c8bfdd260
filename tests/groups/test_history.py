"""The checker that the stories of this folder rely on finds what it is to find."""

from __future__ import annotations

from itertools import count
from typing import Any

from tests.groups.history import history_of


def told(*events: tuple[str, str, Any]) -> list[dict[str, Any]]:
    """("a", "owns", [0]), ("a", "read", (0, 5)): offsets 0 to 4, ("a", "committed", 5), all of partition 0."""
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


def test_the_next_reader_begins_where_the_last_had_committed() -> None:
    history = history_of(told(*BEFORE, ("b", "read", (5, 8))))
    assert not history.violations
    assert [each.repeated for each in history.handovers] == [0, 3]
    assert (history.read, history.committed) == ({0: 8}, {0: 5})


def test_a_commit_whose_answer_nobody_heard_may_count() -> None:
    history = history_of(told(*BEFORE, ("b", "read", (8, 9))))
    assert not history.violations
    assert history.handovers[-1].repeated == 0


def test_what_was_committed_and_is_read_again_is_found() -> None:
    assert history_of(told(*BEFORE, ("b", "read", (4, 8)))).violations


def test_what_nobody_has_read_is_missed() -> None:
    assert history_of(told(*BEFORE, ("b", "read", (9, 12)))).violations


def test_a_gap_in_what_one_member_reads_is_found() -> None:
    assert history_of(told(*BEFORE[:3], ("a", "read", (6, 8)))).violations


def test_a_member_that_is_given_a_partition_again_begins_at_what_is_committed() -> None:
    again: tuple[tuple[str, str, Any], ...] = (
        ("a", "owns", []),
        ("a", "owns", [0]),
        ("a", "read", (5, 9)),
    )
    history = history_of(told(*BEFORE[:4], *again))
    assert not history.violations
    assert history.handovers[-1].repeated == 3


def test_who_is_given_a_batch_again_reads_from_what_was_committed_on() -> None:
    begun = (
        ("a", "owns", [0]),
        ("a", "read", (0, 5)),
        ("a", "committed", 5),
        ("a", "read", (5, 8)),
    )
    assert history_of(told(*begun, ("a", "read", (5, 8)))).violations, "it did not say so"
    assert not history_of(told(*begun, ("a", "again", 0), ("a", "read", (5, 8)))).violations
    assert history_of(told(*begun, ("a", "again", 0), ("a", "read", (4, 8)))).violations
    assert history_of(told(*begun, ("a", "again", 0), ("a", "read", (9, 10)))).violations
