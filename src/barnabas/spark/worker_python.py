"""The Python that runs the workers.

Spark puts its zip of PySpark first on the path of every worker. Python does not cache bytecode for a zip, so each
worker process compiles PySpark again, for most of a second. A small job starts five of them. The workers of a local
master are started without the zip, and use the installed PySpark with its bytecode.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from barnabas.spark.cache import digest, write_whole

SCRIPT = """#!/bin/sh
# Starts Python with the PySpark that is installed, not with the one in Spark's zip.
PYTHONPATH=${{PYTHONPATH#*/pyspark.zip:*/py4j-*.zip:}}
export PYTHONPATH
exec {python} "$@"
"""


def worker_python(
    requested: str | None, environment: Mapping[str, str], cache: Path, *, local: bool
) -> str:
    """Return the Python of the workers: `requested`, else that of this process. For a remote master PYSPARK_PYTHON
    takes precedence over the latter."""
    if requested is not None:
        return requested
    if not local:
        return environment.get("PYSPARK_PYTHON") or sys.executable
    return str(python_without_zip(cache)) if os.name == "posix" else sys.executable


def python_without_zip(cache: Path) -> Path:
    script = SCRIPT.format(python=shlex.quote(sys.executable))
    return write_whole(cache / f"python-{digest(script)}", script.encode(), mode=0o755)
