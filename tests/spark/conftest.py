"""One Spark session for the whole run: a JVM takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas import LocalCluster
from barnabas.spark import session
from tests.spark.topics import Topics


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, trained_spark: str) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    running = session(
        "local[2]",
        config={
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        },
        progress=False,
        short=True,
    )
    running.sparkContext.setLogLevel("OFF")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    # Records here carry old timestamps on purpose. With retention, they would be deleted after half a minute.
    settings = {"auto.create.topics.enable": "false", "log.retention.ms": "-1"}
    with LocalCluster(brokers=1, settings=settings) as running:
        yield running


@pytest.fixture(scope="session")
def topics(spark: SparkSession, cluster: LocalCluster) -> Topics:
    return Topics(spark, cluster.bootstrap_servers)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
