"""Read access to the database of an embedded registry from another process.

The reader never writes. It takes the lock of the directory only for a moment, to test whether a process has it. Every
read is a consistent snapshot of the tree. While no process has the registry open, ephemeral nodes are hidden: their
sessions have ended, and the next start removes them.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import NamedTuple

from barnabas.errors import StorageError
from barnabas.world.directory_lock import is_locked
from barnabas.world.registry.store import (
    APPLICATION_ID,
    DATABASE,
    check_version,
    pragma,
    read_tree,
    sqlite_errors,
)
from barnabas.world.registry.tree import Tree


class PastChange(NamedTuple):
    """A recorded change of a node. `number` counts all changes. `kind` is created, changed or deleted."""

    number: int
    zxid: int
    time_ms: int
    kind: str
    path: str


class Reader:
    """An open registry database. All methods raise StorageError."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.path = str(Path(directory, DATABASE))
        if not Path(self.path).is_file():
            raise StorageError(self.path, "no registry found")
        with sqlite_errors(self.path):
            self.database = sqlite3.connect(database_uri(self.path), uri=True, isolation_level=None)
            try:
                if pragma(self.database, "application_id") != APPLICATION_ID:
                    raise StorageError(self.path, "is not a registry database")
                check_version(self.database, self.path)
            except BaseException:
                self.database.close()
                raise

    def tree(self) -> Tree:
        with sqlite_errors(self.path):
            return read_tree(self.database, self.path, ephemerals=is_locked(self.directory))

    def last_change(self) -> int:
        """Return the number of the last change; 0 if there is none."""
        with sqlite_errors(self.path):
            row = self.database.execute("SELECT max(number) FROM change").fetchone()
        return row[0] or 0

    def changes_after(self, number: int) -> list[PastChange]:
        with sqlite_errors(self.path):
            rows = self.database.execute(
                "SELECT number, zxid, time_ms, kind, path FROM change"
                " WHERE number > ? ORDER BY number",
                (number,),
            ).fetchall()
        return [PastChange(*row) for row in rows]

    def data_version(self) -> int:
        """Return a number that changes with every commit of another process. Cheap enough for polling."""
        with sqlite_errors(self.path):
            return pragma(self.database, "data_version")

    def close(self) -> None:
        self.database.close()


def database_uri(path: str) -> str:
    """Return the SQLite URI to open the database for reading."""
    # Readers of a WAL database need a shared-memory file next to it. Without write access to the directory the database
    # can only be read as immutable, which is safe if there is no WAL: then no process writes.
    parent, log = Path(path).parent, Path(path + "-wal")
    mode = "mode=ro" if os.access(parent, os.W_OK) or log.exists() else "immutable=1"
    return f"{Path(path).absolute().as_uri()}?{mode}"
