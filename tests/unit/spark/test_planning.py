from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import ConfigError
from barnabas.model import TopicPartition
from barnabas.spark.planning import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    EarliestOrLatest,
    LogSpan,
    check_covers,
    clamp,
    count_new,
    distinct_ends,
    find_losses,
    limit_rows,
    offsets_to_json,
    parse_offsets,
    plan_ranges,
    resolve_bound,
    should_trigger,
    split_ranges,
    timestamps_to_look_up,
)
from barnabas.spark.ranges import OffsetRange

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

offsets = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 12)),
    st.integers(0, 1 << 62),
    max_size=12,
)


def range_of(partition: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(topic=partition.topic, partition=partition.partition, start=start, end=end)


@given(offsets)
def test_offsets_round_trip_through_json(
    found: dict[TopicPartition, int],
) -> None:
    text = json.dumps(offsets_to_json(found))
    assert parse_offsets(json.loads(text)) == found
    reordered = dict(reversed(list(found.items())))
    assert json.dumps(offsets_to_json(reordered)) == text


def test_partitions_are_ordered_by_number() -> None:
    found = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert json.dumps(offsets_to_json(found)) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'


def test_words_and_numbers_resolve_to_offsets() -> None:
    spans = {A0: LogSpan(5, 50), A1: LogSpan(0, 7)}
    everywhere = EarliestOrLatest(option="x", offset=EARLIEST)
    assert resolve_bound(everywhere, spans, {}, no_match_is_error=True) == {A0: 5, A1: 0}
    at = AtOffsets(option="x", offsets={A0: LATEST, A1: 3})
    assert resolve_bound(at, spans, {}, no_match_is_error=True) == {A0: 50, A1: 3}


def test_timestamps_resolve_to_found_offsets() -> None:
    spans = {A0: LogSpan(5, 50), A1: LogSpan(0, 7)}
    assert timestamps_to_look_up(AtTime(option="x", timestamp=9), spans) == {A0: 9, A1: 9}
    assert timestamps_to_look_up(AtTimes(option="x", timestamps={A0: 8}), spans) == {A0: 8}
    assert timestamps_to_look_up(EarliestOrLatest(option="x", offset=LATEST), spans) == {}
    found = {A0: 20, A1: -1}
    bound = AtTime(option="startingTimestamp", timestamp=9)
    assert resolve_bound(bound, spans, found, no_match_is_error=False) == {A0: 20, A1: 7}
    with pytest.raises(ConfigError, match="startingTimestamp: a-1 has no record at or after 9"):
        resolve_bound(bound, spans, found, no_match_is_error=True)
    with pytest.raises(ConfigError, match="a-0, a-1 have no record at or after 9"):
        resolve_bound(bound, spans, {A0: -1, A1: -1}, no_match_is_error=True)


def test_offsets_must_name_exactly_the_read_partitions() -> None:
    bound = AtOffsets(option="startingOffsets", offsets={A0: 1, B0: 1})
    check_covers(bound, [A0, B0])
    with pytest.raises(ConfigError, match=r"startingOffsets: does not name a-1; name every part"):
        check_covers(bound, [A0, A1, B0])
    with pytest.raises(ConfigError, match=r"names partitions that are not read: b-0; remove them"):
        check_covers(bound, [A0])
    with pytest.raises(ConfigError, match=r"does not name a-1; name every partition that is read$"):
        check_covers(AtTimes(option="x", timestamps={A0: 1}), [A0, A1])


def test_offsets_out_of_range_are_clamped_and_reported() -> None:
    inside, moved = clamp("startingOffsets", {A0: 4, A1: 8, B0: 2}, {
        A0: LogSpan(5, 50), A1: LogSpan(0, 7), B0: LogSpan(0, 2),
    })  # fmt: skip
    assert inside == {A0: 5, A1: 7, B0: 2}
    assert [str(warning) for warning in moved] == [
        f"startingOffsets: offset {requested} is out of range; the log has {span}"
        for requested, span in (("4 of a-0", "5 to 50"), ("8 of a-1", "0 to 7"))
    ]


def test_limit_is_shared_in_proportion_to_backlog() -> None:
    assert limit_rows({A0: 0, A1: 100}, {A0: 100, A1: 400}, 40) == {A0: 10, A1: 130}


def test_small_partition_is_not_starved() -> None:
    assert limit_rows({A0: 0, A1: 0}, {A0: 1_000_000, A1: 1}, 10) == {A0: 9, A1: 1}


def test_backlog_below_limit_is_read_completely() -> None:
    assert limit_rows({A0: 5}, {A0: 9}, 100) == {A0: 9}
    assert limit_rows({A0: 5}, {A0: 5}, 1) == {A0: 5}


def test_ends_differ_from_begin_while_records_are_left() -> None:
    assert distinct_ends({A0: 2}, {A0: 2}, {A0: 2}) == {A0: 2}
    assert distinct_ends({A0: 2}, {A0: 3}, {A0: 0}) == {A0: 3}
    # The topic was recreated, and its new end is that of the old topic.
    assert distinct_ends({A0: 2}, {A0: 2}, {A0: 0}) == {A0: 1}
    assert distinct_ends({A0: 1, A1: 3}, {A0: 1, A1: 3}, {A0: 1, A1: 0}) == {A0: 1, A1: 2}


@given(
    st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)), max_size=8),
    st.integers(1, 1 << 62),
)
def test_limit_holds_and_progress_is_made(sizes: list[tuple[int, int]], rows_max: int) -> None:
    start = {TopicPartition("a", index): begin for index, (begin, _) in enumerate(sizes)}
    latest = {TopicPartition("a", index): begin + size for index, (begin, size) in enumerate(sizes)}
    ends = limit_rows(start, latest, rows_max)
    assert all(start[partition] <= ends[partition] <= latest[partition] for partition in latest)
    assert count_new(start, ends) <= max(rows_max + len(sizes), 0)
    assert count_new(start, ends) > 0 or count_new(start, latest) == 0
    for partition, end in latest.items():
        assert (ends[partition] > start[partition]) == (end > start[partition])


def test_batch_starts_with_enough_records_or_after_delay() -> None:
    assert should_trigger(10, 10, 0, 1000)
    assert not should_trigger(9, 10, 999, 1000)
    assert should_trigger(0, 10, 1000, 1000)


def test_losses_are_reported() -> None:
    found = find_losses({A0: 5, A1: 9}, {A1: 3, B0: 7}, {B0: 2})
    assert [str(loss) for loss in found] == [
        "offsets of a-0 are gone: the topic was deleted, or the query does not select it any more",
        "offsets 3 to 8 of a-1 are gone: the log ends at 3 now; the topic was created again or truncated",
        "offsets 0 to 1 of b-0 are gone: they were deleted before this query found the new partition",
    ]


def test_loss_of_deleted_topic_has_error_name_of_kafka() -> None:
    (deleted,) = find_losses({A0: 5}, {}, {}, {"a"})
    assert (
        str(deleted)
        == "offsets of a-0 are gone: the topic was deleted (UNKNOWN_TOPIC_OR_PARTITION)"
    )


def test_new_partition_read_from_start_is_no_loss() -> None:
    assert find_losses({A0: 5}, {A0: 5, A1: 9}, {A1: 0}) == []


def test_empty_ranges_are_omitted() -> None:
    found = plan_ranges({A0: 5, A1: 9, B0: 0}, {B0: 4, A0: 5, A1: 10}, lambda topic: None)
    assert found == [range_of(A1, 9, 10), range_of(B0, 0, 4)]


def test_ranges_are_not_split_without_limits() -> None:
    whole = [range_of(A0, 0, 100), range_of(A1, 0, 1)]
    assert split_ranges(whole, partitions_min=None, records_max=None) == whole
    assert split_ranges(whole, partitions_min=2, records_max=None) == whole


def test_only_long_range_is_split() -> None:
    parts = split_ranges(
        [range_of(A0, 0, 100), range_of(A1, 0, 1)], partitions_min=5, records_max=None
    )
    assert [part.end - part.start for part in parts] == [25, 25, 25, 25, 1]


@given(
    st.lists(st.tuples(st.integers(0, 1 << 50), st.integers(0, 3000)), max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 500),
)
def test_split_ranges_are_disjoint_complete_and_limited(
    sizes: list[tuple[int, int]], partitions_min: int | None, records_max: int | None
) -> None:
    whole = [
        range_of(TopicPartition("a", index), begin, begin + size)
        for index, (begin, size) in enumerate(sizes)
    ]
    parts = split_ranges(whole, partitions_min=partitions_min, records_max=records_max)
    for found in whole:
        mine = [part for part in parts if part.partition == found.partition]
        if found.start == found.end:
            assert mine == []
            continue
        assert (mine[0].start, mine[-1].end) == (found.start, found.end)
        assert all(before.end == after.start for before, after in pairwise(mine))
        assert all(part.start < part.end for part in mine)
    if records_max is not None:
        assert all(part.end - part.start <= records_max for part in parts)
    total = sum(size for _, size in sizes)
    if partitions_min is not None and total >= partitions_min:
        # Rounding may lose up to half of the ranges; the point is that work is spread.
        assert len(parts) >= partitions_min / 2
