"""Consumer groups that move to a copy of their topic with another number of partitions.

The position of a group in a target partition is that of the first record that it has not consumed. The job finds it by
content, so it needs neither the order of the copy nor records that the source has deleted since:

    source:  records from the committed offsets on  ──place──►  partition, hash ─┐
    copy:    records                                ─────────►  partition, hash, position ──join──►  lowest position

Two records with the same content, or the same hash, can only lower a position. So no record is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.group_offsets import GroupOffset
from barnabas.client.offsets import list_offsets, offset_values
from barnabas.errors import ApiError, ErrorCode
from barnabas.jobs.copy_pass import STATE_GROUPS, CopyPass
from barnabas.jobs.copy_topic import NewCopy
from barnabas.jobs.placement import place_records
from barnabas.jobs.topic_state import TopicState, topic_records
from barnabas.jobs.verification import hash_rows
from barnabas.model import TopicPartition
from barnabas.spark.planning import LogSpan
from barnabas.wire.messages.list_offsets import EARLIEST_TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READY = "ready"
MOVED = "moved"
ACTIVE = "active"
"""The group has members, which would not see the new offsets. It was not moved."""
KEPT = "kept"
"""The group has offsets in the copy that no swap has written, or it has consumed records of the copy."""

COMMITTED = "group string, source_partition int, committed bigint"


class GroupFacts(NamedTuple):
    """A group with committed offsets in the source, and its offsets in the copy."""

    group: str
    members: int
    is_active: bool
    committed: Mapping[int, int]
    in_copy: Mapping[int, GroupOffset]


class GroupPosition(NamedTuple):
    """Offset of the first record in a target partition that a group has not consumed, and how many there are."""

    offset: int
    records: int


class MovedGroup(NamedTuple):
    """Result for one group. `redelivered` records were consumed before and are delivered again."""

    group: str
    status: str
    members: int
    lag: int
    redelivered: int | None = None


Positions = Mapping[int, GroupPosition]


# ---- pure -------------------------------------------------------------------------------------------------------


def find_positions(rows: DataFrame, copied: DataFrame, committed: DataFrame) -> DataFrame:
    """Return group, partition, position and records: where each group continues in the copy.

    `rows` of the source have partition (in the copy), source_partition, offset and hash. `copied` has partition,
    position and hash. `committed` has the columns of COMMITTED. A group has no row for a partition in which it has
    consumed all records.
    """
    from pyspark.sql import functions as sf

    waiting = (
        rows.join(sf.broadcast(committed), "source_partition")
        .where("offset >= committed")
        .groupBy("group", "partition", "hash")
        .agg(sf.count(sf.lit(1)).alias("records"))
    )
    first = copied.groupBy("partition", "hash").agg(sf.min("position").alias("position"))
    return (
        waiting.join(first, ["partition", "hash"], "left")
        .groupBy("group", "partition")
        .agg(sf.min("position").alias("position"), sf.sum("records").alias("records"))
    )


def group_lag(facts: GroupFacts, source: TopicState) -> int:
    """Return the number of offsets of the source that the group has not consumed."""
    return sum(
        max(0, span.latest - max(span.earliest, facts.committed.get(number, 0)))
        for number, span in enumerate(source.spans)
    )


def unconsumed_spans(
    groups: list[GroupFacts], source: TopicState, ends: Mapping[int, int]
) -> dict[int, LogSpan]:
    """Return the copied offsets of the source that at least one group has not consumed."""
    spans = {}
    for number, end in ends.items():
        lowest = min(facts.committed.get(number, 0) for facts in groups)
        first = max(lowest, source.spans[number].earliest)
        if first < end:
            spans[number] = LogSpan(first, end)
    return spans


def has_own_offsets(facts: GroupFacts, mark: str) -> bool:
    """Whether the group has offsets in the copy that were not written with this mark."""
    return any(each.metadata != mark for each in facts.in_copy.values())


def choose_status(facts: GroupFacts, positions: Positions) -> str:
    """Return what to do with a group without own offsets: READY to be moved, or one of the final results."""
    found = {number: each.offset for number, each in facts.in_copy.items()}
    wanted = {number: each.offset for number, each in positions.items()}
    if found == wanted:
        return MOVED
    if any(found[number] > wanted.get(number, 0) for number in found):
        return KEPT  # a client may keep the mark when it commits
    return ACTIVE if facts.is_active else READY


def count_redelivered(positions: Positions, ends: Mapping[int, int]) -> int:
    return sum(max(0, ends[at] - each.offset - each.records) for at, each in positions.items())


# ---- groups -----------------------------------------------------------------------------------------------------


def swap_mark(source: TopicState) -> str:
    """Metadata of the offsets that a swap commits."""
    return f"barnabas resize --swap {source.id}"


def find_groups(cluster: Cluster, source: str, copy: str) -> list[GroupFacts]:
    """Return the groups with committed offsets in the source. Groups with the state of a resize are left out."""
    admin = GroupAdmin(cluster)
    found = []
    for listed in admin.list_groups():
        if listed.group_id.startswith(STATE_GROUPS):
            continue
        offsets = admin.committed_offsets(listed.group_id)
        committed = {
            at.partition: each.offset for at, each in offsets.items() if at.topic == source
        }
        if committed:
            view = admin.describe_group(listed.group_id)
            in_copy = {at.partition: each for at, each in offsets.items() if at.topic == copy}
            found.append(
                GroupFacts(view.group_id, len(view.members), view.is_active, committed, in_copy)
            )
    return found


def preview_groups(cluster: Cluster, source: TopicState, copy: str) -> list[MovedGroup]:
    """Return the groups, and whether they can be moved. Raises ApiError."""
    shown = []
    for facts in find_groups(cluster, source.name, copy):
        status = ACTIVE if facts.is_active else READY
        if has_own_offsets(facts, swap_mark(source)):
            status = KEPT
        shown.append(MovedGroup(facts.group, status, facts.members, group_lag(facts, source)))
    return shown


def move_groups(
    spark: SparkSession,
    cluster: Cluster,
    source: TopicState,
    new: NewCopy,
    done: CopyPass,
) -> list[MovedGroup]:
    """Commit the offsets of all groups without members in the copy, which is complete up to `done`.

    Raises ApiError.
    """
    mark = swap_mark(source)
    groups = find_groups(cluster, source.name, new.name)
    movable = [facts for facts in groups if not has_own_offsets(facts, mark)]
    positions = look_up_positions(spark, cluster, source, new, done, movable)
    results = []
    for facts in groups:
        wanted = positions.get(facts.group)
        status = KEPT if wanted is None else choose_status(facts, wanted)
        if wanted is not None and status == READY:
            status = commit_positions(cluster, facts.group, new.name, wanted, mark)
        redelivered = None
        if wanted is not None and status == MOVED:
            redelivered = count_redelivered(wanted, done.starts)
        lag = group_lag(facts, source)
        results.append(MovedGroup(facts.group, status, facts.members, lag, redelivered))
    return results


def commit_positions(
    cluster: Cluster, group: str, topic: str, positions: Positions, mark: str
) -> str:
    """Commit the positions of a group. Returns ACTIVE if a member has joined meanwhile, else MOVED."""
    offsets = {TopicPartition(topic, number): each.offset for number, each in positions.items()}
    try:
        GroupAdmin(cluster).set_offsets(group, offsets, metadata=mark)
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        return ACTIVE
    return MOVED


# ---- positions --------------------------------------------------------------------------------------------------


def look_up_positions(
    spark: SparkSession,
    cluster: Cluster,
    source: TopicState,
    new: NewCopy,
    done: CopyPass,
    groups: list[GroupFacts],
) -> dict[str, dict[int, GroupPosition]]:
    """Return the position of each group in each partition of the copy. Raises ApiError."""
    from pyspark.sql import functions as sf

    found = {
        facts.group: {number: GroupPosition(end, 0) for number, end in done.starts.items()}
        for facts in groups
    }
    ends = {number: span.latest for number, span in done.spans.items()}
    spans = unconsumed_spans(groups, source, ends) if groups else {}
    if not spans:
        return found
    placed = place_records(topic_records(spark, cluster, source.name, spans), new.partition_count)
    times = placed.groupBy("partition").agg(sf.unix_millis(sf.min("timestamp")))
    targets = spans_since(cluster, new.name, dict(map(tuple, times.collect())), done.starts)
    if not targets:
        return found
    copied = topic_records(spark, cluster, new.name, targets)
    committed = [
        (facts.group, number, facts.committed.get(number, 0))
        for facts in groups
        for number in spans
    ]
    rows = find_positions(
        hash_rows(placed),
        hash_rows(copied.withColumnRenamed("offset", "position")),
        spark.createDataFrame(committed, COMMITTED),
    )
    for group, partition, position, records in rows.collect():
        end = done.starts[partition]
        found[group][partition] = GroupPosition(end if position is None else position, records)
    return found


def spans_since(
    cluster: Cluster, topic: str, times_ms: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, LogSpan]:
    """Return the offsets from the first record at or after a time on, by partition. Empty ones are left out."""
    # Records without a timestamp have -1, which has another meaning in ListOffsets.
    asked = {
        TopicPartition(topic, number): EARLIEST_TIMESTAMP if time < 0 else time
        for number, time in times_ms.items()
    }
    firsts = offset_values(list_offsets(cluster, asked))
    spans = {at.partition: LogSpan(first, ends[at.partition]) for at, first in firsts.items()}
    return {number: span for number, span in spans.items() if 0 <= span.earliest < span.latest}
