"""Groups that move to a copy: what is left to consume, and which of them may move."""

from __future__ import annotations

from uuid import UUID

from barnabas.client.group_offsets import GroupOffset
from barnabas.jobs.moved_groups import (
    ACTIVE,
    KEPT,
    MOVED,
    READY,
    GroupFacts,
    GroupPosition,
    choose_status,
    count_redelivered,
    group_lag,
    has_own_offsets,
    unconsumed_spans,
)
from barnabas.jobs.topic_state import TopicState
from barnabas.spark.planning import LogSpan

SOURCE = TopicState(
    name="orders", id=UUID(int=1), settings={}, spans=(LogSpan(5, 20), LogSpan(0, 9))
)
MARK = "mark"
POSITIONS = {0: GroupPosition(4, 6), 1: GroupPosition(7, 0)}


def group(
    committed: dict[int, int], in_copy: dict[int, int] | None = None, *, is_active: bool = False
) -> GroupFacts:
    offsets = {at: GroupOffset(offset, metadata=MARK) for at, offset in (in_copy or {}).items()}
    return GroupFacts("billing", int(is_active), is_active, committed, offsets)


def test_lag_counts_existing_offsets() -> None:
    assert group_lag(group({0: 12, 1: 9}), SOURCE) == 8
    assert (
        group_lag(group({0: 2}), SOURCE) == 15 + 9
    )  # deleted records, and a partition without an offset
    assert group_lag(group({0: 30, 1: 8}), SOURCE) == 1  # past the end


def test_only_unconsumed_offsets_are_read() -> None:
    ends = {0: 20, 1: 9}
    assert unconsumed_spans([group({0: 12, 1: 9}), group({0: 15, 1: 99})], SOURCE, ends) == {
        0: LogSpan(12, 20)
    }
    assert unconsumed_spans([group({0: 2})], SOURCE, ends) == dict(enumerate(SOURCE.spans))
    assert unconsumed_spans([group({0: 20, 1: 9})], SOURCE, ends) == {}


def test_group_moves_only_without_members_and_only_forward() -> None:
    assert choose_status(group({0: 1}), POSITIONS) == READY
    assert choose_status(group({0: 1}, is_active=True), POSITIONS) == ACTIVE
    assert choose_status(group({0: 1}, {0: 3, 1: 7}), POSITIONS) == READY
    assert choose_status(group({0: 1}, {0: 3, 1: 8}), POSITIONS) == KEPT
    # The consumers of a moved group have started, but have not committed yet.
    assert choose_status(group({0: 1}, {0: 4, 1: 7}, is_active=True), POSITIONS) == MOVED


def test_own_offsets_are_recognised_by_their_mark() -> None:
    assert not has_own_offsets(group({0: 1}), MARK)
    assert not has_own_offsets(group({0: 1}, {0: 4}), MARK)
    assert has_own_offsets(group({0: 1}, {0: 4}), "mark of another topic")


def test_redelivered_records_are_those_after_the_position_that_were_consumed() -> None:
    assert count_redelivered(POSITIONS, {0: 13, 1: 7}) == 3
