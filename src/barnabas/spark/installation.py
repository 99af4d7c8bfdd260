"""Where Spark is installed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from barnabas.errors import ConfigError

NOT_INSTALLED = (
    "is not installed; pip install '.[spark]' in a checkout of Barnabas, "
    "or pip install 'barnabas[spark]'"
)


def spark_home() -> Path:
    """The directory with Spark's jars: SPARK_HOME if set, else the installed package pyspark."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("pyspark", NOT_INSTALLED)
    return Path(spec.origin).parent
