"""Parquet files of an archive: written by the tasks that read the topic, and read by the tasks that restore it.

Records go directly from Fetch responses to files, and from files to Produce requests, as Arrow columns. Rows in Java
would take several times as long.

A read task gets the records of one range in offset order, and so does each of its files. Timestamps may go back, so the
offsets of two days may overlap. `merge_files` merges such files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from barnabas.jobs.archive_directory import checksum, report_disk_errors
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.manifest import ArchivedFile, archived_path, staged_path
from barnabas.spark.arrow_records import arrow_schema
from barnabas.spark.fetching import read_range
from barnabas.spark.ranges import FetchSettings, OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("key", "value", "headers", "timestamp", "timestampType", "offset")
"""The columns of an archived file."""
SCHEMA = arrow_schema(COLUMNS)
FILE_ROW = (
    "path string, partition int, first_offset bigint, last_offset bigint, records bigint, "
    "bytes bigint, crc32c bigint"
)
FILE_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("partition", pa.int32()),
        *((name, pa.int64()) for name in ("first_offset", "last_offset", "records", "bytes", "crc32c")),
    ]
)  # fmt: skip
DAY_US = 86_400_000_000
ROW_GROUP_BYTES = 32 << 20
"""Rows of a file are collected up to this size and then written as a row group."""
OPEN_FILES_MAX = 32
"""If the timestamps of a range are of more days, files are closed and others are begun."""
MERGE_ROWS = 16_384


# ---- write ------------------------------------------------------------------------------------------------------


def write_files(
    spark: SparkSession, ranges: Sequence[OffsetRange], settings: FetchSettings, staging: str
) -> DataFrame:
    """Write each range to files below `staging`, in one task per range. Returns one row of FILE_ROW per file."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with report_disk_errors(Path(staging).parent):
                    found = write_range(ranges[number], settings, staging)
                rows = [{name: getattr(file, name) for name in FILE_SCHEMA.names} for file in found]
                yield pa.RecordBatch.from_pylist(rows, schema=FILE_SCHEMA)

    return spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(write, FILE_ROW)


def write_range(wanted: OffsetRange, settings: FetchSettings, staging: str) -> list[ArchivedFile]:
    """Write the records of a range by UTC day. Returns the files."""
    open_files: dict[int, DayFile] = {}
    done: list[ArchivedFile] = []
    for batch in read_range(wanted, settings):
        for day, rows in split_by_day(batch):
            file = open_files.pop(day, None)
            if file is None and len(open_files) == OPEN_FILES_MAX:
                oldest = next(iter(open_files))
                done.append(open_files.pop(oldest).close())
            file = file or DayFile(staging, day, wanted.partition)
            open_files[day] = file
            file.add(rows)
    return [*done, *(file.close() for file in open_files.values())]


def split_by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each day, in order. Days are counted from 1970."""
    days = np.asarray(batch.column("timestamp").cast(pa.int64())) // DAY_US
    found = np.unique(days)
    if len(found) == 1:
        yield int(found[0]), batch
        return
    for day in found:
        yield int(day), batch.filter(pa.array(days == day))


class DayFile:
    """A Parquet file with records of one partition and one day."""

    def __init__(self, staging: str, day: int, partition: int) -> None:
        self.staging = Path(staging)
        self.day = day
        self.partition = partition
        self.path = self.staging / f"{uuid4().hex}.part"
        if not self.staging.is_dir():
            # The driver has created it.
            why = f"{staging} does not exist on {gethostname()}"
            raise JobRefused(f"{why}; use a directory that all workers share, at the same path")
        self.writer = pq.ParquetWriter(self.path, SCHEMA, compression="zstd")
        self.pending: list[pa.RecordBatch] = []
        self.pending_bytes = 0
        self.records = 0
        self.first_offset = -1
        self.last_offset = -1

    def add(self, rows: pa.RecordBatch) -> None:
        if self.records == 0:
            self.first_offset = rows.column("offset")[0].as_py()
        self.last_offset = rows.column("offset")[-1].as_py()
        self.records += rows.num_rows
        self.pending.append(rows.select(list(COLUMNS)))
        self.pending_bytes += rows.nbytes
        if self.pending_bytes >= ROW_GROUP_BYTES:
            self.write()

    def write(self) -> None:
        table = pa.Table.from_batches(self.pending, schema=SCHEMA)
        self.writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.pending, self.pending_bytes = [], 0

    def close(self) -> ArchivedFile:
        """Write the rest through to the disk, and give the file its name.

        The name is new for each attempt of a task, so an attempt that still runs cannot change the file of the next.
        """
        if self.pending:
            self.write()
        self.writer.close()
        path = archived_path(day_text(self.day), self.partition, self.first_offset)
        name = staged_path(path, self.path.stem)
        target = self.staging / name
        # Not with `parents`: a task that outlives its run must not create the staging directory again.
        target.parent.parent.mkdir(exist_ok=True)
        target.parent.mkdir(exist_ok=True)
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.replace(target)
        size, crc = checksum(str(target))
        return ArchivedFile(
            path=name,
            partition=self.partition,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            records=self.records,
            bytes=size,
            crc32c=crc,
        )


def day_text(day: int) -> str:
    """
    >>> day_text(0), day_text(-1), day_text(20_774)
    ('1970-01-01', '1969-12-31', '2026-11-17')
    """
    return str(np.datetime64(day, "D"))


# ---- read -------------------------------------------------------------------------------------------------------


def merge_files(root: str, files: Sequence[ArchivedFile]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files of one partition by offset. Reads only a few rows of each file at a time.

    `files` are ordered by first offset. A file is opened when its first offset is due.
    """
    waiting = list(reversed(files))
    active: list[OffsetReader] = []
    while waiting or active:
        while waiting and (
            not active or waiting[-1].first_offset <= min(each.last_offset for each in active)
        ):
            active.append(OffsetReader(str(Path(root) / waiting.pop().path)))
        # All files have their rows up to here: the smallest of the last offsets that were read.
        bound = min(each.last_offset for each in active)
        parts = [rows for each in active if (rows := each.take(bound)).num_rows]
        if len(parts) == 1:
            yield parts[0]
        else:
            table = pa.Table.from_batches(parts).sort_by("offset").combine_chunks()
            yield from table.to_batches()
        for each in active:
            if each.rows.num_rows == 0:
                each.advance()
        active = [each for each in active if each.rows.num_rows]


class OffsetReader:
    """Reads a file a few rows at a time. `rows` are those that were read but not taken."""

    def __init__(self, path: str) -> None:
        self.file = pq.ParquetFile(path, memory_map=True)
        self.batches = self.file.iter_batches(MERGE_ROWS)
        self.rows: pa.RecordBatch = next(self.batches)

    @property
    def last_offset(self) -> int:
        last: int = self.rows.column("offset")[-1].as_py()
        return last

    def advance(self) -> None:
        """Read the next rows. At the end of the file there are none."""
        found = next(self.batches, None)
        if found is None:
            self.file.close()
        else:
            self.rows = found

    def take(self, bound: int) -> pa.RecordBatch:
        """Return the rows up to an offset, and remove them."""
        offsets: Any = self.rows.column("offset").to_numpy()
        count = int(np.searchsorted(offsets, bound, side="right"))
        taken, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        return taken
