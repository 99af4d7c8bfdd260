"""The topic that a job creates: its settings during and after the copy, the copy itself, and its verification.

During the copy, the topic keeps every record and every timestamp, whatever its final settings are: no retention, no
compaction, CreateTime. Otherwise old records could be deleted before the copy is complete, and a rerun could not tell
how many records the topic has. The final settings are set at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from barnabas.batch.compression import Compression
from barnabas.batch.header import HEADER_SIZE
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigChange, ConfigResource
from barnabas.jobs.errors import CopyDiffers, JobRefused
from barnabas.jobs.ordered_copy import CopyTarget, copy_partitions, copy_rows, new_identity
from barnabas.jobs.topic_state import (
    TopicState,
    find_state,
    look_up_state,
    topic_records,
    topic_settings,
)
from barnabas.jobs.verification import (
    ROW,
    Comparison,
    compare_records,
    require_equal,
    value_of_partition,
)
from barnabas.spark.planning import LogSpan
from barnabas.spark.writer import BATCH_BYTES
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

COPY_SETTINGS = {
    "cleanup.policy": "delete",
    "max.message.bytes": str(64 << 20),
    "message.timestamp.type": "CreateTime",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
"""Settings during a copy. The copy may have larger batches than the source, because it is compressed differently."""
TIMESTAMP_LIMITS = frozenset({
    "message.timestamp.difference.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
})  # fmt: skip


class NewCopy(Struct, frozen=True, kw_only=True):
    """The topic that a job shall create, with its final settings."""

    name: str
    partition_count: int
    settings: Mapping[str, str]
    replication_factor: int = -1
    compression: Compression = Compression.NONE
    chosen: Mapping[str, str] = {}
    """Those of the settings that the user named. An existing topic must have them."""


class SourceRows(NamedTuple):
    """The records to copy: `rows` has the target partition, the columns `order`, and the fields of a record.

    `read`, if there is one, reads the records of a target partition in order, faster than Spark's rows.
    `starts` has the offset of the first copied record in each target partition, if it is not 0.
    """

    name: str
    rows: DataFrame
    order: Sequence[str]
    read: Callable[[int], Iterator[pa.RecordBatch]] | None = None
    starts: Mapping[int, int] = {}


class CopiedPartition(NamedTuple):
    """Result for one partition: records that it had from an earlier run, and records that this run wrote."""

    partition: int
    skipped: int
    written: int


# ---- pure -------------------------------------------------------------------------------------------------------


def settings_during_copy(final: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in final.items() if name not in TIMESTAMP_LIMITS}
    return {**kept, **COPY_SETTINGS}


def has_copy_settings(found: TopicState) -> bool:
    """Return whether a job created the topic, and has not completed it."""
    return COPY_SETTINGS.items() <= found.settings.items()


def setting_changes(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[ConfigChange]:
    """Return the changes of a topic that has the settings `found`, so that it has those of `wanted`."""
    changed = {name: value for name, value in wanted.items() if found.get(name) != value}
    return [
        *(ConfigChange(name, value) for name, value in sorted(changed.items())),
        *(
            ConfigChange(name, None, ConfigOperation.DELETE)
            for name in sorted(found.keys() - wanted.keys())
        ),
    ]


def check_partition_count(found: TopicState, new: NewCopy) -> None:
    """Raise JobRefused if an existing topic has another number of partitions."""
    if found.partition_count != new.partition_count:
        why = f"topic {new.name} has {found.partition_count} partitions, but the copy needs"
        hint = f"delete topic {new.name}, or choose another name"
        raise JobRefused(f"{why} {new.partition_count}; {hint}")


def check_chosen(found: TopicState, new: NewCopy) -> None:
    """Raise JobRefused if an existing topic does not have the settings that the user named."""
    hint = f"delete topic {new.name}, or choose another name"
    differing = [
        f"{name}={value}"
        for name, value in sorted(new.chosen.items())
        if found.settings.get(name) != value
    ]
    if differing and not has_copy_settings(found):
        why = f"topic {new.name} exists, and does not have {', '.join(differing)}"
        raise JobRefused(f"{why}; set this with `barnabas configs alter`, or {hint}")


def check_target(found: TopicState, new: NewCopy, starts: Mapping[int, int]) -> None:
    """Raise JobRefused if the job cannot write to an existing topic from these offsets on (default: 0)."""
    check_partition_count(found, new)
    hint = f"delete topic {new.name}, or choose another name"
    if found.settings.get("message.timestamp.type") == "LogAppendTime":
        why = (
            f"topic {new.name} has message.timestamp.type=LogAppendTime, which replaces timestamps"
        )
        raise JobRefused(f"{why}; {hint}")
    check_chosen(found, new)
    for number, span in enumerate(found.spans):
        if span.latest < starts.get(number, 0):
            why = f"{new.name}-{number} ends at offset {span.latest}: it lost copied records"
            raise JobRefused(f"{why}; {hint}")
        if span.earliest > starts.get(number, 0):
            why = f"{new.name}-{number} begins at offset {span.earliest}: records were deleted from it"
            raise JobRefused(f"{why}; {hint}")


def require_prefix(comparison: Comparison, source: str, topic: str) -> None:
    """Raise JobRefused if the records of an existing topic are not the first ones of the copy."""
    if comparison.difference is not None:
        why = f"topic {topic} has records that are not the beginning of {source}: {comparison.difference}"
        raise JobRefused(f"{why}; delete topic {topic}, or choose another name")


def all_partitions(count: int, copied: Sequence[CopiedPartition]) -> list[CopiedPartition]:
    """Return the results of all partitions. Partitions without rows have no task with rows, and so no result."""
    found = {each.partition: each for each in copied}
    return [found.get(number, CopiedPartition(number, 0, 0)) for number in range(count)]


# ---- topic ------------------------------------------------------------------------------------------------------


def find_target(
    cluster: Cluster, new: NewCopy, starts: Mapping[int, int] | None = None
) -> TopicState | None:
    """Return the state of the target, or None if it does not exist. Raises JobRefused if it cannot be used."""
    found = find_state(cluster, new.name)
    if found is not None:
        check_target(found, new, starts or {})
    return found


def create_target(cluster: Cluster, new: NewCopy, *, validate_only: bool = False) -> None:
    """Create the topic with the settings during a copy. Raises ApiError."""
    topic = NewTopic(
        name=new.name,
        partitions=new.partition_count,
        replication_factor=new.replication_factor,
        configs=new.settings if validate_only else settings_during_copy(new.settings),
    )
    (outcome,) = Admin(cluster).create_topics([topic], validate_only=validate_only)
    if outcome.error is not None:
        raise outcome.error


def set_final_settings(cluster: Cluster, new: NewCopy, found: TopicState | None) -> None:
    """Set the final settings. A topic that the job found with settings of its own (`found`) keeps them."""
    if found is None or has_copy_settings(found):
        change_settings(cluster, new.name, new.settings)


def change_settings(cluster: Cluster, topic: str, wanted: Mapping[str, str]) -> None:
    """Change the settings of a topic to these. Raises ApiError."""
    changes = setting_changes(topic_settings(cluster, topic), wanted)
    if not changes:
        return
    resource = ConfigResource(ResourceType.TOPIC, topic)
    results = ConfigAdmin(cluster).incremental_alter_configs({resource: changes})
    if (error := results[resource]) is not None:
        raise error


# ---- copy -------------------------------------------------------------------------------------------------------


def copy_to_topic(
    spark: SparkSession,
    cluster: Cluster,
    source: SourceRows,
    new: NewCopy,
    *,
    verify: bool,
) -> list[CopiedPartition]:
    """Copy rows to the topic, which is created if it does not exist, and continue a copy that was killed.

    Raises ApiError, JobRefused, OtherWriter and CopyDiffers.
    """
    found = find_target(cluster, new, source.starts)
    if found is None:
        create_target(cluster, new)
    else:
        limits = {
            number: span.latest - source.starts.get(number, 0)
            for number, span in enumerate(found.spans)
        }
        if any(limits.values()):
            comparison = compare_records(
                source.rows,
                target_rows(spark, cluster, found, source.starts),
                order=source.order,
                limits=limits,
            )
            require_prefix(comparison, source.name, new.name)
    target = CopyTarget(
        servers=cluster.servers,
        security=cluster.security,
        topic=new.name,
        partition_count=new.partition_count,
        identity=new_identity(cluster),
        compression=new.compression,
        batch_bytes=batch_bytes(cluster, new.name),
        timeout_s=cluster.timeout_s,
        starts=source.starts,
    )
    if source.read is None:
        results = copy_rows(source.rows, source.order, target)
    else:
        results = copy_partitions(spark, source.read, target)
    copied = [CopiedPartition(*row) for row in results.collect()]
    state = look_up_state(cluster, new.name)
    check_end(state, copied, source.name, source.starts)
    if verify:
        comparison = compare_records(
            source.rows,
            target_rows(spark, cluster, state, source.starts),
            order=source.order,
        )
        hint = f"delete topic {new.name} and run the command again"
        require_equal(comparison, source.name, f"topic {new.name}", hint)
    return all_partitions(new.partition_count, copied)


def target_rows(
    spark: SparkSession, cluster: Cluster, state: TopicState, starts: Mapping[int, int]
) -> DataFrame:
    """Return the records of a copy, with their positions after these offsets (default: 0)."""
    from pyspark.sql import functions as sf

    firsts = {number: starts.get(number, 0) for number in range(state.partition_count)}
    spans = {number: LogSpan(first, state.spans[number].latest) for number, first in firsts.items()}
    rows = topic_records(spark, cluster, state.name, spans)
    return rows.withColumn("position", sf.col("offset") - value_of_partition(firsts)).select(*ROW)


def batch_bytes(cluster: Cluster, topic: str) -> int:
    """Return the maximum size of a batch. An existing topic may allow only small ones."""
    entries = Admin(cluster).describe_topic_configs([topic])[topic]
    allowed = next((each.value for each in entries if each.name == "max.message.bytes"), None)
    return BATCH_BYTES if allowed is None else min(BATCH_BYTES, int(allowed) - HEADER_SIZE)


def check_end(
    state: TopicState, copied: Sequence[CopiedPartition], source: str, starts: Mapping[int, int]
) -> None:
    """Raise CopyDiffers if a partition has another number of records than the copy."""
    for partition, skipped, written in copied:
        span, start = state.spans[partition], starts.get(partition, 0)
        if span.earliest > start or span.latest != start + skipped + written:
            why = f"{state.name}-{partition} has the offsets {span.earliest} to {span.latest - 1}"
            count = f"{skipped + written} records of {source} should begin at {start}"
            raise CopyDiffers(f"{why}, but {count}; delete the topic and run the command again")
