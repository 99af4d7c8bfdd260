"""Comparison of two sets of records: same key, value, headers and timestamp at each position of each partition.

    rows      partition, position, key, value, headers, timestamp
    digests   partition, block, count, digest                        one row per BLOCK positions
              digest = XOR of hash(position, key, value, headers, timestamp)

Both sides are reduced to digests, and only the digests are joined. The position is part of the hash, so a changed
byte, two swapped records, and a missing or doubled record all change a digest or a count. Only the rows of the first
different block are compared one by one, to report the first difference.
"""

from __future__ import annotations

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


def compare_records(expected: DataFrame, actual: DataFrame) -> Comparison:
    """Compare records with the columns of ROW."""
    row = join_digests(
        digest_blocks(hash_rows(expected)), digest_blocks(hash_rows(actual))
    ).collect()[0]
    difference = None
    if row["first"] is not None:
        place = row["first"]["partition"], row["first"]["block"]
        difference = first_difference(expected, actual, *place)
    return Comparison(int(row["expected"]), int(row["actual"]), difference)


def first_difference(expected: DataFrame, actual: DataFrame, partition: int, block: int) -> str:
    """Describe the first difference in a block that has one."""
    from pyspark.sql import functions as sf

    def fields(rows: DataFrame) -> dict[int, list[tuple[int, ...]]]:
        position = sf.col("position")
        inside = (position >= block * BLOCK) & (position < (block + 1) * BLOCK)
        chosen = rows.where((sf.col("partition") == partition) & inside)
        found: dict[int, list[tuple[int, ...]]] = {}
        for position, *hashes in chosen.select("position", *field_hashes().values()).collect():
            found.setdefault(position, []).append(tuple(hashes))
        return {position: sorted(each) for position, each in found.items()}

    return describe_difference(partition, fields(expected), fields(actual))


def describe_difference(
    partition: int,
    expected: dict[int, list[tuple[int, ...]]],
    actual: dict[int, list[tuple[int, ...]]],
) -> str:
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
