"""The name Spark looks for: an installed package `pyspark_<name>` with a DefaultSource makes format("<name>") work.

Spark imports it in whatever Python runs its workers, which need not be the one the program runs in. Where that Python
lacks what the source is made of, the name is taken all the same, so that its user is told what is wrong.
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
