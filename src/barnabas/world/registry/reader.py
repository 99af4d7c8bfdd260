"""Looking into a registry's database from another process, while a broker runs or after it has ended.

It never writes and never holds the lock longer than it takes to ask who has it. Every read is one consistent
moment of the tree. Ephemeral nodes are hidden when no process has the registry open: their sessions are over,
only nobody has removed them yet.
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
    """One change as the registry recorded it: `kind` is created, changed or deleted."""

    number: int
    zxid: int
    time_ms: int
    kind: str
    path: str


class Reader:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.path = str(Path(directory, DATABASE))
        if not Path(self.path).is_file():
            raise StorageError(self.path, "there is no registry here")
        with sqlite_errors(self.path):
            self.database = sqlite3.connect(address(self.path), uri=True, isolation_level=None)
            try:
                if pragma(self.database, "application_id") != APPLICATION_ID:
                    raise StorageError(self.path, "is not a registry")
                check_version(self.database, self.path)
            except BaseException:
                self.database.close()
                raise

    def tree(self) -> Tree:
        with sqlite_errors(self.path):
            return read_tree(self.database, self.path, ephemerals=is_locked(self.directory))

    def last_change(self) -> int:
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
        """Another number whenever somebody has committed since the last time; costs next to nothing."""
        with sqlite_errors(self.path):
            return pragma(self.database, "data_version")

    def close(self) -> None:
        self.database.close()


def address(path: str) -> str:
    # Readers of a WAL database share a small file beside it. Where that cannot be made, the database can still be
    # read as long as nobody writes, which a missing WAL says.
    parent, log = Path(path).parent, Path(path + "-wal")
    mode = "mode=ro" if os.access(parent, os.W_OK) or log.exists() else "immutable=1"
    return f"{Path(path).absolute().as_uri()}?{mode}"
