from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.cli.records import consume
from barnabas.cli.terminal.formats import compile_filter
from barnabas.client.consumer import ConsumedRecord


class Scripted:
    """A consumer whose polls bring what the test wants, and which is at its end then."""

    def __init__(self, *polls: Sequence[int]) -> None:
        self.polls = [
            [ConsumedRecord("orders", 0, offset, 0, None, b"%d" % offset) for offset in poll]
            for poll in polls
        ]

    @property
    def at_end(self) -> bool:
        return not self.polls

    def poll(self, timeout_s: float) -> list[ConsumedRecord]:
        return self.polls.pop(0)


@pytest.fixture(autouse=True)
def reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "raise_if_reader_gone", lambda: None)


def test_what_was_written_is_told_after_it_was_written() -> None:
    told: list[list[int] | None] = []
    batches = consume.filtered_batches(
        Scripted([0, 1], [2]), True, None, [], lambda done: told.append(offsets(done))
    )
    assert offsets(next(batches)) == [0, 1]
    assert told == []
    assert offsets(next(batches)) == [2]
    assert told == [None]
    assert list(batches) == []
    assert told == [None, None]


def test_with_enough_in_the_middle_of_a_poll_only_that_much_is_done() -> None:
    told: list[list[int] | None] = []
    wanted = [compile_filter("value~[13]")]
    batches = consume.filtered_batches(
        Scripted([0, 1, 2, 3, 4]), False, 1, wanted, lambda done: told.append(offsets(done))
    )
    assert [offsets(batch) for batch in batches] == [[1]]
    assert told == [[0, 1]]


def offsets(records: Sequence[ConsumedRecord] | None) -> list[int] | None:
    return None if records is None else [record.offset for record in records]
