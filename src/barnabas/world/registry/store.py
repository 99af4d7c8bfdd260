"""The files of an embedded registry: a SQLite database of znodes, and a lock file.

    <directory>/registry.db     tables: znode (the current tree), change (the last CHANGES_KEPT changes, for readers
                                that poll for them), state (the zxid of the last transaction)
    <directory>/.lock           locked with flock while the registry is open; contains the pid of the holder

All functions block and must be called on one thread. `commit` returns when its transactions are durable. The database
is in WAL mode with synchronous=FULL. A commit needs one fsync for any number of transactions, and readers in other
processes do not block it. Only the owner can read the database, since it has the SCRAM credentials of all users.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from barnabas.errors import OutOfSpace, StorageError
from barnabas.world.directory_lock import acquire_lock, release_lock
from barnabas.world.registry.tree import ROOT, Node, Transaction, Tree, child_names

DATABASE = "registry.db"
APPLICATION_ID = 0x4261726E  # "Barn", in the SQLite header: identifies a registry database
SCHEMA_VERSION = 1
CHANGES_KEPT = 10_000
OWNER_ONLY = 0o600
OWNER_ONLY_DIRECTORY = 0o700

SCHEMA = """
CREATE TABLE znode (
    path TEXT PRIMARY KEY,
    data BLOB NOT NULL,
    czxid INTEGER NOT NULL,
    mzxid INTEGER NOT NULL,
    pzxid INTEGER NOT NULL,
    ctime_ms INTEGER NOT NULL,
    mtime_ms INTEGER NOT NULL,
    version INTEGER NOT NULL,
    creations INTEGER NOT NULL,
    owner INTEGER NOT NULL
);
CREATE TABLE change (
    number INTEGER PRIMARY KEY,
    zxid INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    path TEXT NOT NULL
);
CREATE TABLE state (zxid INTEGER NOT NULL);
"""
NODE_COLUMNS = "path, data, czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, creations, owner"


class Store:
    def __init__(self, directory: str) -> None:
        self.path = str(Path(directory, DATABASE))
        try:
            Path(directory).mkdir(mode=OWNER_ONLY_DIRECTORY, parents=True, exist_ok=True)
        except OSError as error:
            why = f"cannot be created: {error.strerror}; choose another directory (--data, or barnabas.registry.dir)"
            raise StorageError(directory, why) from error
        with ExitStack() as undo, sqlite_errors(self.path):
            self.lock = acquire_lock(directory, "this registry")
            undo.callback(release_lock, self.lock)
            make_private(self.path)
            self.database = sqlite3.connect(self.path, isolation_level=None)
            undo.callback(self.database.close)
            prepare_database(self.database, self.path)
            undo.pop_all()

    def load(self) -> Tree:
        with sqlite_errors(self.path):
            return read_tree(self.database, self.path)

    def commit(self, transactions: Sequence[Transaction]) -> None:
        """Make all transactions durable. If it raises StorageError, none of them is durable."""
        if not transactions:
            return
        with sqlite_errors(self.path):
            self.database.execute("BEGIN IMMEDIATE")
            try:
                write_transactions(self.database, transactions)
                self.database.execute("UPDATE state SET zxid = ?", (transactions[-1].zxid,))
                self.database.execute(
                    "DELETE FROM change WHERE number <= (SELECT max(number) FROM change) - ?",
                    (CHANGES_KEPT,),
                )
                self.database.execute("COMMIT")
            except sqlite3.Error:
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")
                raise

    def close(self) -> None:
        try:
            with sqlite_errors(self.path):
                self.database.close()
        finally:
            release_lock(self.lock)


def make_private(path: str) -> None:
    """Create the database file, or remove the permissions of other users. SQLite gives its other files the same mode.

    The mode of a file that belongs to another user stays. Raises StorageError.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY))
    except FileExistsError:
        for each in (path, f"{path}-wal", f"{path}-shm"):
            with suppress(FileNotFoundError, PermissionError):
                Path(each).chmod(OWNER_ONLY)
    except OSError as error:
        raise StorageError(path, f"cannot be created: {error.strerror}") from error


def prepare_database(database: sqlite3.Connection, path: str) -> None:
    """Create the schema in an empty database. Raises StorageError for a database of another program or version."""
    if pragma(database, "application_id") != APPLICATION_ID:
        if database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StorageError(
                path, "is a SQLite database of another program; choose another directory"
            )
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        # One transaction, including the application id: an interrupted start leaves an empty database.
        database.executescript(
            f"BEGIN; {SCHEMA} INSERT INTO state VALUES (0);"
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT"
        )
        return
    check_version(database, path)
    database.execute("PRAGMA synchronous = FULL")


def check_version(database: sqlite3.Connection, path: str) -> None:
    version = pragma(database, "user_version")
    if version != SCHEMA_VERSION:
        raise StorageError(
            path,
            f"has schema version {version}, this Barnabas reads {SCHEMA_VERSION}: "
            "use the version of Barnabas that wrote it",
        )


def read_tree(database: sqlite3.Connection, path: str, *, ephemerals: bool = True) -> Tree:
    """Return a consistent snapshot of the tree, with or without its ephemeral nodes."""
    rows = database.execute(
        f"SELECT {NODE_COLUMNS}, (SELECT zxid FROM state) FROM znode WHERE owner = 0 OR ?",
        (ephemerals,),
    ).fetchall()
    if not rows:
        (zxid,) = database.execute("SELECT zxid FROM state").fetchone()
        return Tree(zxid=zxid)
    zxid = rows[0][-1]
    names = child_names(row[0] for row in rows)
    nodes = {row[0]: Node._make((*row[1:-1], len(names.get(row[0], ())))) for row in rows}
    for parent in (ROOT, *names):
        if parent not in nodes:
            raise StorageError(path, f"is corrupt ({parent} is missing); {NEXT_STEP}")
    return Tree(nodes, zxid)


def write_transactions(database: sqlite3.Connection, transactions: Sequence[Transaction]) -> None:
    # Write only the last version of each node: every new child changes its parent.
    touched: dict[str, Node | None] = {}
    for transaction in transactions:
        touched.update(transaction.touched)
    database.executemany(
        "DELETE FROM znode WHERE path = ?",
        [(path,) for path, node in touched.items() if node is None],
    )
    database.executemany(
        f"INSERT OR REPLACE INTO znode ({NODE_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?)",
        [(path, *node[:-1]) for path, node in touched.items() if node is not None],
    )
    database.executemany(
        "INSERT INTO change (zxid, time_ms, kind, path) VALUES (?,?,?,?)",
        [
            (transaction.zxid, transaction.time_ms, str(change.kind), change.path)
            for transaction in transactions
            for change in transaction.changes
        ],
    )


def pragma(database: sqlite3.Connection, name: str) -> int:
    value: int = database.execute(f"PRAGMA {name}").fetchone()[0]
    return value


# ---- SQLite errors ----------------------------------------------------------------------------------------

NEXT_STEP = "restore it from a backup, or move it away to start with an empty registry"


@contextmanager
def sqlite_errors(path: str) -> Iterator[None]:
    """Turn a sqlite3.Error in the `with` block into a StorageError."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise OutOfSpace(path, "no space left on the volume for the registry") from error
        lacks_table = code == sqlite3.SQLITE_ERROR and "no such" in str(error)
        if lacks_table or code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise StorageError(path, f"is corrupt ({error}); {NEXT_STEP}") from error
        raise StorageError(path, str(error)) from error
