"""Decisions of the mover: what a future log needs next to become a copy of the log."""

from __future__ import annotations

import pytest

from barnabas.replication.log_dir_moves import (
    CaughtUp,
    Copy,
    MoveStep,
    StartOver,
    Truncate,
    next_step,
)
from barnabas.storage.log import Log
from tests.unit.storage.builders import append, forgetful_disk, new_log

Epochs = dict[int, int]
"""Leader epoch → number of records in it, in order."""


def log_with(epochs: Epochs, *, start: int = 0, name: str = "orders-0") -> Log:
    """A log from offset `start` on, with one record per batch."""
    log = new_log(forgetful_disk(), directory=f"/data/{name}")
    log.truncate_fully_and_start_at(start)
    for epoch, count in epochs.items():
        for _ in range(count):
            append(log, b"x", epoch=epoch)
    return log


@pytest.mark.parametrize(
    ("current", "future", "expected"),
    [
        pytest.param({}, {}, CaughtUp(), id="both empty"),
        pytest.param({0: 5}, {}, Copy(0), id="nothing copied"),
        pytest.param({0: 5}, {0: 3}, Copy(3), id="partly copied"),
        pytest.param({0: 5, 2: 5}, {0: 5}, Copy(5), id="next epoch"),
        pytest.param({0: 5, 2: 5}, {0: 5, 2: 5}, CaughtUp(), id="all copied"),
        pytest.param({0: 3}, {0: 5}, Truncate(3), id="log truncated"),
        pytest.param({0: 3}, {0: 3, 1: 2}, Truncate(3), id="last epoch truncated"),
        pytest.param({0: 3, 2: 9}, {0: 5}, Truncate(3), id="log truncated and written again"),
        pytest.param({0: 3, 2: 9}, {0: 3, 1: 4}, Truncate(3), id="other leader"),
        pytest.param({0: 3, 4: 9}, {0: 3, 1: 2, 2: 4}, Truncate(3), id="two other leaders"),
        pytest.param({}, {0: 5}, Truncate(0), id="log emptied"),
    ],
)
def test_next_step_follows_leader_epochs(
    current: Epochs, future: Epochs, expected: MoveStep
) -> None:
    assert next_step(log_with(current), log_with(future)) == expected


def test_copy_starts_over_when_log_starts_later() -> None:
    assert next_step(log_with({3: 5}, start=10), log_with({0: 5})) == StartOver(10)
    assert next_step(log_with({3: 5}, start=5), log_with({0: 5})) == Copy(5)


def test_copy_starts_over_when_it_lacks_first_records() -> None:
    assert next_step(log_with({0: 9}, start=2), log_with({0: 5}, start=4)) == StartOver(2)


def test_epoch_without_records_is_not_copied() -> None:
    current, future = log_with({0: 5}), log_with({0: 5})
    current.begin_epoch(7)
    assert next_step(current, future) == CaughtUp()
