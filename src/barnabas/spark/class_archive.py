"""Java's class-data archive of the classes that Spark loads at its start.

The archive more than halves the start time. It belongs to one Java and one set of Spark jars; its file name contains a
digest of both. It is optional: Java ignores an archive that does not match.

`barnabas spark --prepare` builds it in half a minute.
"""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from barnabas.java.find import Java, find_java
from barnabas.spark.cache import cache_directory, digest, move_into_place
from barnabas.spark.installation import spark_home
from barnabas.spark.start_scripts import JAVA_SCRIPT

GC_OPTION = "-XX:+UseSerialGC"
"""The serial collector starts fastest and needs the least memory. An archive works only with the same collector."""
NO_LOG = "-Xlog:disable"
"""Suppresses Java's message about an archive that does not match."""
BASE_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassArchive:
    path: Path
    base: Path | None
    """The archive of Java's own classes, which `path` extends. None if Java includes one."""

    @property
    def exists(self) -> bool:
        return self.path.exists() and (self.base is None or self.base.exists())

    @property
    def files(self) -> str:
        return str(self.path) if self.base is None else f"{self.base}:{self.path}"

    @property
    def options(self) -> str:
        """Java options to use the archive. Empty if it does not exist, or if its path has a space or a quote."""
        if not self.exists or any(sign in self.files for sign in ' "'):
            return ""
        return f"-XX:SharedArchiveFile={self.files} {NO_LOG}"


def find_archive() -> ClassArchive:
    """Return the archive for the Java and the Spark of this machine. Raises NoJava and NoSpark."""
    return class_archive(find_java("Spark"), spark_home(), cache_directory())


def class_archive(java: Java, home: Path, cache: Path) -> ClassArchive:
    jars = [
        (path.name, status.st_size, status.st_mtime_ns)
        for path in sorted((home / "jars").glob("*.jar"))
        for status in [path.stat()]
    ]
    key = digest(java.home, java.version, java.release, home, jars, GC_OPTION, JAVA_SCRIPT)
    path = cache / "class-data" / f"java{java.major}-{key}.jsa"
    base = None if java.has_shared_classes else path.with_suffix(".base.jsa")
    return ClassArchive(path=path, base=base)


@contextmanager
def archive_build(archive: ClassArchive, java: Java) -> Iterator[str | None]:
    """Yield Java options to write the archive when Java exits. If the block succeeds, the archive gets its final name.

    Yields None if another process builds the archive or has built it. If the process is killed, its lock ends, and the
    next build removes the partial file.
    """
    directory = archive.path.parent
    directory.mkdir(parents=True, exist_ok=True)
    with archive.path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_needed = not archive.exists
        except BlockingIOError:
            is_needed = False
        if not is_needed:
            yield None
            return
        partial = archive.path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        try:
            options = f"-XX:ArchiveClassesAtExit={partial} {NO_LOG}"
            if archive.base is not None:
                build_base(archive.base, java)
                options = f"-XX:SharedArchiveFile={archive.base} {options}"
            yield options
            if partial.exists():
                move_into_place(partial, archive.path)
        finally:
            partial.unlink(missing_ok=True)


def build_base(path: Path, java: Java) -> None:
    """Build the archive of Java's own classes."""
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    subprocess.run(
        [java.binary, "-Xshare:dump", f"-XX:SharedArchiveFile={partial}", NO_LOG],
        check=True,
        capture_output=True,
        timeout=BASE_TIMEOUT_S,
    )
    move_into_place(partial, path)
