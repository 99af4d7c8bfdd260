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


PACKAGES = frozenset({"pyspark", "py4j", "pyarrow", "numpy"})
"""Packages of the extra `spark` that are imported on use."""


def explain_missing(error: ModuleNotFoundError) -> ConfigError | None:
    """Return a ConfigError if a package of Spark is not installed. None for another module."""
    package = (error.name or "").partition(".")[0]
    return ConfigError(package, NOT_INSTALLED) if package in PACKAGES else None


def spark_home() -> Path:
    """The directory with Spark's jars: SPARK_HOME if set, else the installed package pyspark."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("pyspark", NOT_INSTALLED)
    return Path(spec.origin).parent
