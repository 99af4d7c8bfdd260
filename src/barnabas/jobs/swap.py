"""Resize a topic that is in use: copy until the source does not grow any more, then move its consumer groups.

    pass 0:  the records at the start     pass 1:  those written during pass 0     …     until a pass finds none

Each pass is appended to the one before, so the records of a key keep their order. The state stays saved after the last
pass: a later run copies what was added since, and moves the groups that could not be moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.offsets import latest_offsets
from barnabas.jobs.copy_pass import CopyPass, finished_pass, next_pass, save_pass
from barnabas.jobs.copy_topic import CopiedPartition, NewCopy, all_partitions, set_final_settings
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.moved_groups import MovedGroup, move_groups, preview_groups
from barnabas.jobs.resize import PlannedCopy, ResizeRun, plan_copy, run_pass, save_first_pass
from barnabas.jobs.session import OpenSpark
from barnabas.jobs.topic_state import TopicState, count_offsets, look_up_state
from barnabas.model import TopicPartition
from barnabas.spark.planning import LogSpan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ReportGrowth = Callable[[int], None]
"""Called before each further pass with the number of new offsets."""


class SwapRun(NamedTuple):
    """Result of a run. `uncopied` offsets of the source are of an open transaction, or were written too late."""

    resize: ResizeRun
    groups: list[MovedGroup]
    uncopied: int = 0


def run_swap(
    open_spark: OpenSpark,
    cluster: Cluster,
    source: TopicState,
    new: NewCopy,
    report_growth: ReportGrowth,
    *,
    verify: bool = True,
    dry_run: bool = False,
) -> SwapRun:
    """Copy `source` until it does not grow any more, and move its groups.

    Raises ApiError, JobRefused, OtherWriter and CopyDiffers.
    """
    planned = plan_copy(cluster, source, new)
    if dry_run:
        ends = {number: span.latest for number, span in enumerate(source.spans)}
        groups = preview_groups(cluster, source, new.name)
        return SwapRun(summarize(planned, ends, new.partition_count, []), groups)
    with open_spark(count_offsets(planned.copy_pass.spans)) as spark:
        passes, done = catch_up(spark, cluster, source, new, planned, report_growth, verify=verify)
        now = look_up_state(cluster, source.name)
        groups = move_groups(spark, cluster, now, new, done)
    # The groups come first: with the final settings, the topic may delete records in which they are looked up.
    set_final_settings(cluster, new, planned.found)
    ends = {number: span.latest for number, span in done.spans.items()}
    return SwapRun(
        summarize(planned, ends, new.partition_count, passes),
        groups,
        count_uncopied(cluster, source.name, ends),
    )


def catch_up(
    spark: SparkSession,
    cluster: Cluster,
    source: TopicState,
    new: NewCopy,
    planned: PlannedCopy,
    report_growth: ReportGrowth,
    *,
    verify: bool,
) -> tuple[list[list[CopiedPartition]], CopyPass]:
    """Make passes until the source has not grown during one. Returns their results, and the empty pass at the end."""
    todo, passes = planned.copy_pass, []
    if not planned.is_saved:
        save_first_pass(cluster, source, new, todo)
    while True:
        if not todo.is_empty or not todo.starts:  # the first pass creates the topic
            copied = run_pass(spark, cluster, source.name, todo, new, verify=verify)
            passes.append(copied)
            todo = finished_pass(todo, copied)
            save_pass(cluster, new.name, source, todo)
        now = look_up_state(cluster, source.name)
        if now.id != source.id:
            raise JobRefused(f"topic {source.name} was deleted and created again during the copy")
        growth = next_pass(todo, now)
        if growth.is_empty:
            return passes, todo
        check_only_writer(look_up_state(cluster, new.name), growth, source.name)
        if passes:
            report_growth(count_offsets(growth.spans))
        todo = growth
        save_pass(cluster, new.name, source, todo)


def check_only_writer(copy: TopicState, growth: CopyPass, source: str) -> None:
    """Raise JobRefused if other clients have written to the copy before the next pass."""
    for number, span in enumerate(copy.spans):
        if span.latest != growth.starts[number]:
            count = count_offsets(growth.spans)
            why = f"{copy.name}-{number} has records of other producers, and topic {source} has {count:,} offsets"
            hint = f"stop the producers of {source}, and send these records to {copy.name} again"
            raise JobRefused(f"{why} that are not copied; {hint}")


def summarize(
    planned: PlannedCopy,
    ends: Mapping[int, int],
    partition_count: int,
    passes: Sequence[Sequence[CopiedPartition]],
) -> ResizeRun:
    """Return the result of all passes. Records of earlier runs count as skipped."""
    first = planned.copy_pass
    starts = {number: span.earliest for number, span in first.spans.items()}
    spans = {number: LogSpan(starts.get(number, 0), end) for number, end in ends.items()}
    copied = []
    for number, skipped, _ in all_partitions(partition_count, passes[0] if passes else []):
        written = sum(each[number].written for each in passes)
        copied.append(CopiedPartition(number, first.starts.get(number, 0) + skipped, written))
    return ResizeRun(spans, planned.found is not None, copied)


def count_uncopied(cluster: Cluster, topic: str, ends: Mapping[int, int]) -> int:
    """Return the number of offsets after these ends, with those of open transactions."""
    latest = latest_offsets(cluster, [TopicPartition(topic, number) for number in ends])
    return sum(max(0, offset - ends[at.partition]) for at, offset in latest.items())
