"""The one thread that touches the registry's disk.

It opens the store, then commits whatever has been queued since its last commit as one: while an fsync runs,
the next ones gather, so a busy registry pays one fsync for many transactions and an idle one never waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from barnabas.errors import StorageError
from barnabas.world.registry.store import Store
from barnabas.world.registry.tree import Transaction, Tree


class Writer:
    def __init__(self, directory: str, on_committed: Callable[[int, StorageError | None], None]):
        self.directory = directory
        self.on_committed = on_committed
        self.queued: list[Transaction] = []
        self.stopping = False
        self.failure: StorageError | None = None
        self.wake = threading.Condition()
        self.opened: Future[Tree] = Future()
        self.closed: Future[None] = Future()

    def start(self, now_ms: int) -> Future[Tree]:
        """Open the store; the future holds the tree as recovered, without the ephemeral nodes of the process
        that had it before."""
        for future in (self.opened, self.closed):
            future.set_running_or_notify_cancel()  # from here on nobody can cancel it under the thread
        # A daemon, for a program that ends without close() must end; what was acknowledged is on the disk.
        threading.Thread(
            target=self.run, args=(now_ms,), name="registry-writer", daemon=True
        ).start()
        return self.opened

    def put(self, transaction: Transaction) -> None:
        with self.wake:
            self.queued.append(transaction)
            self.wake.notify()

    def stop(self) -> Future[None]:
        """Commit what is queued and close the files."""
        with self.wake:
            self.stopping = True
            self.wake.notify()
        return self.closed

    # ---- on the thread

    def run(self, now_ms: int) -> None:
        try:
            store, tree = recover(self.directory, now_ms)
        except BaseException as error:  # noqa: BLE001 - raised again where open() is awaited
            self.opened.set_exception(error)
            self.closed.set_result(None)
            return
        self.opened.set_result(tree)
        try:
            while transactions := self.take():
                self.commit(store, transactions)
            store.close()
        except BaseException as error:  # noqa: BLE001 - raised again where close() is awaited
            self.closed.set_exception(error)
        else:
            self.closed.set_result(None)

    def take(self) -> list[Transaction]:
        """All that is queued, waiting for the first; nothing once stopped."""
        with self.wake:
            while not self.queued and not self.stopping:
                self.wake.wait()
            taken, self.queued = self.queued, []
            return taken

    def commit(self, store: Store, transactions: list[Transaction]) -> None:
        # What follows a transaction that was not written builds on it, so it must not be written either.
        if self.failure is None:
            try:
                store.commit(transactions)
            except StorageError as error:
                self.failure = error
            except Exception as error:  # noqa: BLE001 - a bug, and those who wait must hear of it
                self.failure = StorageError(self.directory, f"a commit failed: {error!r}")
        self.on_committed(transactions[-1].zxid, self.failure)


def recover(directory: str, now_ms: int) -> tuple[Store, Tree]:
    """Open the store and end the sessions that died with its former process."""
    store = Store(directory)
    try:
        tree = store.load()
        store.commit([tree.end_session(owner, now_ms=now_ms) for owner in tree.owners()])
    except BaseException:
        store.close()
        raise
    return store, tree
