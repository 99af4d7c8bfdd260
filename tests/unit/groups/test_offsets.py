"""Committed offsets of a group: visibility, order and expiration."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import OffsetCommitValue
from barnabas.model import TopicPartition

ONE = TopicPartition("orders", 0)
TWO = TopicPartition("orders", 1)
OTHER = TopicPartition("payments", 0)
DAY_MS = 86_400_000


def at(offset: int, *, commit_ms: int = 0, expire_ms: int = -1) -> OffsetCommitValue:
    return OffsetCommitValue(offset, -1, "", commit_ms, expire_ms)


def committed(values: Mapping[TopicPartition, OffsetCommitValue]) -> GroupOffsets:
    offsets = GroupOffsets()
    offsets.begin(values)
    offsets.complete(values, 0)
    return offsets


def test_commit_is_visible_once_it_is_in_the_log() -> None:
    offsets = GroupOffsets()
    commits = {ONE: at(5)}
    offsets.begin(commits)
    assert not offsets.committed
    offsets.complete(commits, 10)
    assert offsets.committed == commits
    assert not offsets.pending


def test_failed_commit_keeps_previous_offset() -> None:
    offsets = committed({ONE: at(5)})
    commits = {ONE: at(6)}
    offsets.begin(commits)
    offsets.fail(commits)
    assert offsets.committed == {ONE: at(5)}
    assert not offsets.pending


def test_later_commit_in_the_log_wins() -> None:
    offsets = GroupOffsets()
    first, second = {ONE: at(5)}, {ONE: at(6)}
    offsets.begin(first)
    offsets.begin(second)
    offsets.complete(second, 11)
    offsets.begin(third := {ONE: at(7)})
    offsets.complete(first, 10)
    assert offsets.committed[ONE].offset == 6
    offsets.complete(third, 12)
    assert offsets.committed[ONE].offset == 7


def test_offset_removed_during_commit_stays_removed() -> None:
    offsets = GroupOffsets()
    commits = {ONE: at(5)}
    offsets.begin(commits)
    assert offsets.partitions_with_offsets([ONE, TWO]) == [ONE]
    offsets.remove([ONE], 11)
    offsets.begin(later := {ONE: at(1)})
    offsets.complete(commits, 10)
    assert not offsets.committed
    offsets.complete(later, 12)
    assert offsets.committed == later


def test_offsets_of_empty_group_expire_together() -> None:
    offsets = committed({ONE: at(5, commit_ms=0), TWO: at(5, commit_ms=DAY_MS)})
    assert offsets.expired(3 * DAY_MS - 1, DAY_MS, since_ms=2 * DAY_MS) == []
    assert offsets.expired(3 * DAY_MS, DAY_MS, since_ms=2 * DAY_MS) == [ONE, TWO]


def test_offsets_without_group_expire_by_commit_time() -> None:
    offsets = committed({ONE: at(5, commit_ms=0), TWO: at(5, commit_ms=DAY_MS)})
    assert offsets.expired(DAY_MS - 1, DAY_MS) == []
    assert offsets.expired(DAY_MS, DAY_MS) == [ONE]


def test_subscribed_topics_do_not_expire() -> None:
    offsets = committed({ONE: at(5), OTHER: at(5)})
    assert offsets.expired(9 * DAY_MS, DAY_MS, kept_topics={"orders"}) == [OTHER]


def test_explicit_expire_timestamp_applies() -> None:
    offsets = committed({ONE: at(5, expire_ms=10), TWO: at(5, expire_ms=9 * DAY_MS)})
    assert offsets.expired(10, DAY_MS) == [ONE]
    assert offsets.expired(8 * DAY_MS, DAY_MS, since_ms=0) == [ONE]


def test_pending_commit_does_not_expire() -> None:
    offsets = committed({ONE: at(5)})
    offsets.begin({ONE: at(6)})
    assert offsets.expired(9 * DAY_MS, DAY_MS) == []


@given(st.lists(st.tuples(st.sampled_from([ONE, TWO]), st.booleans()), max_size=20), st.randoms())
def test_last_successful_commit_wins_in_any_completion_order(
    commits: list[tuple[TopicPartition, bool]], random: object
) -> None:
    offsets = GroupOffsets()
    begun = []
    expected: dict[TopicPartition, int] = {}
    for log_offset, (partition, succeeds) in enumerate(commits):
        values = {partition: at(log_offset)}
        offsets.begin(values)
        begun.append((values, log_offset, succeeds))
        if succeeds:
            expected[partition] = log_offset
    random.shuffle(begun)  # type: ignore[attr-defined]
    for values, log_offset, succeeds in begun:
        if succeeds:
            offsets.complete(values, log_offset)
        else:
            offsets.fail(values)
    assert {each: value.offset for each, value in offsets.committed.items()} == expected


def test_marker_ends_only_the_commits_before_it() -> None:
    """A marker that is written twice must not end the next transaction of the producer."""
    offsets = GroupOffsets()
    offsets.begin_in_transaction(7, {ONE: at(40)}, log_offset=10)
    offsets.end_transaction(7, is_committed=True, marker_offset=11)
    offsets.begin_in_transaction(7, {ONE: at(50)}, log_offset=13)
    offsets.end_transaction(7, is_committed=True, marker_offset=12)
    assert offsets.committed[ONE].offset == 40
    assert offsets.pending == {ONE: 1}
    offsets.end_transaction(7, is_committed=False, marker_offset=14)
    assert offsets.committed[ONE].offset == 40
    assert not offsets.pending and not offsets.in_transactions


def test_deletion_discards_commits_of_open_transactions() -> None:
    offsets = committed({ONE: at(5)})
    offsets.begin_in_transaction(7, {ONE: at(6), TWO: at(9)}, 10)
    offsets.begin_in_transaction(8, {ONE: at(7)}, 11)
    offsets.remove([ONE], 12)
    assert not offsets.committed
    assert list(offsets.pending) == [TWO]
    offsets.end_transaction(7, is_committed=True, marker_offset=20)
    offsets.end_transaction(8, is_committed=True, marker_offset=21)
    assert offsets.committed == {TWO: at(9)}
    assert not offsets.pending
