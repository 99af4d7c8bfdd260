"""Truncation of followers, and assignment of partitions to fetchers."""

from __future__ import annotations

import pytest

from barnabas.replication.follower import (
    prepare_log,
    select_fetcher,
    truncation_offset,
)
from barnabas.storage.epochs import LeaderEpochs
from barnabas.wire.java_hash import java_string_hash
from tests.unit.storage.builders import NOW_MS, append, forgetful_disk, new_log


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("orders", -1008770331 & 0xFFFF_FFFF), ("polygenelubricants", 1 << 31)],
)
def test_hash_matches_java(text: str, expected: int) -> None:
    assert java_string_hash(text) & 0xFFFF_FFFF == expected


def test_partition_maps_to_one_fetcher() -> None:
    assert [select_fetcher("a", index, 3) for index in range(4)] == [
        (31 * 97 + index) % 3 for index in range(4)
    ]
    assert {select_fetcher("orders", index, 1) for index in range(10)} == {0}
    assert {select_fetcher("orders", index, 4) for index in range(10)} == {0, 1, 2, 3}


def test_minimum_integer_counts_as_zero() -> None:
    # 31 · hash + partition is -2³¹ here.
    offset = ((1 << 31) - 31 * java_string_hash("a")) & 0xFFFF_FFFF
    assert select_fetcher("a", offset, 7) == 0


@pytest.mark.parametrize(
    ("leader", "offset"),
    [
        ((3, 25), 25),
        ((3, 40), 30),
        ((2, 25), 20),
        ((1, 10), 10),
        ((1, 25), 20),
        ((0, 5), 0),
        ((7, 12), 12),
    ],
    ids=[
        "same epoch, the leader ends earlier",
        "same epoch, the leader ends later",
        "unknown epoch: our last one before it",
        "earlier epoch ends within ours",
        "earlier epoch, ours ends first",
        "before all known epochs",
        "after all known epochs",
    ],
)
def test_truncation_offset_by_leader_epoch(leader: tuple[int, int], offset: int) -> None:
    epochs = LeaderEpochs([(1, 0), (3, 20)])
    assert truncation_offset(epochs, 30, leader_epoch=leader[0], leader_end=leader[1]) == offset


def test_log_without_epochs_is_truncated_to_high_watermark() -> None:
    log = new_log(forgetful_disk())
    append(log, b"one", epoch=4)
    append(log, b"two", epoch=4)
    log.high_watermark = 1
    prepare_log(log, NOW_MS)
    assert log.log_end_offset == 2, "the leader epochs decide where to truncate"
    log.epochs.clear()
    prepare_log(log, NOW_MS)
    assert log.log_end_offset == 1
