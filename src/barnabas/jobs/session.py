"""The Spark session of a job."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OpenSpark: TypeAlias = "Callable[[], AbstractContextManager[SparkSession]]"
"""Starts Spark. A job calls it after its checks, so that most errors are reported at once."""
