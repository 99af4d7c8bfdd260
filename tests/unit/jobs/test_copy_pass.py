"""Passes of a resize: which offsets the next one copies."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.jobs.copy_pass import CopyPass, check_available, finished_pass, next_pass
from barnabas.jobs.copy_topic import CopiedPartition
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.topic_state import TopicState
from barnabas.spark.planning import LogSpan

FIRST = CopyPass(spans={0: LogSpan(5, 20), 1: LogSpan(0, 9)})


def source(*spans: tuple[int, int]) -> TopicState:
    found = tuple(LogSpan(*span) for span in spans)
    return TopicState(name="orders", id=UUID(int=1), settings={}, spans=found)


def test_next_pass_appends_what_was_added() -> None:
    copied = [CopiedPartition(0, 4, 6), CopiedPartition(1, 0, 0), CopiedPartition(2, 0, 14)]
    done = finished_pass(FIRST, copied)
    assert done.is_empty
    assert done.starts == {0: 10, 1: 0, 2: 14}
    assert next_pass(done, source((5, 20), (0, 9))).is_empty
    # Partition 1 has deleted records that were not copied; partition 2 is new.
    added = next_pass(done, source((5, 23), (12, 15), (0, 2)))
    assert added.spans == {0: LogSpan(20, 23), 1: LogSpan(12, 15), 2: LogSpan(0, 2)}
    assert finished_pass(added, copied).starts == {0: 20, 1: 0, 2: 28}


def test_only_lost_records_of_the_pass_matter() -> None:
    check_available(source((5, 30), (0, 9)), FIRST.spans, "copy")
    check_available(source((9, 30)), {0: LogSpan(7, 7)}, "copy")
    for lost in ((6, 30), (5, 19)):
        with pytest.raises(JobRefused, match="orders-0 lost records since the copy to copy began"):
            check_available(source(lost, (0, 9)), FIRST.spans, "copy")
