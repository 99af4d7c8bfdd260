"""Java's class-data archive: the classes of a Spark start, read and verified once and mapped into memory ever after.

It shortens a start by more than half. It belongs to one Java and one set of Spark's jars, so both are in its name. It
is an aid and never a condition: Java ignores an archive that does not fit, and without one Spark starts as always.

`python -m barnabas.spark.training` makes it, in half a minute; a session that found none has that done in the
background when its process ends.
"""

from __future__ import annotations

import atexit
import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from barnabas.java.find import Java
from barnabas.spark.cache import digest, move_into_place
from barnabas.spark.java_home import SCRIPT

ON_TOP = "-XX:+UseSerialGC"
"""Must be the same when an archive is made and when it is used. Of the collectors it starts quickest and needs the
least memory; with a heap of a laptop's size it is not the slowest either."""
SILENT = "-Xlog:disable"
"""An archive that does not fit is no news to anybody."""
BASE_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassArchive:
    path: Path
    base: Path | None
    """The archive of Java's own classes to lay it upon; None where Java has one itself."""

    @property
    def exists(self) -> bool:
        return self.path.exists() and (self.base is None or self.base.exists())

    @property
    def files(self) -> str:
        return str(self.path) if self.base is None else f"{self.base}:{self.path}"

    @property
    def options(self) -> str:
        """For Java; empty where there is no archive yet, or no way to say where it lies."""
        if not self.exists or any(sign in self.files for sign in ' "'):
            return ""
        return f"-XX:SharedArchiveFile={self.files} {SILENT}"


def class_archive(java: Java, spark_home: Path, cache: Path) -> ClassArchive:
    jars = [
        (path.name, status.st_size, status.st_mtime_ns)
        for path in sorted((spark_home / "jars").glob("*.jar"))
        for status in [path.stat()]
    ]
    key = digest(java.home, java.version, java.release, spark_home, jars, ON_TOP, SCRIPT)
    path = cache / "class-data" / f"java{java.major}-{key}.jsa"
    return ClassArchive(
        path=path, base=None if java.has_shared_classes else path.with_suffix(".base.jsa")
    )


@contextmanager
def making(archive: ClassArchive, java: Java) -> Iterator[str | None]:
    """Yields Java's options for the start that fills the archive; put in place when the block ends well.

    None if another process is at it or has done it. The lock is the kernel's and ends with the process that holds it;
    what a killed one left behind is swept away by the next.
    """
    directory = archive.path.parent
    directory.mkdir(parents=True, exist_ok=True)
    with archive.path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        if archive.exists:
            yield None
            return
        partial = archive.path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        try:
            if archive.base is not None:
                make_base(archive.base, java)
            below = [] if archive.base is None else [f"-XX:SharedArchiveFile={archive.base}"]
            yield " ".join([*below, f"-XX:ArchiveClassesAtExit={partial}", SILENT])
            if partial.exists():
                move_into_place(partial, archive.path)
        finally:
            partial.unlink(missing_ok=True)


def make_base(path: Path, java: Java) -> None:
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    subprocess.run(
        [java.binary, "-Xshare:dump", f"-XX:SharedArchiveFile={partial}", "-Xlog:disable"],
        check=True,
        capture_output=True,
        timeout=BASE_TIMEOUT_S,
    )
    move_into_place(partial, path)


def make_when_idle() -> None:
    """Have the archive made by a process of its own, of the lowest priority, when this one ends."""
    atexit.unregister(start_training)
    atexit.register(start_training)


def start_training() -> None:
    # Nothing depends on it: where it cannot be started, the next start is as slow as this one was.
    with suppress(OSError, RuntimeError):
        subprocess.Popen(
            ["nice", "-n", "19", sys.executable, "-m", "barnabas.spark.training"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
