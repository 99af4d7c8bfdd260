"""Comparison of two sets of records: same key, value, headers and timestamp at each position of each partition.

    rows      partition, position, key, value, headers, timestamp
    digests   partition, block, count, digest                        one row per BLOCK positions
              digest = XOR of hash(position, key, value, headers, timestamp)

Both sides are reduced to digests, and only the digests are joined. The position is part of the hash, so a changed
byte, two swapped records, and a missing or doubled record all change a digest or a count. Only the rows of the first
different block are compared one by one, to report the first difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.jobs.errors import CopyDiffers

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BLOCK = 4096
FIELDS = ("key", "value", "headers", "timestamp")
ROW = ("partition", "position", *FIELDS)


class Comparison(NamedTuple):
    """Result of a comparison: the number of records of both sides, and the first difference, if there is one."""

    expected: int
    actual: int
    difference: str | None


def field_hashes() -> dict[str, Column]:
    """Return one hash per field. Spark's hash ignores null, so each hash has a flag that tells null from empty.

    Null headers and no headers are the same. A header has a name, but its value may be null.
    """
    from pyspark.sql import functions as sf

    return {
        "key": sf.xxhash64(sf.isnull("key"), "key"),
        "value": sf.xxhash64(sf.isnull("value"), "value"),
        "headers": sf.when(
            sf.size("headers") > 0,
            sf.xxhash64("headers", sf.transform("headers", lambda each: sf.isnull(each["value"]))),
        ).otherwise(sf.lit(0).cast("bigint")),
        "timestamp": sf.unix_micros("timestamp"),
    }


def hash_rows(rows: DataFrame) -> DataFrame:
    """Reduce records to hashes: replaces the columns key, value, headers and timestamp by one column `hash`."""
    from pyspark.sql import functions as sf

    others = [name for name in rows.columns if name not in FIELDS]
    return rows.select(*others, sf.xxhash64(*field_hashes().values()).alias("hash"))


def digest_blocks(hashes: DataFrame) -> DataFrame:
    """Return the digests of rows with partition, position and hash."""
    from pyspark.sql import functions as sf

    blocks = hashes.select(
        "partition",
        sf.floor(sf.col("position") / BLOCK).alias("block"),
        sf.xxhash64("position", "hash").alias("mixed"),
    )
    return blocks.groupBy("partition", "block").agg(
        sf.count(sf.lit(1)).alias("count"), sf.bit_xor("mixed").alias("digest")
    )


def join_digests(expected: DataFrame, actual: DataFrame) -> DataFrame:
    """Return one row: the records of both sides, and the first different block."""
    from pyspark.sql import functions as sf

    joined = expected.alias("e").join(actual.alias("a"), ["partition", "block"], "full")
    differs = ~(
        sf.col("e.count").eqNullSafe(sf.col("a.count"))
        & sf.col("e.digest").eqNullSafe(sf.col("a.digest"))
    )
    return joined.agg(
        sf.coalesce(sf.sum("e.count"), sf.lit(0)).alias("expected"),
        sf.coalesce(sf.sum("a.count"), sf.lit(0)).alias("actual"),
        sf.min(sf.when(differs, sf.struct("partition", "block"))).alias("first"),
    )


def with_positions(rows: DataFrame, order: Sequence[str]) -> DataFrame:
    """Number the rows of each partition from 0, in the order of these columns. Keeps a column `position`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    if "position" in rows.columns:
        return rows
    window = Window.partitionBy("partition").orderBy(*order)
    return rows.withColumn("position", (sf.row_number().over(window) - 1).cast("bigint"))


def compare_records(
    expected: DataFrame,
    actual: DataFrame,
    *,
    order: Sequence[str] = (),
    limits: Mapping[int, int] | None = None,
) -> Comparison:
    """Compare records with the columns of ROW.

    `expected` may have the columns `order` instead of the position. `limits` has the number of expected records to
    compare in each partition.
    """

    def positioned(rows: DataFrame) -> DataFrame:
        return first_rows(with_positions(rows, order), limits)

    row = join_digests(
        digest_blocks(positioned(hash_rows(expected))), digest_blocks(hash_rows(actual))
    ).collect()[0]
    difference = None
    if row["first"] is not None:
        partition, block = row["first"]["partition"], row["first"]["block"]
        difference = describe_difference(
            partition,
            hashes_of_block(positioned(hash_fields(expected)), partition, block),
            hashes_of_block(hash_fields(actual), partition, block),
        )
    return Comparison(int(row["expected"]), int(row["actual"]), difference)


def first_rows(rows: DataFrame, limits: Mapping[int, int] | None) -> DataFrame:
    """Return the rows with a position below the limit of their partition."""
    from pyspark.sql import functions as sf

    if limits is None:
        return rows
    return rows.where(sf.col("position") < value_of_partition(limits))


def value_of_partition(values: Mapping[int, int]) -> Column:
    """Return a column with the value of the row's partition."""
    from pyspark.sql import functions as sf

    pairs = [sf.lit(each) for pair in sorted(values.items()) for each in pair]
    return sf.create_map(*pairs)[sf.col("partition")].cast("bigint")


def hash_fields(rows: DataFrame) -> DataFrame:
    """Replace each of the columns key, value, headers and timestamp by its hash."""
    others = [name for name in rows.columns if name not in FIELDS]
    return rows.select(*others, *[each.alias(name) for name, each in field_hashes().items()])


FieldHashes = dict[int, list[tuple[int, ...]]]
"""Position → the hashes of the fields of each record there."""


def hashes_of_block(hashes: DataFrame, partition: int, block: int) -> FieldHashes:
    from pyspark.sql import functions as sf

    inside = sf.col("position").between(block * BLOCK, (block + 1) * BLOCK - 1)
    rows = hashes.where((sf.col("partition") == partition) & inside).select("position", *FIELDS)
    found: FieldHashes = {}
    for position, *fields in rows.collect():
        found.setdefault(position, []).append(tuple(fields))
    return {position: sorted(each) for position, each in found.items()}


def describe_difference(partition: int, expected: FieldHashes, actual: FieldHashes) -> str:
    """Describe the first position at which the hashes of fields differ."""
    for position in sorted(expected.keys() | actual.keys()):
        wanted, found = expected.get(position, []), actual.get(position, [])
        where = f"partition {partition}, position {position}"
        if not found:
            return f"{where}: the record is missing in the copy"
        if not wanted:
            return f"{where}: the copy has a record that the source does not have"
        if len(wanted) != len(found):
            return f"{where}: the source has {len(wanted)} records, the copy {len(found)}"
        if wanted != found:
            names = [
                name for name, *pair in zip(FIELDS, wanted[0], found[0], strict=True)
                if pair[0] != pair[1]
            ]  # fmt: skip
            return f"{where}: {' and '.join(names)} differ{'s' if len(names) == 1 else ''}"
    return f"partition {partition}: a record changed during the comparison"


def require_equal(comparison: Comparison, source: str, copy: str, hint: str) -> int:
    """Raise CopyDiffers if there is a difference. Returns the number of compared records."""
    if comparison.difference is not None:
        counts = f"{comparison.expected:,} records in {source}, {comparison.actual:,} in {copy}"
        raise CopyDiffers(
            f"{copy} differs from {source}: {comparison.difference} ({counts}); {hint}"
        )
    return comparison.expected
