"""Positions of groups in a copy, compared with a computation record by record."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.jobs.moved_groups import COMMITTED, find_positions
from support.seed import choose_seed
from tests.spark.topics import Topics

ROWS = "partition int, source_partition int, offset bigint, hash bigint"
COPIED = "partition int, position bigint, hash bigint"


@pytest.mark.parametrize(("before", "after"), [(5, 2), (2, 5)])
def test_position_is_that_of_the_first_unconsumed_record(
    topics: Topics, before: int, after: int
) -> None:
    """The source is compacted: its offsets have gaps. Some of its records are gone, but the copy has them."""
    chance = Random(choose_seed())
    ends = [chance.randrange(20, 60) for _ in range(before)]
    offsets = [(source, at) for source in range(before) for at in range(ends[source])]
    kept = [each for each in offsets if chance.random() < 0.7]
    rows = [(chance.randrange(after), *each, number) for number, each in enumerate(kept)]
    merged = sorted(rows, key=lambda row: row[2] + chance.random())
    copied = [
        (target, position, row[3])
        for target in range(after)
        for position, row in enumerate(row for row in merged if row[0] == target)
    ]
    rows = [row for row in rows if chance.random() < 0.9]
    positions = {found: position for _, position, found in copied}
    committed = {
        "nothing": [0] * before,
        "some": [chance.randrange(end) for end in ends],
        "one left": [0, *ends[1:]],
        "all": ends,
        "past the end": [end + 7 for end in ends],
    }
    expected = {}
    for group, places in committed.items():
        for target in range(after):
            left = [positions[each] for at, source, offset, each in rows
                    if at == target and offset >= places[source]]  # fmt: skip
            if left:
                expected[group, target] = (min(left), len(left))
    spark = topics.spark
    found = find_positions(
        spark.createDataFrame(rows, ROWS),
        spark.createDataFrame(copied, COPIED),
        spark.createDataFrame(
            [(group, *each) for group, places in committed.items() for each in enumerate(places)],
            COMMITTED,
        ),
    ).collect()
    assert {(group, at): (position, count) for group, at, position, count in found} == expected
    assert {group for group, _ in expected} == {"nothing", "some", "one left"}
