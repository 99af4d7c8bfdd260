"""The Spark session that completes and checks what killed processes began."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from barnabas.spark import session


@pytest.fixture
def spark(trained_spark: str) -> Iterator[SparkSession]:
    is_new = SparkSession.getActiveSession() is None
    running = session("local[2]", short=True, progress=False)
    running.sparkContext.setLogLevel("OFF")
    yield running
    if is_new:
        running.stop()
