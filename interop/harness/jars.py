"""The jars of Apache Kafka: four sets, each listed in `artifacts` and stored in its own directory.

Maven downloads a set once. The set is stamped with the digest of its list, so only a changed list is downloaded again.
A set is complete or absent: it is downloaded to a temporary directory and then moved.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from barnabas.java.find import Java, NoJava, find_java
from interop.harness.unavailable import FetchFailed, RegistryUnreachable, Unavailable

INTEROP = Path(__file__).parents[1]
ARTIFACTS = INTEROP / "artifacts"
KAFKA_3_9, KAFKA_4, SPARK_KAFKA, FRAMEWORKS = SETS = (
    "kafka-3.9",
    "kafka-4",
    "spark-kafka",
    "kafka-frameworks",
)
STAMP = ".fetched-for"
FETCH_TIMEOUT_S = 900
PATIENCE = ("-Dmaven.wagon.http.retryHandler.count=3", "-Dmaven.wagon.rto=60000")

# The full name: for a short name, Maven queries the registry, and without a response it blames the name.
COPY = "org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies"

NO_ANSWER = re.compile(
    r"Could not transfer|transfer failed|Unknown host|Connection (refused|reset|timed out)"
    r"|Connect to .* failed|Read timed out|Network is unreachable|in offline mode|status code: 5\d\d",
)
NOT_THERE = re.compile(r"Could not find artifact|status code: 404")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jars:
    """The directory of the sets. INTEROP_JARS overrides it, for example with one that CI keeps between runs."""

    directory: Path

    def of(self, name: str) -> tuple[Path, ...]:
        """The jars of a set in a fixed order, because a class archive is valid for one class path only."""
        return tuple(sorted((self.directory / name).glob("*.jar")))

    def class_path(self, name: str) -> str:
        return os.pathsep.join(str(path) for path in self.of(name))

    def missing(self) -> list[str]:
        return [name for name in SETS if not self.is_fetched(name)]

    def is_fetched(self, name: str) -> bool:
        try:
            return (self.directory / name / STAMP).read_text() == list_digest(name)
        except OSError:
            return False


def jars(environment: Mapping[str, str] = os.environ) -> Jars:
    place = environment.get("INTEROP_JARS") or INTEROP / ".jars"
    return Jars(directory=Path(place).absolute())


def list_digest(name: str) -> str:
    return hashlib.sha256((ARTIFACTS / f"{name}.xml").read_bytes()).hexdigest()


def require_java(environment: Mapping[str, str] = os.environ) -> Java:
    try:
        return find_java("Kafka", environment)
    except NoJava as error:
        raise Unavailable(f"no Java to run Kafka: {error}") from None


def require_maven(environment: Mapping[str, str] = os.environ) -> str:
    if found := shutil.which("mvn", path=environment.get("PATH", os.defpath)):
        return found
    raise Unavailable(
        "no Maven to download Kafka: mvn is not on PATH (Debian: apt-get install maven)"
    )


def fetch(environment: Mapping[str, str] = os.environ) -> Jars:
    """Download all missing sets. Raises Unavailable, RegistryUnreachable or FetchFailed with a one-line reason."""
    place = jars(environment)
    java = require_java(environment)
    if not place.missing():
        return place
    maven = require_maven(environment)
    with exclusive_lock(place.directory):
        for name in place.missing():
            print(f"downloading {name} with Maven, once ...", file=sys.stderr, flush=True)
            fetch_set(maven, java, name, place.directory, environment)
    return place


@contextmanager
def exclusive_lock(directory: Path) -> Iterator[None]:
    """Keep concurrent runs from downloading into the same directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch_set(
    maven: str, java: Java, name: str, directory: Path, environment: Mapping[str, str]
) -> None:
    part = directory / f"{name}.part"
    shutil.rmtree(part, ignore_errors=True)
    command = [
        *(maven, "--batch-mode", "--quiet", "--update-snapshots", *PATIENCE),
        *("--file", str(ARTIFACTS / f"{name}.xml"), COPY),
        *(f"-DoutputDirectory={part}", "-DincludeScope=runtime"),
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**environment, "JAVA_HOME": str(java.home)},
            stdin=subprocess.DEVNULL,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        shutil.rmtree(part, ignore_errors=True)
        raise RegistryUnreachable(
            f"Maven's registry is too slow: {name} was not downloaded within {FETCH_TIMEOUT_S} s"
        ) from None
    if done.returncode != 0:
        shutil.rmtree(part, ignore_errors=True)
        raise fetch_error(name, done.stdout + done.stderr)
    (part / STAMP).write_text(list_digest(name))
    shutil.rmtree(directory / name, ignore_errors=True)
    part.rename(directory / name)


def fetch_error(name: str, output: str) -> Exception:
    """Convert the output of a failed Maven run to an exception. The registry's address is removed."""
    first = next((line for line in output.splitlines() if "ERROR" in line), output.strip()[:300])
    reason = re.sub(r".*\[ERROR\] | in \w+ \(\S+\)| -> \[Help 1\]|\w+://\S+", "", first)
    if NO_ANSWER.search(output) and not NOT_THERE.search(output):
        return RegistryUnreachable(
            f"Maven's registry cannot be reached: {name} could not be fetched"
        )
    return FetchFailed(f"Maven could not fetch {name}: {reason}")
