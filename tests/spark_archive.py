"""Java's class-data archive for tests that start their own Spark: with it, a start takes a third of the time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.process import ENVIRONMENT

TRAINING_SECONDS = 240


@pytest.fixture(scope="session")
def trained_spark() -> str:
    """Java options for the archive. Creates the archive if there is none, so that no Spark start does so during a test.
    If that fails, starts are only slow."""
    from barnabas.java.find import find_java
    from barnabas.spark.cache import cache_directory
    from barnabas.spark.class_archive import GC_OPTION, class_archive
    from barnabas.spark.installation import spark_home
    from barnabas.spark.launcher import FAST_COMPILER

    archive = class_archive(find_java("Spark"), spark_home(), cache_directory())
    if not archive.exists:
        subprocess.run(
            [sys.executable, "-m", "barnabas.spark.training"],
            env=ENVIRONMENT,
            check=False,
            timeout=TRAINING_SECONDS,
        )
    return f"{GC_OPTION} {FAST_COMPILER} {archive.options}"
