"""The writer thread of the embedded registry, the only thread that uses its database.

The thread opens the store. Each commit then takes all transactions that were queued during the previous commit. So a
busy registry needs one fsync for many transactions, and an idle one commits each transaction without delay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from barnabas.errors import StorageError
from barnabas.world.registry.store import Store
from barnabas.world.registry.tree import Transaction, Tree


class Writer:
    """The thread and its queue. It calls `on_committed(last_zxid, failure)` after each commit."""

    def __init__(self, directory: str, on_committed: Callable[[int, StorageError | None], None]):
        self.directory = directory
        self.on_committed = on_committed
        self.queued: list[Transaction] = []
        self.stopping = False
        self.failure: StorageError | None = None
        self.wake = threading.Condition()
        self.opened: Future[Tree] = Future()
        self.closed: Future[None] = Future()

    def start(self, now_ms: int) -> None:
        """Start the thread. `opened` gets the tree without the ephemeral nodes of the previous process."""
        for future in (self.opened, self.closed):
            future.set_running_or_notify_cancel()  # a running future cannot be cancelled
        # A daemon thread, so that a program can exit without EmbeddedRegistry.close(). Nothing acknowledged is lost.
        threading.Thread(
            target=self.run, args=(now_ms,), name="registry-writer", daemon=True
        ).start()

    def put(self, transaction: Transaction) -> None:
        with self.wake:
            self.queued.append(transaction)
            self.wake.notify()

    def stop(self) -> Future[None]:
        """Commit the queued transactions and close the store. The future is done when the thread ends."""
        with self.wake:
            self.stopping = True
            self.wake.notify()
        return self.closed

    # ---- on the thread

    def run(self, now_ms: int) -> None:
        try:
            store, tree = open_store(self.directory, now_ms)
        except BaseException as error:  # noqa: BLE001 - raised by EmbeddedRegistry.open()
            self.opened.set_exception(error)
            self.closed.set_result(None)
            return
        self.opened.set_result(tree)
        try:
            while transactions := self.take():
                self.commit(store, transactions)
            store.close()
        except BaseException as error:  # noqa: BLE001 - raised by EmbeddedRegistry.close()
            self.closed.set_exception(error)
        else:
            self.closed.set_result(None)

    def take(self) -> list[Transaction]:
        """Wait for transactions and return all that are queued. Return an empty list if the thread must end."""
        with self.wake:
            while not self.queued and not self.stopping:
                self.wake.wait()
            taken, self.queued = self.queued, []
            return taken

    def commit(self, store: Store, transactions: list[Transaction]) -> None:
        # Later transactions build on a failed one, so they must not be written either.
        if self.failure is None:
            try:
                store.commit(transactions)
            except StorageError as error:
                self.failure = error
            except Exception as error:  # noqa: BLE001 - a bug, which must reach the waiting callers
                self.failure = StorageError(self.directory, f"commit failed: {error!r}")
        self.on_committed(transactions[-1].zxid, self.failure)


def open_store(directory: str, now_ms: int) -> tuple[Store, Tree]:
    """Open the store and delete the ephemeral nodes of the previous process."""
    store = Store(directory)
    try:
        tree = store.load()
        store.commit([tree.end_session(owner, now_ms=now_ms) for owner in sorted(tree.ephemerals)])
    except BaseException:
        store.close()
        raise
    return store, tree
