"""Loads transactions from a partition of `__transaction_state` (see replication/internal_topic_loader.py).

After that, the coordinator completes every transaction whose outcome was decided.
"""

from __future__ import annotations

import logging

from barnabas.batch.header import BatchHeader
from barnabas.batch.records import Record
from barnabas.errors import RemoteWireError
from barnabas.replication.internal_topic_loader import InternalTopicLoader, PartitionLoad
from barnabas.tasks import Turns
from barnabas.transactions.coordinator import TransactionCoordinator
from barnabas.transactions.records import read_transaction, read_transaction_key
from barnabas.transactions.store import TransactionStore
from barnabas.transactions.transaction import Transaction

logger = logging.getLogger("barnabas.transactions")


class LatestTransactions:
    """Last value of each transactional id, and its offset. Values are decoded later, since most are replaced."""

    def __init__(self) -> None:
        self.latest: dict[str, tuple[bytes, int]] = {}

    def add(self, record: Record, header: BatchHeader) -> None:
        if header.is_control:
            return
        transactional_id = read_transaction_key(record.key or b"")
        if transactional_id is None:
            return  # a key of a newer broker
        if record.value is None:
            self.latest.pop(transactional_id, None)
        else:
            self.latest[transactional_id] = (bytes(record.value), record.offset)


class TransactionLoader(InternalTopicLoader[LatestTransactions]):
    def __init__(self, store: TransactionStore, coordinator: TransactionCoordinator) -> None:
        super().__init__(store, store.config.transaction_state_log_load_buffer_size, logger)
        self.coordinator = coordinator

    def new_records(self) -> LatestTransactions:
        return LatestTransactions()

    async def add_state(self, load: PartitionLoad, found: LatestTransactions) -> str:
        turns = Turns()
        for transactional_id, (value, offset) in found.latest.items():
            await turns.yield_if_due()
            if not self.is_current(load):
                break
            try:
                metadata = read_transaction(value)
            except RemoteWireError as error:
                self.log_skipped(load.partition, offset, error)
                continue
            transaction = Transaction(transactional_id=transactional_id, metadata=metadata)
            self.coordinator.add_loaded_transaction(transaction, load.partition.index)
        return f"transactional_ids={len(found.latest)}" if found.latest else ""

    def drop_state(self, index: int) -> None:
        self.coordinator.drop_partition(index)

    def loaded(self, index: int) -> None:
        self.coordinator.resume_partition(index)
