"""Periodic checks of a transaction coordinator: transactions that time out, and transactional ids that expire.

Ongoing for longer than its timeout                                 abort, and fence the producer
at rest since transactional.id.expiration.ms                        delete with a tombstone
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from barnabas.tasks import Turns
from barnabas.transactions.coordinator import TransactionCoordinator
from barnabas.transactions.transaction import Transaction

logger = logging.getLogger("barnabas.transactions")

EXPIRED_PER_BATCH = 1000


async def abort_timed_out_periodically(coordinator: TransactionCoordinator) -> None:
    """Abort transactions that exceed their timeout, until cancelled."""
    config = coordinator.config
    period_s = config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000
    while True:
        await asyncio.sleep(period_s)
        try:
            async for transaction in coordinated_transactions(coordinator):
                coordinator.abort_if_timed_out(transaction)
        except Exception:
            logger.exception("cannot check for timed-out transactions")


async def expire_ids_periodically(coordinator: TransactionCoordinator) -> None:
    """Delete expired transactional ids, until cancelled."""
    config = coordinator.config
    period_s = config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
    while True:
        await asyncio.sleep(period_s)
        try:
            await expire_transactional_ids(coordinator)
        except Exception:
            logger.exception("cannot delete expired transactional ids")


async def expire_transactional_ids(coordinator: TransactionCoordinator) -> None:
    by_partition: dict[int, list[Transaction]] = {}
    async for transaction in coordinated_transactions(coordinator):
        partition = coordinator.partitions[transaction.transactional_id]
        by_partition.setdefault(partition, []).append(transaction)
    deleted = 0
    for transactions in by_partition.values():
        for start in range(0, len(transactions), EXPIRED_PER_BATCH):
            deleted += await coordinator.expire(transactions[start : start + EXPIRED_PER_BATCH])
    if deleted:
        logger.info("deleted expired transactional ids=%d", deleted)


async def coordinated_transactions(
    coordinator: TransactionCoordinator,
) -> AsyncIterator[Transaction]:
    """Iterate over the transactions of this broker. Other tasks run in between and may drop some, which are skipped."""
    turns = Turns()
    for transaction in list(coordinator.transactions.values()):
        await turns.yield_if_due()
        if coordinator.is_current(transaction) and coordinator.store.is_led(
            coordinator.partitions[transaction.transactional_id]
        ):
            yield transaction
