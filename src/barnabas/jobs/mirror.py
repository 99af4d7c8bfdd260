"""Mirror topics to another cluster: records with their keys, values, headers, timestamps, partitions and order.

    source topic ──ranges after the checkpoints──► copy_rows ──► target topic ──► verification ──► new checkpoints

A checkpoint maps an offset of the source to an offset of the target. A run that was killed after the checkpoint has
left more records in the target: as many records of the source are skipped. So no record is lost or doubled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from barnabas.batch.compression import Compression
from barnabas.client.admin import Admin, NewPartitions, NewTopic, TopicOutcome
from barnabas.client.blocking import Deadline, pause
from barnabas.client.cluster import Cluster
from barnabas.errors import ConfigError, ErrorCode
from barnabas.jobs.copy_topic import (
    TIMESTAMP_LIMITS,
    batch_bytes,
    change_settings,
    setting_changes,
)
from barnabas.jobs.errors import CopyDiffers, JobRefused
from barnabas.jobs.mirror_checkpoints import CHECKPOINT_TOPIC, Checkpoint, CheckpointStore
from barnabas.jobs.mirror_lease import MirrorLease
from barnabas.jobs.ordered_copy import CopyTarget, copy_rows, new_identity
from barnabas.jobs.topic_state import TopicState, find_state, look_up_state, topic_records
from barnabas.jobs.verification import compare_records, require_equal, value_of_partition
from barnabas.model import ZERO_ID
from barnabas.spark.planning import LogSpan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSETS_MAX = 1_000_000
"""Offsets of one partition that are copied before the next checkpoint."""


PARTITIONS_PAUSE_S = 0.05


class Mirror(NamedTuple):
    """The clusters of a mirror. Topics of the target begin with `prefix`, and no others do if there is one cluster."""

    source: Cluster
    target: Cluster
    checkpoints: CheckpointStore
    prefix: str = ""
    is_in_one_cluster: bool = False
    compression: Compression = Compression.NONE


class MirrorRange(NamedTuple):
    """The next offsets of one source partition, and where the first of them goes in the target.

    `lost` offsets before `start` were deleted from the source before they were copied."""

    start: int
    end: int
    target_start: int
    lost: int = 0


class MirroredTopic(NamedTuple):
    """Result for one topic: copied records, offsets that are left to copy, and offsets that were lost."""

    topic: str
    target: str
    partitions: int
    records: int
    lag: int
    lost: int


class PlannedTopic(NamedTuple):
    """What a run would do with one topic: offsets to copy and offsets that are lost, and the changes of the target.

    `settings` are the names of settings that would change."""

    topic: str
    target: str
    exists: bool
    partitions: int
    new_partitions: int
    settings: list[str]
    offsets: int
    lost: int


# ---- pure -------------------------------------------------------------------------------------------------------


def matching_topics(names: Sequence[str], pattern: str) -> list[str]:
    """Return the topics whose whole name matches, sorted. Raises ConfigError for an invalid pattern."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ConfigError("PATTERN", f"{pattern!r} is not a regular expression: {error}") from None
    return sorted(name for name in names if expression.fullmatch(name) and name != CHECKPOINT_TOPIC)


def mirrored_settings(source: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the target. It must not replace or reject timestamps."""
    kept = {name: value for name, value in source.items() if name not in TIMESTAMP_LIMITS}
    return {**kept, "message.timestamp.type": "CreateTime"}


def planned_target(name: str, source: TopicState, found: TopicState | None) -> TopicState:
    """Return the target as it will be when its partitions follow the source. `found` is the target as it is now."""
    target = found or TopicState(name=name, id=ZERO_ID, settings={}, spans=())
    missing = max(0, source.partition_count - target.partition_count)
    return structs.replace(target, spans=(*target.spans, *[LogSpan(0, 0)] * missing))


def checkpoints_of(
    target: TopicState | None, stored: Mapping[int, Checkpoint]
) -> dict[int, Checkpoint]:
    """Return the checkpoints of this target topic, without those of a deleted topic of the same name."""
    if target is None:
        return {}
    return {
        partition: each for partition, each in stored.items() if each.target_id in (target.id, None)
    }


def new_checkpoints(
    source: TopicState, target: TopicState, known: Mapping[int, Checkpoint]
) -> dict[int, Checkpoint]:
    """Return checkpoints for the partitions without one. Raises JobRefused if the target is not such a mirror."""
    for partition, checkpoint in known.items():
        if checkpoint.topic_id != source.id:
            raise recreated(source.name, target.name)
        if partition >= target.partition_count or (
            target.spans[partition].latest < checkpoint.target_offset
        ):
            why = f"{target.name}-{partition} has fewer records than were mirrored"
            hint = "it was created again or truncated: delete it to mirror everything"
            raise JobRefused(f"{why}; {hint}")
    added = {}
    for partition, span in enumerate(source.spans):
        if partition in known:
            continue
        if target.spans[partition].latest > 0:
            why = f"topic {target.name} exists in the target cluster and is not a mirror of {source.name}"
            raise JobRefused(f"{why}; delete it, or set --prefix")
        added[partition] = Checkpoint(
            topic_id=source.id,
            source_offset=span.earliest,
            target_offset=0,
            target_id=target.id,
        )
    return added


def recreated(source: str, target: str) -> JobRefused:
    why = f"topic {source} was deleted and created again in the source cluster"
    return JobRefused(f"{why}; delete topic {target} in the target cluster to mirror the new one")


def is_current(source: TopicState, target: TopicState, known: Mapping[int, Checkpoint]) -> bool:
    """Return whether there is nothing to copy or to change, as far as the checkpoints say."""
    return target.settings == mirrored_settings(source.settings) and all(
        (checkpoint := known.get(partition)) is not None
        and checkpoint.topic_id == source.id
        and checkpoint.source_offset == span.latest
        and partition < target.partition_count
        and checkpoint.target_offset <= target.spans[partition].latest
        for partition, span in enumerate(source.spans)
    )


def plan_range(
    name: str, span: LogSpan, checkpoint: Checkpoint, target_end: int
) -> MirrorRange | None:
    """Return the next range of a partition, or None if there is nothing to copy. Raises JobRefused."""
    hint = "delete the topic in the target cluster to mirror it again"
    if span.latest < checkpoint.source_offset:
        why = f"{name} ends at offset {span.latest} in the source, but records up to {checkpoint.source_offset}"
        raise JobRefused(f"{why} were mirrored: the log was truncated; {hint}")
    start = max(checkpoint.source_offset, span.earliest)
    lost = start - checkpoint.source_offset
    if lost and target_end > checkpoint.target_offset:
        why = f"{name}: the source has deleted records that an interrupted run may have copied"
        raise JobRefused(f"{why}; {hint}")
    if span.latest <= start and not lost:
        return None
    end = min(span.latest, start + OFFSETS_MAX)
    return MirrorRange(start, end, checkpoint.target_offset, lost)


def plan_ranges(
    source: TopicState, target: TopicState, known: Mapping[int, Checkpoint]
) -> dict[int, MirrorRange]:
    """Return the next range of each partition that has one. Raises JobRefused."""
    found = {
        number: plan_range(
            f"{source.name}-{number}", span, known[number], target.spans[number].latest
        )
        for number, span in enumerate(source.spans)
    }
    return {number: each for number, each in found.items() if each is not None}


# ---- one topic --------------------------------------------------------------------------------------------------


class TopicPair(NamedTuple):
    """A topic, its mirror as it is now (None if it does not exist) and as it will be, and the known checkpoints."""

    source: TopicState
    found: TopicState | None
    target: TopicState
    known: dict[int, Checkpoint]

    def plan(self) -> dict[int, MirrorRange]:
        """Return the next ranges. Raises JobRefused if the topic cannot be mirrored."""
        added = new_checkpoints(self.source, self.target, self.known)
        return plan_ranges(self.source, self.target, self.known | added)


def look_up_pair(mirror: Mirror, topic: str) -> TopicPair:
    """Look up a topic and its mirror. Raises ApiError, and JobRefused for unreadable checkpoints."""
    name = mirror.prefix + topic
    # The checkpoints come first. Another run may copy records meanwhile, and the topics have at least those.
    stored = mirror.checkpoints.load(topic, name)
    source, found = look_up_state(mirror.source, topic), find_state(mirror.target, name)
    target = planned_target(name, source, found)
    return TopicPair(source, found, target, checkpoints_of(found, stored))


def plan_topic(mirror: Mirror, topic: str) -> PlannedTopic:
    """Return what `mirror_topic` would do. Changes nothing. Raises ApiError and JobRefused."""
    pair = look_up_pair(mirror, topic)
    source, found = pair.source, pair.found
    wanted = mirrored_settings(source.settings)
    if found is None:
        name, count = pair.target.name, source.partition_count
        create_topic(mirror.target, name, count, wanted, validate_only=True)
    ranges = pair.plan()
    return PlannedTopic(
        topic=topic,
        target=pair.target.name,
        exists=found is not None,
        partitions=source.partition_count,
        new_partitions=pair.target.partition_count - found.partition_count if found else 0,
        settings=[each.name for each in setting_changes(found.settings, wanted)] if found else [],
        offsets=sum(source.spans[number].latest - each.start for number, each in ranges.items()),
        lost=sum(each.lost for each in ranges.values()),
    )


def mirror_topic(
    spark: SparkSession, mirror: Mirror, topic: str, *, verify: bool = True
) -> MirroredTopic:
    """Copy the next records of a topic, and its partitions and settings.

    Raises ApiError, JobRefused (also if another run copies the topic), OtherWriter and CopyDiffers.
    """
    pair = look_up_pair(mirror, topic)
    if pair.found is not None and is_current(pair.source, pair.found, pair.known):
        return mirrored_topic(pair.source, pair.target, 0, {})
    mirror.checkpoints.ensure_topic()
    with MirrorLease(mirror.target, pair.target.name) as lease:
        return mirror_with_lease(spark, mirror, topic, lease, verify=verify)


def mirror_with_lease(
    spark: SparkSession, mirror: Mirror, topic: str, lease: MirrorLease, *, verify: bool
) -> MirroredTopic:
    # Another run may have copied records before this one got the lease.
    pair = look_up_pair(mirror, topic)
    pair.plan()  # A topic that is refused must stay as it is.
    source, known = pair.source, pair.known
    target = prepare_target(mirror, source, pair.found)
    added = new_checkpoints(source, target, known)
    mirror.checkpoints.save(topic, target.name, added)
    ranges = plan_ranges(source, target, known | added)
    records = 0
    if ranges:
        ends = copy_ranges(spark, mirror, source, target, ranges, lease, verify=verify)
        records = sum(end - ranges[number].target_start for number, end in ends.items())
        done = {
            partition: Checkpoint(
                topic_id=source.id,
                source_offset=each.end,
                target_offset=ends[partition],
                target_id=target.id,
            )
            for partition, each in ranges.items()
        }
        # The records were read by the name of the topic.
        (found_topic,) = Admin(mirror.source).describe_topics([topic])
        if found_topic.id != source.id:
            raise recreated(source.name, target.name)
        lease.check()
        mirror.checkpoints.save(topic, target.name, done)
    return mirrored_topic(source, target, records, ranges)


def mirrored_topic(
    source: TopicState, target: TopicState, records: int, ranges: Mapping[int, MirrorRange]
) -> MirroredTopic:
    return MirroredTopic(
        topic=source.name,
        target=target.name,
        partitions=source.partition_count,
        records=records,
        lag=sum(source.spans[number].latest - each.end for number, each in ranges.items()),
        lost=sum(each.lost for each in ranges.values()),
    )


def copy_ranges(
    spark: SparkSession,
    mirror: Mirror,
    source: TopicState,
    target: TopicState,
    ranges: Mapping[int, MirrorRange],
    lease: MirrorLease,
    *,
    verify: bool,
) -> dict[int, int]:
    """Copy ranges to the target. Returns the end offset of each target partition."""
    starts = {partition: each.target_start for partition, each in ranges.items()}
    rows = topic_records(
        spark,
        mirror.source,
        source.name,
        {number: LogSpan(each.start, each.end) for number, each in ranges.items()},
    )
    place = CopyTarget(
        servers=mirror.target.servers,
        security=mirror.target.security,
        topic=target.name,
        partition_count=target.partition_count,
        identity=new_identity(mirror.target),
        batch_bytes=batch_bytes(mirror.target, target.name),
        compression=mirror.compression,
        timeout_s=mirror.target.timeout_s,
        starts=starts,
    )
    copied = {row[0]: row[1] + row[2] for row in copy_rows(rows, ["offset"], place).collect()}
    ends = {partition: start + copied.get(partition, 0) for partition, start in starts.items()}
    found = look_up_state(mirror.target, target.name)
    for partition, end in ends.items():
        if found.spans[partition].latest != end:
            lease.check()
            why = f"{target.name}-{partition} ends at {found.spans[partition].latest}, not at {end}"
            raise CopyDiffers(f"{why}: another client writes to it; delete it and mirror it again")
    # Compaction may remove records as soon as they are written.
    if verify and "compact" not in found.settings.get("cleanup.policy", ""):
        spans = {number: LogSpan(start, ends[number]) for number, start in starts.items()}
        comparison = compare_records(
            rows, copied_rows(spark, mirror, target.name, spans), order=["offset"]
        )
        hint = f"delete topic {target.name} in the target cluster and mirror it again"
        require_equal(comparison, f"topic {source.name}", f"the mirror {target.name}", hint)
    return ends


def copied_rows(
    spark: SparkSession, mirror: Mirror, target: str, spans: Mapping[int, LogSpan]
) -> DataFrame:
    """Return records of the target, with their positions in these ranges."""
    from pyspark.sql import functions as sf

    filled = {number: span for number, span in spans.items() if span.latest > span.earliest}
    firsts = {number: span.earliest for number, span in spans.items()}
    rows = topic_records(spark, mirror.target, target, filled or spans)
    return rows.withColumn("position", sf.col("offset") - value_of_partition(firsts))


# ---- the target topic -------------------------------------------------------------------------------------------


def prepare_target(mirror: Mirror, source: TopicState, found: TopicState | None) -> TopicState:
    """Create or update the target topic, so that its partitions and settings are those of the source."""
    name = mirror.prefix + source.name
    wanted = mirrored_settings(source.settings)
    if found is None:
        create_topic(mirror.target, name, source.partition_count, wanted)
    else:
        if found.partition_count < source.partition_count:
            new = NewPartitions(name=name, count=source.partition_count)
            raise_if_failed(Admin(mirror.target).create_partitions([new]))
        if found.settings != wanted:
            change_settings(mirror.target, name, wanted)
    return await_partitions(mirror.target, name, source.partition_count)


def await_partitions(cluster: Cluster, name: str, count: int) -> TopicState:
    """Return a topic as soon as it has its new partitions: a broker may learn of them later than the controller."""
    deadline = Deadline(cluster.timeout_s)
    while not deadline.passed:
        found = find_state(cluster, name)
        if found is not None and found.partition_count >= count:
            return found
        pause(PARTITIONS_PAUSE_S)
    raise JobRefused(f"topic {name} does not have {count} partitions yet; run the command again")


def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int,
    settings: Mapping[str, str],
    *,
    validate_only: bool = False,
) -> None:
    new = NewTopic(name=name, partitions=partitions, replication_factor=-1, configs=settings)
    raise_if_failed(Admin(cluster).create_topics([new], validate_only=validate_only))


def raise_if_failed(outcomes: Sequence[TopicOutcome]) -> None:
    for outcome in outcomes:
        # Another run may have created it.
        if outcome.error and outcome.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise outcome.error
