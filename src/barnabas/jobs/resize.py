"""Copy a topic to a new one with another number of partitions (see placement.py for where records go)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.errors import ConfigError
from barnabas.jobs.copy_pass import CopyPass, check_available, delete_pass, load_pass, save_pass
from barnabas.jobs.copy_topic import (
    CopiedPartition,
    NewCopy,
    SourceRows,
    all_partitions,
    check_chosen,
    check_partition_count,
    check_target,
    copy_to_topic,
    create_target,
    set_final_settings,
)
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.placement import ORDER, place_records
from barnabas.jobs.session import OpenSpark
from barnabas.jobs.topic_state import TopicState, count_offsets, find_state, topic_records
from barnabas.spark.planning import LogSpan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PlannedCopy(NamedTuple):
    """The next pass of a copy, whether it was saved by an earlier run, and the new topic, if it exists."""

    copy_pass: CopyPass
    is_saved: bool
    found: TopicState | None


class ResizeRun(NamedTuple):
    """Result of a run. `spans` are the copied offsets of the source; `existed` is whether the new topic existed."""

    spans: dict[int, LogSpan]
    existed: bool
    partitions: list[CopiedPartition]


def run_resize(
    open_spark: OpenSpark,
    cluster: Cluster,
    source: TopicState,
    new: NewCopy,
    *,
    verify: bool = True,
    dry_run: bool = False,
) -> ResizeRun:
    """Copy the records of `source` to a topic with another number of partitions.

    Raises ApiError, JobRefused, OtherWriter and CopyDiffers.
    """
    planned = plan_copy(cluster, source, new)
    todo = planned.copy_pass
    if todo.starts:
        raise JobRefused(f"the copy to topic {new.name} was begun with --swap; add --swap")
    copied = all_partitions(new.partition_count, [])
    if not dry_run:
        if not planned.is_saved:
            save_first_pass(cluster, source, new, todo)
        with open_spark(count_offsets(todo.spans)) as spark:
            copied = run_pass(spark, cluster, source.name, todo, new, verify=verify)
        set_final_settings(cluster, new, planned.found)
        delete_pass(cluster, new.name)
    return ResizeRun(dict(todo.spans), planned.found is not None, copied)


def plan_copy(cluster: Cluster, source: TopicState, new: NewCopy) -> PlannedCopy:
    """Return the pass that an earlier run has saved, or the first one. Raises ApiError and JobRefused."""
    if source.name == new.name:
        raise ConfigError("--to", f"{new.name} is the topic itself; choose a new name")
    found = find_state(cluster, new.name)
    saved = None
    if found is None:
        create_target(cluster, new, validate_only=True)
    else:
        check_partition_count(found, new)
        check_chosen(found, new)
        if any(span.latest for span in found.spans):
            saved = load_pass(cluster, new.name, source)
        if saved is None or not saved.is_empty:
            check_target(found, new, {} if saved is None else saved.starts)
    todo = saved or CopyPass(spans=dict(enumerate(source.spans)))
    check_available(source, todo.spans, new.name)
    return PlannedCopy(todo, saved is not None, found)


def save_first_pass(cluster: Cluster, source: TopicState, new: NewCopy, first: CopyPass) -> None:
    """Save the first pass, after deleting the saved passes of an earlier copy to a topic with this name."""
    delete_pass(cluster, new.name)
    save_pass(cluster, new.name, source, first)


def run_pass(
    spark: SparkSession,
    cluster: Cluster,
    source: str,
    todo: CopyPass,
    new: NewCopy,
    *,
    verify: bool,
) -> list[CopiedPartition]:
    """Copy the records of a pass. Raises ApiError, JobRefused, OtherWriter and CopyDiffers."""
    records = topic_records(spark, cluster, source, todo.spans)
    rows = place_records(records, new.partition_count)
    origin = SourceRows(f"topic {source}", rows, ORDER, starts=todo.starts)
    return copy_to_topic(spark, cluster, origin, new, verify=verify)
