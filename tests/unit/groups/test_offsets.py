"""What of a group's commits counts, in which order, and for how long."""

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


def test_a_commit_counts_when_it_is_in_the_log_and_not_before() -> None:
    offsets = GroupOffsets()
    commits = {ONE: at(5)}
    offsets.begin(commits)
    assert not offsets.committed
    offsets.complete(commits, 10)
    assert offsets.committed == commits
    assert not offsets.pending


def test_a_commit_that_failed_leaves_the_one_before() -> None:
    offsets = committed({ONE: at(5)})
    commits = {ONE: at(6)}
    offsets.begin(commits)
    offsets.fail(commits)
    assert offsets.committed == {ONE: at(5)}
    assert not offsets.pending


def test_of_two_commits_the_later_one_in_the_log_wins_whichever_is_answered_first() -> None:
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


def test_what_was_removed_while_it_was_written_stays_away() -> None:
    offsets = GroupOffsets()
    commits = {ONE: at(5)}
    offsets.begin(commits)
    assert offsets.among([ONE, TWO]) == [ONE]
    offsets.remove([ONE], 11)
    offsets.begin(later := {ONE: at(1)})
    offsets.complete(commits, 10)
    assert not offsets.committed
    offsets.complete(later, 12)
    assert offsets.committed == later


def test_without_members_offsets_expire_when_the_last_has_been_gone_long_enough() -> None:
    offsets = committed({ONE: at(5, commit_ms=0), TWO: at(5, commit_ms=DAY_MS)})
    assert offsets.expired(3 * DAY_MS - 1, DAY_MS, since_ms=2 * DAY_MS) == []
    assert offsets.expired(3 * DAY_MS, DAY_MS, since_ms=2 * DAY_MS) == [ONE, TWO]


def test_without_a_group_each_offset_expires_by_its_own_commit() -> None:
    offsets = committed({ONE: at(5, commit_ms=0), TWO: at(5, commit_ms=DAY_MS)})
    assert offsets.expired(DAY_MS - 1, DAY_MS) == []
    assert offsets.expired(DAY_MS, DAY_MS) == [ONE]


def test_topics_that_are_read_stay_however_old_their_commits_are() -> None:
    offsets = committed({ONE: at(5), OTHER: at(5)})
    assert offsets.expired(9 * DAY_MS, DAY_MS, kept={"orders"}) == [OTHER]


def test_a_commit_that_says_itself_when_it_ends_is_believed() -> None:
    offsets = committed({ONE: at(5, expire_ms=10), TWO: at(5, expire_ms=9 * DAY_MS)})
    assert offsets.expired(10, DAY_MS) == [ONE]
    assert offsets.expired(8 * DAY_MS, DAY_MS, since_ms=0) == [ONE]


def test_nothing_expires_while_a_commit_is_under_way() -> None:
    offsets = committed({ONE: at(5)})
    offsets.begin({ONE: at(6)})
    assert offsets.expired(9 * DAY_MS, DAY_MS) == []


@given(st.lists(st.tuples(st.sampled_from([ONE, TWO]), st.booleans()), max_size=20), st.randoms())
def test_in_whatever_order_answers_come_the_last_that_succeeded_counts(
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
