"""Spark session of a command: started with deferred signals, stopped at the end, with Spark's errors translated.

Without a signal handler, SIGTERM ends Python in the middle of a call to Java, and Java prints a long stack trace.
"""

from __future__ import annotations

import logging
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from barnabas.cli.spark.failure import translate
from barnabas.cli.terminal.output import print_note
from barnabas.cli.terminal.signals import (
    SIGNALS,
    Terminated,
    exception_for,
    raise_at_once,
    raise_on_signals,
)
from barnabas.client.cluster import Cluster
from barnabas.errors import ConfigError
from barnabas.progress_line import stop_progress
from barnabas.security.client_settings import SECRET_SETTINGS
from barnabas.spark.connect import is_remote, uses_connect, uses_tls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(
    master: str | None, *clusters: Cluster, app_name: str, short: bool
) -> Iterator[SparkSession]:
    """Run a Spark session. `short` is for jobs of a few seconds (see barnabas/spark/launcher.py).

    The first of the clusters is the default of the session. Raises ConfigError if their secrets would not be protected.
    """
    check_secrets(master, *clusters)
    # py4j logs every interrupted call to the root logger before it raises; this keeps it off the terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    from barnabas.spark.class_archive import find_archive
    from barnabas.spark.launcher import session

    with tempfile.TemporaryDirectory(
        prefix="barnabas-warehouse-", ignore_cleanup_errors=True
    ) as warehouse:
        if master is None and sys.stderr.isatty() and not find_archive().exists:
            print_note("Spark starts; `barnabas spark --prepare` makes later starts faster")
        with defer_signals(), translate_errors([]):
            spark = session(
                master,
                app_name=app_name,
                bootstrap_servers=clusters[0].servers,
                # Otherwise `create table` would leave a warehouse in the current directory.
                config={} if is_remote(master) else {"spark.sql.warehouse.dir": warehouse},
                short=short,
            )
        raise_on_signals()
        try:
            yield spark
        except BaseException:
            # End the progress line before the error message. Spark is not stopped: the JVM ends with this process.
            stop_progress()
            raise
        with suppress(Exception):
            # A stream that still runs when Spark stops prints a long Java stack trace.
            for query in spark.streams.active:
                query.stop()
            stop_spark(spark)


def check_secrets(master: str | None, *clusters: Cluster) -> None:
    """Raise ConfigError if secrets of the clusters would be sent to a Spark Connect server without encryption."""
    if master is None or not is_remote(master) or uses_tls(master):
        return
    settings = (item for cluster in clusters for item in cluster.security.settings.items())
    secrets = {name for name, value in settings if value and name in SECRET_SETTINGS}
    if secrets:
        why = f"{', '.join(sorted(secrets))} would be sent to the server without encryption"
        raise ConfigError("--master", f"{why}; add /;use_ssl=true to the address")


def stop_spark(spark: SparkSession) -> None:
    """Stop Spark without PySpark's server for accumulators: its end takes a second, and it ends with this process."""
    if not uses_connect(spark):
        spark.sparkContext._accumulatorServer = None
    spark.stop()


@contextmanager
def translate_errors(topics: list[str]) -> Iterator[None]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with unmask_interrupts():
            yield
    except (PySparkException, Py4JError, ConnectionRefusedError, ConnectionResetError) as error:
        raise translate(error, topics) from None


@contextmanager
def defer_signals() -> Iterator[None]:
    """Delay signals until Spark has started. A repeated signal is raised at once if Python is connected to the JVM.

    A JVM that is abandoned while it starts may run for ever, or print a stack trace to the terminal later. Once Python
    is connected to the JVM, the JVM ends with this process.
    """
    from pyspark import SparkContext

    received: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        if received and SparkContext._gateway is not None:
            raise_at_once(number, frame)
        received.append(number)

    for number in SIGNALS:
        signal.signal(number, on_signal)
    try:
        yield
    except Exception:
        # A signal to the whole process group also kills the JVM, so the start fails. Report the signal, not that error.
        if not received:
            raise
    if received:
        raise exception_for(received[0])


@contextmanager
def unmask_interrupts() -> Iterator[None]:
    """Raise the original interrupt if PySpark's cleanup replaced it by another error."""
    try:
        yield
    except Exception as error:
        context: BaseException | None = error
        while context is not None:
            if isinstance(context, KeyboardInterrupt | Terminated):
                raise type(context)() from None
            context = context.__context__
        raise
