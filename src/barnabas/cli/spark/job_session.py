"""Spark session of a job over whole topics, which starts when the job needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.cli.spark.session import check_secrets, spark_session, translate_errors
from barnabas.client.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.jobs.session import OpenSpark


SHORT_JOB_RECORDS = 20_000_000
"""Up to this many records, Java's fast compiler is the better choice: it saves seconds at the start."""


def job_session(master: str | None, cluster: Cluster, app_name: str) -> OpenSpark:
    """Return a function that starts Spark and translates its errors. Raises ConfigError as `spark_session`."""
    check_secrets(master, cluster)

    @contextmanager
    def open_spark(records: int) -> Iterator[SparkSession]:
        is_short = records <= SHORT_JOB_RECORDS
        session = spark_session(master, cluster, app_name=app_name, short=is_short)
        with session as spark, translate_errors([]):
            yield spark

    return open_spark
