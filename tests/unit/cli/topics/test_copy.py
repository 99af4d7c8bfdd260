from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.cli.topics.copy import (
    CopyPlan,
    copy_document,
    copy_progress_text,
    copy_text,
    plan_copy,
    report_incomplete,
)
from barnabas.jobs.topic_state import TopicState
from barnabas.model import TopicPartition
from barnabas.spark.planning import LogSpan


def state(name: str, *spans: tuple[int, int]) -> TopicState:
    return TopicState(
        name=name, id=UUID(int=1), settings={}, spans=tuple(LogSpan(*span) for span in spans)
    )


def plan(existing: TopicState | None = None) -> CopyPlan:
    source = state("orders", (10, 20), (0, 5))
    return plan_copy(source, "copy", existing, {0: 0, 1: 99})


def test_start_offsets_are_moved_into_the_partitions() -> None:
    spans = {each.partition: (span.start, span.end) for each, span in plan().ranges.items()}
    assert spans == {0: (10, 20), 1: (5, 5)}
    assert plan().offsets == 10


def test_partitions_are_kept_only_with_equal_numbers() -> None:
    assert plan().keep_partitions
    assert plan(state("copy", (0, 0), (0, 0))).keep_partitions
    assert not plan(state("copy", (0, 0))).keep_partitions
    text = copy_text(copy_document(plan(state("copy", (0, 0))), dry_run=True))
    assert (
        "would copy 10 offsets of topic orders to the existing topic copy: 1 partition, by key"
        in text
    )


def test_interrupted_copy_says_how_far_it_got(capsys: pytest.CaptureFixture[str]) -> None:
    created = plan()
    created.ranges[TopicPartition("orders", 0)].records = 3
    assert copy_progress_text(created, 3) == "copying orders to copy:  30%  3 records"
    report_incomplete(created, " -b host:1")
    shown = capsys.readouterr().err
    assert "3 records of 10 offsets copied; topic copy is incomplete" in shown
    assert "`barnabas topics delete copy -b host:1`" in shown
    report_incomplete(plan(state("copy", (0, 0))), "")
    assert "topics delete" not in capsys.readouterr().err, "the topic is not ours"
