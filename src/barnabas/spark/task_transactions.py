"""The task's part of the exactly-once sink: a transaction that stays open when the task ends.

Each Python worker has transactional ids of its own (TransactionalIds). A new transaction of an id gets a new epoch,
so (transactional id, producer id, epoch) names one transaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from barnabas.client.cluster import Cluster
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.client.transactions import FENCED_ERRORS
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.spark.client_settings import PREFIX
from barnabas.spark.commit_records import TaskTransaction, TransactionalIds, task_id_prefix
from barnabas.spark.lookup import explain_error
from barnabas.spark.options import TRANSACTION_TIMEOUT, WriteOptions

ABORT_TIMEOUT_S = 5.0
"""How long a failed task tries to abort its transaction."""

process_ids: dict[int, TransactionalIds] = {}
"""The transactional ids by process id: Spark forks its workers, and a fork must not share them."""


def reusable_transactional_id(scope: str, batch_id: int) -> str:
    """Return an id of this process whose last transaction is older than the previous batch."""
    ids = process_ids.get(os.getpid())
    if ids is None:
        ids = process_ids[os.getpid()] = TransactionalIds(uuid4().hex)
    return ids.take(scope, batch_id)


def fresh_transactional_id(scope: str) -> str:
    """Return an id for one transaction. Batch jobs use it, because they do not report when a transaction has ended."""
    return f"{task_id_prefix(scope)}{uuid4().hex}"


def open_transaction(
    cluster: Cluster, transactional_id: str, options: WriteOptions
) -> TransactionalProducer:
    """Begin a transaction. This aborts the last one of this id, if it is still open: its task failed.

    Raises ConfigError if the brokers do not allow the timeout.
    """
    timeout_ms = options.transaction_timeout_ms
    try:
        producer = TransactionalProducer(
            cluster, transactional_id, timeout_ms=timeout_ms, compression=options.compression
        )
    except ApiError as error:
        if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise explain_error(error) from None
        why = f"{timeout_ms} is more than transaction.max.timeout.ms of the brokers; change one of the two"
        raise ConfigError(PREFIX + TRANSACTION_TIMEOUT, why) from None
    producer.begin()
    return producer


def explain_timed_out(error: ApiError, options: WriteOptions) -> ConfigError | None:
    """Return a ConfigError if the coordinator has aborted the transaction of a task that still writes, else None."""
    if not options.exactly_once or error.code not in FENCED_ERRORS:
        return None
    why = (
        f"the transaction of a task was aborted, because it was open for more than "
        f"{options.transaction_timeout_ms} ms; make batches smaller, or raise this setting and "
        "transaction.max.timeout.ms of the brokers"
    )
    return ConfigError(PREFIX + TRANSACTION_TIMEOUT, why)


def transaction_identity(producer: TransactionalProducer) -> TaskTransaction:
    assert producer.identity is not None
    return TaskTransaction(producer.transactional_id or "", *producer.identity)


@contextmanager
def aborted_on_error(producer: TransactionalProducer) -> Iterator[None]:
    """Abort the transaction if the block fails, so that readers do not wait for its timeout."""
    try:
        yield
    except BaseException:
        producer.cluster.timeout_s = min(producer.cluster.timeout_s, ABORT_TIMEOUT_S)
        with suppress(ApiError):
            if producer.partitions:
                producer.link.end(is_commit=False)
        raise
