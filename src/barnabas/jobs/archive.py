"""Archive a topic: its records as Parquet files by date and partition (see manifest.py).

    topic ──read──► rows of each partition ──by date──► staging ──verify──► in place ──► manifest

The job can be killed at any moment and started again: only the manifest, which is replaced last, makes files visible.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.jobs.archive_directory import (
    ArchiveDirectory,
    FileFacts,
    describe_file,
    staged_files,
)
from barnabas.jobs.errors import CopyDiffers
from barnabas.jobs.manifest import (
    ArchivedFile,
    Manifest,
    empty_manifest,
    extend_manifest,
    plan_archive,
)
from barnabas.jobs.session import OpenSpark, session_setting
from barnabas.jobs.topic_state import TopicState, look_up_state, topic_records
from barnabas.jobs.verification import compare_records, require_equal
from barnabas.spark.planning import LogSpan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("key", "value", "headers", "timestamp", "timestampType", "offset")
"""The columns of an archived file."""
SCHEMA = (
    "key binary, value binary, headers array<struct<key string, value binary>>, timestamp timestamp, "
    "timestampType int, offset bigint, date date, partition int"
)
RECORDS_PER_FILE = 1_000_000
"""A longer range of offsets is read by several tasks, each of which writes its own files."""
DAY_US = 86_400_000_000
TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"


class ArchiveRun(NamedTuple):
    """Result of a run. `spans` are the offsets to add, `files` those that the run added."""

    state: TopicState
    manifest: Manifest | None
    spans: dict[int, LogSpan]
    files: list[ArchivedFile]
    is_verified: bool


def archive_rows(records: DataFrame) -> DataFrame:
    """Return the rows of the archive, each task's in the order of its files.

    Spark writes the rows of a task file by file. It would add its own sort, which is not stable, if the rows were not
    sorted by date and partition.
    """
    from pyspark.sql import functions as sf

    day = sf.expr(
        f"date_from_unix_date(cast((unix_micros(timestamp) - pmod(unix_micros(timestamp), {DAY_US})) "
        f"div {DAY_US} as int))"
    )
    return records.select(day.alias("date"), "partition", *COLUMNS).sortWithinPartitions(
        "date", "partition", "offset"
    )


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
    servers: str,
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
        archive.remove_leftovers(manifest)
        if not spans:
            extended = extend_manifest(manifest, state, ())
            archive.write_manifest(extended)
            return ArchiveRun(state, extended, spans, [], False)
        with open_spark() as spark:
            records = topic_records(spark, servers, topic, spans, records_per_task=RECORDS_PER_FILE)
            files = add_files(spark, records, archive, manifest, state, verify=verify)
        return ArchiveRun(state, extend_manifest(manifest, state, files), spans, files, verify)


def add_files(
    spark: SparkSession,
    records: DataFrame,
    archive: ArchiveDirectory,
    manifest: Manifest | None,
    state: TopicState,
    *,
    verify: bool,
) -> list[ArchivedFile]:
    """Add records to the archive, all or none of them. Returns the new files."""
    staging = archive.new_staging()
    try:
        facts = stage_files(spark, records, staging)
        if verify:
            verify_staged(spark, records, staging, list(facts), state.name)
        if manifest is None:
            archive.write_manifest(empty_manifest(state))
        files = archive.publish(staging, facts)
        archive.write_manifest(extend_manifest(manifest, state, files))
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return files


def stage_files(spark: SparkSession, records: DataFrame, staging: Path) -> dict[str, FileFacts]:
    """Write the records into the staging directory. Raises CopyDiffers if this machine does not see all files."""
    written = write_rows(archive_rows(records), staging)
    facts = describe_files(spark, staging)
    found = sum(each.records for each in facts.values())
    if found != written:
        why = f"Spark wrote {written:,} records, but {staging} has {found:,}"
        hint = "with a remote master, use a directory that all workers share, at the same path"
        raise CopyDiffers(f"{why}; {hint}")
    return facts


def write_rows(rows: DataFrame, staging: Path) -> int:
    """Write rows as Parquet files by date and partition. Returns the number of rows."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    observation = Observation()
    observed = rows.observe(observation, sf.count(sf.lit(1)).alias("records"))
    # The default, INT96, is an old format that other readers convert differently.
    with session_setting(rows.sparkSession, TIMESTAMP_TYPE, "TIMESTAMP_MICROS"):
        observed.write.partitionBy("date", "partition").parquet(spark_path(staging))
    return int(observation.get["records"])


def describe_files(spark: SparkSession, staging: Path) -> dict[str, FileFacts]:
    """Return the facts of all staged files. The files are read by tasks."""
    names = staged_files(staging)
    if not names:
        return {}
    paths = [str(staging / name) for name in names]
    slices = min(len(paths), 4 * spark.sparkContext.defaultParallelism)
    facts = spark.sparkContext.parallelize(paths, slices).map(describe_file).collect()
    return dict(zip(names, facts, strict=True))


def verify_staged(
    spark: SparkSession, records: DataFrame, staging: Path, files: list[str], topic: str
) -> None:
    """Compare the staged files with the topic. The position of a record is its offset."""
    fields = ["partition", "offset as position", "key", "value", "headers", "timestamp"]
    comparison = compare_records(
        records.selectExpr(*fields), archived_rows(spark, staging, files).selectExpr(*fields)
    )
    hint = "run it again; if the topic is compacted, records may have been removed meanwhile"
    require_equal(comparison, f"topic {topic}", "the archive", hint)


def spark_path(path: Path) -> str:
    """Return a path for Spark. It does not decode percent signs, so this is no URL."""
    return f"file:{path}"


def escape_glob(path: str) -> str:
    """Escape characters that Spark treats as a pattern when it reads files."""
    return re.sub(r"([][{}*?\\])", r"\\\1", path)
