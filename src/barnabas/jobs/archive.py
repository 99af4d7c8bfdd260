"""Archive a topic: its records as Parquet files by date and partition (see manifest.py).

    topic ──► one task per range of offsets ──► files by date in staging ──verify──► in place ──► manifest

The job can be killed at any moment and started again: only the manifest, which is replaced last, makes files visible.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.jobs.archive_directory import ArchiveDirectory, remove_staging, report_disk_errors
from barnabas.jobs.manifest import (
    ArchivedFile,
    Manifest,
    begun_manifest,
    extend_manifest,
    file_order,
    plan_archive,
)
from barnabas.jobs.parquet_files import COLUMNS, write_files
from barnabas.jobs.session import OpenSpark
from barnabas.jobs.topic_state import TopicState, count_offsets, look_up_state, topic_records
from barnabas.jobs.verification import compare_records, require_equal
from barnabas.model import ZERO_ID
from barnabas.spark.client_settings import cluster_settings
from barnabas.spark.planning import LogSpan, split_ranges
from barnabas.spark.ranges import OffsetRange, parse_fetch_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "key binary, value binary, headers array<struct<key string, value binary>>, timestamp timestamp, "
    "timestampType int, offset bigint, date date, partition int"
)
RECORDS_PER_FILE = 1_000_000
"""A longer range of offsets is read by several tasks, each of which writes its own files."""


class ArchiveRun(NamedTuple):
    """Result of a run. `spans` are the offsets to add, `files` those that the run added."""

    state: TopicState
    manifest: Manifest | None
    spans: dict[int, LogSpan]
    files: list[ArchivedFile]
    is_verified: bool


def archived_rows(
    spark: SparkSession, root: Path, files: list[str], columns: tuple[str, ...] = COLUMNS
) -> DataFrame:
    """Return the rows of these files, with their partition."""
    if not files:
        return spark.createDataFrame([], SCHEMA).select("partition", *columns)
    reader = spark.read.schema(SCHEMA).option("basePath", spark_path(root))
    paths = [escape_glob(spark_path(root / path)) for path in files]
    return reader.parquet(*paths).select("partition", *columns)


def run_archive(
    open_spark: OpenSpark,
    cluster: Cluster,
    topic: str,
    archive: ArchiveDirectory,
    *,
    verify: bool = True,
    dry_run: bool = False,
) -> ArchiveRun:
    """Add all new records of a topic to its archive. Raises ApiError, JobRefused and CopyDiffers."""
    state = look_up_state(cluster, topic)
    if dry_run:
        manifest = archive.manifest()
        return ArchiveRun(state, manifest, plan_archive(state, manifest), [], False)
    with archive.locked():
        manifest = archive.manifest()
        spans = plan_archive(state, manifest)
        with report_disk_errors(archive.path):
            archive.remove_leftovers(manifest)
        if not spans:
            extended = extend_manifest(manifest, state, ())
            with report_disk_errors(archive.path):
                archive.write_manifest(extended)
            return ArchiveRun(state, extended, spans, [], False)
        with open_spark(count_offsets(spans)) as spark:
            files = add_files(spark, cluster, archive, manifest, state, spans, verify=verify)
        return ArchiveRun(state, extend_manifest(manifest, state, files), spans, files, verify)


def add_files(
    spark: SparkSession,
    cluster: Cluster,
    archive: ArchiveDirectory,
    manifest: Manifest | None,
    state: TopicState,
    spans: Mapping[int, LogSpan],
    *,
    verify: bool,
) -> list[ArchivedFile]:
    """Add the records of these offsets to the archive, all or none of them. Returns the new files."""
    with report_disk_errors(archive.path):
        staging = archive.new_staging()
    try:
        client = {**cluster_settings(cluster), "isolation.level": "read_committed"}
        settings = parse_fetch_settings(client, COLUMNS)
        rows = write_files(spark, plan_tasks(state, spans), settings, str(staging)).collect()
        files = [ArchivedFile(**row.asDict()) for row in rows]
        if verify:
            verify_staged(spark, cluster, state, spans, staging, files)
        with report_disk_errors(archive.path):
            if manifest is None:
                archive.write_manifest(begun_manifest(state))
            files = archive.publish(staging, files)
            archive.write_manifest(extend_manifest(manifest, state, files))
    finally:
        remove_staging(staging)
    return sorted(files, key=file_order)


def plan_tasks(state: TopicState, spans: Mapping[int, LogSpan]) -> list[OffsetRange]:
    """Return the ranges of offsets that one task each reads."""
    topic_id = None if state.id == ZERO_ID else state.id
    ranges = [
        OffsetRange(topic=state.name, partition=number, start=start, end=end, topic_id=topic_id)
        for number, (start, end) in sorted(spans.items())
    ]
    return split_ranges(ranges, partitions_min=None, records_max=RECORDS_PER_FILE)


def verify_staged(
    spark: SparkSession,
    cluster: Cluster,
    state: TopicState,
    spans: Mapping[int, LogSpan],
    staging: Path,
    files: list[ArchivedFile],
) -> None:
    """Compare the staged files with the topic. The position of a record is its offset."""
    fields = ["partition", "offset as position", "key", "value", "headers", "timestamp"]
    records = topic_records(spark, cluster, state.name, spans, records_per_task=RECORDS_PER_FILE)
    staged = archived_rows(spark, staging, [file.path for file in files])
    comparison = compare_records(records.selectExpr(*fields), staged.selectExpr(*fields))
    hint = "run it again; if the topic is compacted, records may have been removed meanwhile"
    require_equal(comparison, f"topic {state.name}", "the archive", hint)


def spark_path(path: Path) -> str:
    """Return a path for Spark. It does not decode percent signs, so this is no URL."""
    return f"file:{path}"


def escape_glob(path: str) -> str:
    """Escape characters that Spark treats as a pattern when it reads files."""
    return re.sub(r"([][{}*?\\])", r"\\\1", path)
