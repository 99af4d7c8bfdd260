"""The Spark session of a job."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias

from barnabas.spark.connect import uses_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OpenSpark: TypeAlias = "Callable[[int], AbstractContextManager[SparkSession]]"
"""Starts Spark for a job with this many records. A job calls it after its checks, so that most errors are reported
at once."""


def default_parallelism(spark: SparkSession) -> int:
    """Return how many tasks Spark runs at the same time."""
    if not uses_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    from pyspark.sql import functions as sf

    # A range has this many partitions by default.
    return int(spark.range(10_000).select(sf.spark_partition_id()).distinct().count())
