"""Copy a topic to a new one with another number of partitions (see placement.py for where records go)."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.errors import ConfigError
from barnabas.jobs.copy_topic import (
    CopiedPartition,
    NewCopy,
    SourceRows,
    all_partitions,
    copy_to_topic,
    create_target,
    find_target,
)
from barnabas.jobs.placement import ORDER, place_records
from barnabas.jobs.saved_spans import check_available, delete_spans, load_spans, save_spans
from barnabas.jobs.session import OpenSpark
from barnabas.jobs.topic_state import TopicState, count_offsets, topic_records
from barnabas.spark.planning import LogSpan


class ResizeRun(NamedTuple):
    """Result of a run. `spans` are the copied offsets of the source; `existed` is whether the new topic existed."""

    spans: dict[int, LogSpan]
    existed: bool
    partitions: list[CopiedPartition]


def run_resize(
    open_spark: OpenSpark,
    cluster: Cluster,
    servers: str,
    source: TopicState,
    new: NewCopy,
    *,
    verify: bool = True,
    dry_run: bool = False,
) -> ResizeRun:
    """Copy the records of `source` to a topic with another number of partitions.

    Raises ApiError, JobRefused, OtherWriter and CopyDiffers.
    """
    if source.name == new.name:
        raise ConfigError("--to", f"{new.name} is the topic itself; choose a new name")
    found = find_target(cluster, new)
    saved = None
    if found is None:
        create_target(cluster, new, validate_only=True)
    elif not found.is_empty:
        saved = load_spans(cluster, new.name, source)
    spans = saved or dict(enumerate(source.spans))
    check_available(source, spans, new.name)
    if dry_run:
        return ResizeRun(spans, found is not None, all_partitions(new.partition_count, []))
    if saved is None:
        save_spans(cluster, new.name, source)
    with open_spark(count_offsets(spans)) as spark:
        records = topic_records(spark, servers, source.name, spans)
        rows = place_records(records, new.partition_count)
        copied = copy_to_topic(
            spark,
            cluster,
            servers,
            SourceRows(f"topic {source.name}", rows, ORDER),
            new,
            verify=verify,
        )
    delete_spans(cluster, new.name)
    return ResizeRun(spans, found is not None, copied)
