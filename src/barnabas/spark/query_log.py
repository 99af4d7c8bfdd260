"""PySpark's log of failed queries."""

from __future__ import annotations


def silence_query_logger() -> None:
    """Disable the PySpark loggers that print every query error as JSON before the exception is raised."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel("CRITICAL")
