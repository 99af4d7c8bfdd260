"""Java's class-data archive for tests that start a Spark of their own: with it a start takes a third of the time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.process import ENVIRONMENT

TRAINING_SECONDS = 240


@pytest.fixture(scope="session")
def trained_spark() -> str:
    """Java's options. Where there is no archive yet one is made, so that no start of Spark has one made beside the test
    that follows; where that is not possible, starts are slow and nothing else."""
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
