"""Entry point for Spark: `format("<name>")` uses the DefaultSource of an installed package `pyspark_<name>`.

Spark imports this package with the Python of its workers, which may differ from the Python of the program. If that
Python lacks a dependency, a placeholder source raises an error that says what to do.
"""

from __future__ import annotations

import sys

from pyspark.sql.datasource import DataSource

try:
    from barnabas.spark.source import TopicSource as DefaultSource
except ImportError as error:
    missing = str(error)

    class DefaultSource(DataSource):  # type: ignore[no-redef,misc]
        @classmethod
        def name(cls) -> str:
            return "barnabas"

        def __init__(self, options: dict[str, str]) -> None:
            raise ImportError(
                f"{missing}. Spark runs its workers with {sys.executable}, where barnabas[spark] is not installed:"
                " start with barnabas.spark.session(), or set PYSPARK_PYTHON to the Python that has it"
            )


__all__ = ["DefaultSource"]
