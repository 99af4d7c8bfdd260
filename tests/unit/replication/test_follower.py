"""Where a follower cuts its log, and which fetcher a partition goes to."""

from __future__ import annotations

import pytest

from barnabas.errors import ErrorCode
from barnabas.replication.follower import (
    Reaction,
    prepare_log,
    reaction_to,
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
def test_strings_have_the_hash_they_have_in_java(text: str, expected: int) -> None:
    assert java_string_hash(text) & 0xFFFF_FFFF == expected


def test_a_partition_always_goes_to_the_same_fetcher() -> None:
    assert [select_fetcher("a", index, 3) for index in range(4)] == [
        (31 * 97 + index) % 3 for index in range(4)
    ]
    assert {select_fetcher("orders", index, 1) for index in range(10)} == {0}
    assert {select_fetcher("orders", index, 4) for index in range(10)} == {0, 1, 2, 3}


def test_the_smallest_integer_has_no_absolute_value_and_counts_as_zero() -> None:
    # 31 · hash + partition is -2³¹ for this one.
    offset = ((1 << 31) - 31 * java_string_hash("a")) & 0xFFFF_FFFF
    assert select_fetcher("a", offset, 7) == 0


@pytest.mark.parametrize(
    ("told", "cut"),
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
        "same epoch, the leader goes on",
        "an epoch we never saw: our last one before it",
        "an earlier epoch ends within ours",
        "an earlier epoch, ours ends first",
        "before everything we know",
        "beyond everything we know",
    ],
)
def test_where_the_histories_part(told: tuple[int, int], cut: int) -> None:
    epochs = LeaderEpochs([(1, 0), (3, 20)])
    assert truncation_offset(epochs, 30, leader_epoch=told[0], leader_end=told[1]) == cut


def test_without_a_history_only_what_is_committed_is_kept() -> None:
    log = new_log(forgetful_disk())
    append(log, b"one", epoch=4)
    append(log, b"two", epoch=4)
    log.high_watermark = 1
    prepare_log(log, NOW_MS)
    assert log.log_end_offset == 2, "its history will tell where to cut"
    log.epochs.clear()
    prepare_log(log, NOW_MS)
    assert log.log_end_offset == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, Reaction.RESET_OFFSET),
        (ErrorCode.FENCED_LEADER_EPOCH, Reaction.STOP),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, Reaction.BACK_OFF),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Reaction.BACK_OFF),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Reaction.BACK_OFF),
    ],
)
def test_what_follows_from_an_error(code: ErrorCode, expected: Reaction) -> None:
    assert reaction_to(code) is expected
