"""The Spark session of a job."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OpenSpark: TypeAlias = "Callable[[int], AbstractContextManager[SparkSession]]"
"""Starts Spark for a job with this many records. A job calls it after its checks, so that most errors are reported
at once."""
