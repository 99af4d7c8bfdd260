"""Spark session of a command: started with deferred signals, stopped at the end, with Spark's errors translated."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from barnabas.cli.spark.failure import translate
from barnabas.cli.spark.interrupts import defer_signals, unmask_interrupts
from barnabas.cli.terminal.signals import raise_on_signals
from barnabas.errors import ConfigError
from barnabas.progress_line import stop_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(
    master: str | None, bootstrap_servers: str, *, app_name: str, short: bool
) -> Iterator[SparkSession]:
    # py4j logs every interrupted call to the root logger before it raises.
    logging.getLogger().addHandler(logging.NullHandler())
    from barnabas.spark.installation import NOT_INSTALLED
    from barnabas.spark.launcher import session

    with tempfile.TemporaryDirectory(
        prefix="barnabas-warehouse-", ignore_cleanup_errors=True
    ) as warehouse:
        try:
            with defer_signals(), translate_errors([]):
                spark = session(
                    master,
                    app_name=app_name,
                    bootstrap_servers=bootstrap_servers,
                    # Otherwise a table creates a warehouse in the current directory, which no later session finds.
                    config={"spark.sql.warehouse.dir": warehouse},
                    short=short,
                )
        except ModuleNotFoundError as error:
            raise ConfigError(error.name or "pyspark", NOT_INSTALLED) from None
        raise_on_signals()
        try:
            yield spark
        except BaseException:
            # The error message gets a line of its own. Java ends with this process.
            stop_progress()
            raise
        with suppress(Exception):
            # A stream that still runs when Spark stops prints a long Java stack trace.
            for query in spark.streams.active:
                query.stop()
            spark.stop()


@contextmanager
def translate_errors(topics: list[str]) -> Iterator[None]:
    """Translate errors of Spark into errors of a few lines."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with unmask_interrupts():
            yield
    except (PySparkException, Py4JError, ConnectionRefusedError, ConnectionResetError) as error:
        raise translate(error, topics) from None
