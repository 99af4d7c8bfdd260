from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.cli.records import consume
from barnabas.cli.terminal.formats import compile_filter
from barnabas.client.consumer import ConsumedRecord


class ScriptedConsumer:
    """Consumer whose polls return the offsets in `polls`; it is at the end after the last poll."""

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
def _reader_present(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "raise_if_reader_gone", lambda: None)


def test_batch_is_committed_after_it_was_written() -> None:
    committed: list[list[int] | None] = []
    batches = consume.filtered_batches(
        ScriptedConsumer([0, 1], [2]), True, None, [], lambda done: committed.append(offsets(done))
    )
    assert offsets(next(batches)) == [0, 1]
    assert committed == []
    assert offsets(next(batches)) == [2]
    assert committed == [None]
    assert list(batches) == []
    assert committed == [None, None]


def test_limit_within_a_poll_commits_only_consumed_records() -> None:
    committed: list[list[int] | None] = []
    wanted = [compile_filter("value~[13]")]
    batches = consume.filtered_batches(
        ScriptedConsumer([0, 1, 2, 3, 4]),
        False,
        1,
        wanted,
        lambda done: committed.append(offsets(done)),
    )
    assert [offsets(batch) for batch in batches] == [[1]]
    assert committed == [[0, 1]]


def offsets(records: Sequence[ConsumedRecord] | None) -> list[int] | None:
    return None if records is None else [record.offset for record in records]
