"""A catalog that outlives its session: Spark's tables in one directory, kept by Hive's metastore in Derby.

It is had by asking (`session(catalog="…")`), not by default, for two reasons. The metastore costs seconds at its first
use. And Derby lets one process in at a time, which would make a second shell on the same machine fail for the sake of
tables nobody made; so the directory is locked here, and a second session is told who is in the way.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from barnabas.errors import ConfigError

HELD: dict[Path, IO[str]] = {}
"""Locks of this process. They last as long as it does, because so does the Java that has Derby open."""


def catalog_settings(directory: Path) -> dict[str, str]:
    directory = directory.absolute()
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={directory / 'metastore'};create=true"
        ),
    }


def catalog_java_options(directory: Path) -> str:
    """Derby keeps a log, in the working directory unless told otherwise."""
    return f"-Dderby.stream.error.file={directory.absolute() / 'derby.log'}"


def hold_catalog(directory: Path) -> None:
    directory = directory.absolute()
    if directory in HELD:
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("a+")
    except OSError as error:
        raise ConfigError("catalog", f"{directory}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "another process"
        lock.close()
        raise ConfigError(
            "catalog", f"{directory} is in use by {holder}; give each session its own"
        ) from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()}")
    lock.flush()
    HELD[directory] = lock
