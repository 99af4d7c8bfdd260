"""Restore an archived topic: its records with their keys, values, headers, timestamps, partitions and order.

Offsets begin at 0 in the restored topic and have no gaps, whatever they were in the archived one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.jobs.archive import archived_rows
from barnabas.jobs.archive_directory import ArchiveDirectory, check_file, raise_if_damaged
from barnabas.jobs.copy_topic import (
    CopiedPartition,
    NewCopy,
    SourceRows,
    all_partitions,
    copy_to_topic,
    create_target,
    find_target,
    set_final_settings,
)
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.manifest import NAME, ArchivedFile, Manifest, has_gaps
from barnabas.jobs.parquet_files import merge_files
from barnabas.jobs.session import OpenSpark, default_parallelism
from barnabas.jobs.verification import value_of_partition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class RestoreRun(NamedTuple):
    """Result of a run. `existed` is whether the topic existed before."""

    manifest: Manifest
    existed: bool
    partitions: list[CopiedPartition]


def read_archive(archive: ArchiveDirectory) -> Manifest:
    """Return the manifest of an archive. Raises JobRefused if there is none, or if its first run is not complete."""
    manifest = archive.manifest()
    if manifest is None:
        raise JobRefused(f"{archive.path} has no archive ({NAME}); name another directory")
    if not manifest.partitions:
        why = f"the first run of the archive {archive.path} is not complete"
        command = f"barnabas topics archive {manifest.topic} --to {archive.path.parent}"
        raise JobRefused(f"{why}; run `{command}` again")
    return manifest


def run_restore(
    open_spark: OpenSpark,
    cluster: Cluster,
    archive: ArchiveDirectory,
    new: NewCopy,
    *,
    verify: bool = True,
    dry_run: bool = False,
) -> RestoreRun:
    """Write the records of an archive to a topic. Checks all files before it writes.

    Raises ApiError, JobRefused, DamagedArchive, OtherWriter and CopyDiffers.
    """
    manifest = read_archive(archive)
    found = find_target(cluster, new)
    if found is None:
        create_target(cluster, new, validate_only=True)
    if dry_run:
        return RestoreRun(manifest, found is not None, all_partitions(new.partition_count, []))
    with open_spark(manifest.records) as spark:
        check_files(spark, archive, manifest.files)
        source = archive_source(spark, archive, manifest)
        copied = copy_to_topic(spark, cluster, source, new, verify=verify)
    set_final_settings(cluster, new, found)
    return RestoreRun(manifest, found is not None, copied)


def check_files(
    spark: SparkSession, archive: ArchiveDirectory, files: tuple[ArchivedFile, ...]
) -> None:
    """Compare all files with the manifest, in tasks. Raises DamagedArchive."""
    if not files:
        return
    root = str(archive.path)

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            numbers = batch.column("id").to_pylist()
            problems = [check_file(root, files[number]) for number in numbers]
            yield pa.RecordBatch.from_pydict({"problem": pa.array(problems, pa.string())})

    slices = min(len(files), 4 * default_parallelism(spark))
    checks = spark.range(0, len(files), 1, slices).mapInArrow(check, "problem string")
    raise_if_damaged([problem for (problem,) in checks.collect()])


def archive_source(
    spark: SparkSession, archive: ArchiveDirectory, manifest: Manifest
) -> SourceRows:
    """Return the records of an archive. If no offsets are missing, the position follows from the offset."""
    root = str(archive.path)
    files: dict[int, list[ArchivedFile]] = {}
    for file in manifest.files:  # ordered by partition and offset
        files.setdefault(file.partition, []).append(file)

    def read(partition: int) -> Iterator[pa.RecordBatch]:
        return merge_files(root, files.get(partition, []))

    name = f"the archive {archive.path}"
    rows = archived_rows(spark, archive.path, [file.path for file in manifest.files])
    if has_gaps(manifest.files):
        return SourceRows(name, rows, ["offset"], read)
    return SourceRows(name, with_offset_positions(rows, manifest), ["position"], read)


def with_offset_positions(rows: DataFrame, manifest: Manifest) -> DataFrame:
    """Add the position of each record: the distance to the first offset of its partition."""
    from pyspark.sql import functions as sf

    firsts = dict.fromkeys(range(manifest.partition_count), 0)
    for file in reversed(manifest.files):  # ordered by partition and offset
        firsts[file.partition] = file.first_offset
    return rows.withColumn("position", sf.col("offset") - value_of_partition(firsts))
