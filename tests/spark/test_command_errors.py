"""Errors of commands that only a running Spark job can cause."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import click
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from barnabas.cli.spark.sql import SqlOutput, start_in_supported_mode, wait_for_stream
from barnabas.cli.terminal.failure import CommandError
from barnabas.cli.terminal.signals import SIGNALS
from barnabas.cli.topics.profile import read_profile
from barnabas.jobs.topic_range import look_up_range
from barnabas.model import TopicPartition
from tests.spark.topics import Topics


def test_profile_needs_a_record(topics: Topics) -> None:
    name = topics.create()
    topics.write(name, ["a", "b"])
    with topics.client() as cluster:
        wanted = look_up_range(cluster, cluster.topic(name))
    topics.delete_records({TopicPartition(name, 0): 2})
    with pytest.raises(CommandError, match=f"^topic '{name}' has no records$"):
        read_profile(topics.spark, cluster, wanted)


@pytest.mark.parametrize(
    ("column", "order", "why"),
    [
        ("row_number() over (order by value)", None, "(?i)window"),
        ("value", "value", "(?i)sorting is not supported"),
    ],
    ids=["for another reason", "in every mode"],
)
def test_query_that_spark_cannot_follow_is_rejected(
    spark: SparkSession, tmp_path: Path, column: str, order: str | None, why: str
) -> None:
    rows = spark.readStream.format("rate").load().selectExpr(column)
    rows = rows if order is None else rows.orderBy(order)
    with pytest.raises(AnalysisException, match=why):
        start_in_supported_mode(rows, SqlOutput.TABLE, tmp_path, [])


def full_disk() -> BinaryIO:
    return Path("/dev/full").open("wb", buffering=0)


def pipe_without_reader() -> BinaryIO:
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "wb", buffering=0)


@pytest.fixture
def kept_signal_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("kept_signal_handlers")
@pytest.mark.parametrize(
    ("output", "kind", "message"),
    [
        (full_disk, click.ClickException, "standard output: No space left on device"),
        (pipe_without_reader, BrokenPipeError, "Broken pipe"),
    ],
    ids=["full disk", "closed pipe"],
)
def test_followed_query_ends_if_its_output_cannot_be_written(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    output: Callable[[], BinaryIO],
    kind: type[Exception],
    message: str,
) -> None:
    failures: list[BaseException] = []
    rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    with io.TextIOWrapper(output(), write_through=True) as file, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", file)
        query = start_in_supported_mode(rows, SqlOutput.JSON, tmp_path, failures)
        with pytest.raises(kind, match=message):
            wait_for_stream(query, failures)
    assert not query.isActive
