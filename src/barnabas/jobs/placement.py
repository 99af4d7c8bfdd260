"""Placement of records in a topic with another number of partitions. Pure; vectorised per Arrow batch.

A record with a key goes to the partition that Kafka's partitioner chooses for the key. Records without a key are
dealt out by their offsets, so that a rerun places them in the same way.

The order within a target partition is that of the *log time*: the highest timestamp of a source partition up to the
record. It never falls within a source partition. So records of one source partition keep their order, and records of
different ones are merged by time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from barnabas.spark.record_batches import partitions_of_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = ("log_time", "source_partition", "offset")
"""Columns that order the records of a target partition."""
PLACE = "target int, log_time bigint"
PLACE_TYPE = pa.struct([("target", pa.int32()), ("log_time", pa.int64())])
BEFORE_ALL = np.iinfo(np.int64).min

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def target_partitions(keys: pa.Array, sources: Numbers, offsets: Numbers, count: int) -> Numbers:
    """Return the target partition of each record."""
    placed = partitions_of_keys(keys, count)
    return np.where(placed >= 0, placed, (sources + offsets) % count)


class LogTimes:
    """Running maximum of the timestamps of each source partition. Batches must arrive in offset order."""

    def __init__(self) -> None:
        self.highest: dict[int, int] = {}

    def add(self, sources: Numbers, timestamps: Numbers) -> Numbers:
        """Return the log time of each record of the next batch."""
        times = np.empty_like(timestamps)
        for source in np.unique(sources).tolist():
            rows = sources == source
            known = self.highest.get(source, BEFORE_ALL)
            times[rows] = np.maximum(np.maximum.accumulate(timestamps[rows]), known)
            self.highest[source] = int(times[rows][-1])
        return times


def place_batches(
    batches: Iterator[tuple[pa.Array, pa.Array, pa.Array, pa.Array]], count: int
) -> Iterator[pa.Array]:
    """Yield target partition and log time of batches with key, source partition, offset and timestamp in µs."""
    log_times = LogTimes()
    for keys, partitions, offsets, timestamps in batches:
        sources, numbers, times = map(as_numbers, (partitions, offsets, timestamps))
        targets = target_partitions(keys, sources, numbers, count)
        arrays = [pa.array(targets, pa.int32()), pa.array(log_times.add(sources, times))]
        yield pa.StructArray.from_arrays(arrays, fields=list(PLACE_TYPE))


def as_numbers(column: pa.Array) -> Numbers:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def place_records(records: DataFrame, count: int) -> DataFrame:
    """Return records with their partition in a topic with `count` partitions, and the columns of ORDER.

    Each task must have the records of one source partition, from the first one on and in order, as the source reads
    them without options that split partitions. Only keys and numbers are sent to Python.
    """
    from pyspark.sql import functions as sf

    def place(
        batches: Iterator[tuple[pa.Array, pa.Array, pa.Array, pa.Array]],
    ) -> Iterator[pa.Array]:
        return place_batches(batches, count)

    # The result depends on the rows before, so Spark must not move a filter before the function.
    function = sf.arrow_udf(place, PLACE).asNondeterministic()
    placed = records.withColumn(
        "place", function("key", "partition", "offset", sf.unix_micros("timestamp"))
    )
    return placed.selectExpr(
        "place.target as partition",
        "place.log_time as log_time",
        "partition as source_partition",
        "offset",
        "key",
        "value",
        "headers",
        "timestamp",
    )
