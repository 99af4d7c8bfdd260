"""Which Python runs the workers, and how it is started on this machine.

Spark puts its own zip of PySpark first on the path of every worker. What is imported from a zip keeps no bytecode, so
each of the five Python processes before the first row of a small job would compile PySpark anew, for most of a second.
The Python of this process has the same PySpark installed, with its bytecode: started without the zip, it takes that.
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
    given: str | None, environment: Mapping[str, str], cache: Path, *, local: bool
) -> str:
    """That of this process unless another is given; on a remote master PYSPARK_PYTHON is asked first."""
    if given is not None:
        return given
    if not local:
        return environment.get("PYSPARK_PYTHON") or sys.executable
    return str(started_without_zip(cache)) if os.name == "posix" else sys.executable


def started_without_zip(cache: Path) -> Path:
    script = SCRIPT.format(python=shlex.quote(sys.executable))
    return write_whole(cache / f"python-{digest(script)}", script.encode(), mode=0o755)
