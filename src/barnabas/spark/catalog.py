"""A persistent catalog: Spark tables in one directory, managed by Hive's metastore in Derby.

It is optional (`session(catalog="…")`), because the metastore takes seconds at its first use, and Derby allows only one
process. A lock in the directory ensures that, so that the error of a second process can name the first.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from barnabas.errors import ConfigError

CATALOG_LOCKS: dict[Path, IO[str]] = {}
"""Locks of this process. They are held until it ends, because its Java keeps Derby open."""


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
    """Return the Java option for Derby's log file, which is in the working directory by default."""
    return f"-Dderby.stream.error.file={directory.absolute() / 'derby.log'}"


def lock_catalog(directory: Path) -> None:
    """Lock the directory. Raises ConfigError if another process holds the lock."""
    directory = directory.absolute()
    if directory in CATALOG_LOCKS:
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
        why = f"{directory} is in use by {holder}; use another directory"
        raise ConfigError("catalog", why) from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()}")
    lock.flush()
    CATALOG_LOCKS[directory] = lock
