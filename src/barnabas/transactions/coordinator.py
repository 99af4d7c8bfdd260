"""Transaction coordinator of one broker. It passes events to transactions and executes their effects.

    request, timeout ─► transaction_events.py (pure) ─► append to the log ─► response
                                                              └─► markers ─► append to the log

Transactions are loaded when this broker starts to lead their partition of __transaction_state, and dropped when it
stops: `add_loaded_transaction`, `drop_partition`. The effects of a dropped transaction are ignored: its next
coordinator continues from the log.

A request runs to its end even if its client disconnects (broker/router.py), so every pending move ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from random import Random

from msgspec.structs import asdict

from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode
from barnabas.history.coordinator_recorder import CoordinatorRecorder
from barnabas.model import BrokerId, TopicPartition
from barnabas.retry import Backoff
from barnabas.tasks import Tasks
from barnabas.transactions import transaction_events
from barnabas.transactions.marker_channels import MarkerChannels
from barnabas.transactions.markers import MarkerEntry
from barnabas.transactions.records import transaction_record, transaction_tombstone
from barnabas.transactions.store import TransactionStore
from barnabas.transactions.transaction import Transaction
from barnabas.transactions.transaction_changes import (
    TransactionChange,
    TransactionClient,
    expiry,
    fencing,
    takeover,
)
from barnabas.transactions.transaction_events import (
    Decision,
    ProducerIdentity,
    StoreTransaction,
    TransactionAnswer,
    WriteMarkers,
)
from barnabas.world.ports import Clock, Network

logger = logging.getLogger("barnabas.transactions")

COMPLETION_RETRY_SECONDS = (0.05, 1.0)
COMPLETION_WAIT_SECONDS = 0.05
"""A request waits up to this long until the previous transaction of its producer is complete.

Otherwise its client would get CONCURRENT_TRANSACTIONS, and send the request again after 20 to 100 ms.
"""

TakeProducerId = Callable[[], Awaitable[int]]
"""Returns a new producer id. Raises ApiError."""


class TransactionCoordinator:
    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: TransactionStore,
        clock: Clock,
        network: Network,
        recorder: CoordinatorRecorder | None = None,
    ) -> None:
        self.config = config
        self.recorder = recorder
        self.store = store
        self.clock = clock
        self.transactions: dict[str, Transaction] = {}
        self.partitions: dict[str, int] = {}
        """Partition of __transaction_state by transactional id."""
        self.completions: dict[str, asyncio.Event] = {}
        """Set when a transaction is complete, by transactional id. Requests wait for it."""
        self.channels = MarkerChannels(
            broker_id=BrokerId(config.broker_id),
            network=network,
            metadata=store.metadata,
            listener=config.inter_broker_listener,
            timeout_s=config.request_timeout_ms / 1000,
            owner=self,
        )
        self.tasks = Tasks()
        self.is_stopping = False

    # ---- transactions of this broker

    def find(self, transactional_id: str) -> Transaction | None:
        """Return the transaction, or None if the transactional id is unknown.

        Raises ApiError if the id is empty, or if this broker does not coordinate it now.
        """
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if self.is_stopping:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        partition = self.store.partition_for(transactional_id)
        if partition in self.store.loading:
            why = f"transactional id {transactional_id!r} is being loaded"
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, why)
        if not self.store.is_led(partition):
            why = f"this broker does not coordinate transactional id {transactional_id!r}"
            raise ApiError(ErrorCode.NOT_COORDINATOR, why)
        return self.transactions.get(transactional_id)

    def require(self, transactional_id: str) -> Transaction:
        """Return the transaction. Raises ApiError as `find` does, and if the transactional id is unknown."""
        transaction = self.find(transactional_id)
        if transaction is None:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"transactional id {transactional_id!r} is not initialized, or has expired",
            )
        return transaction

    def is_current(self, transaction: Transaction) -> bool:
        """Return whether this broker still coordinates the transaction."""
        return self.transactions.get(transaction.transactional_id) is transaction

    def add(self, transaction: Transaction, partition: int) -> None:
        self.transactions[transaction.transactional_id] = transaction
        self.partitions[transaction.transactional_id] = partition

    def add_loaded_transaction(self, transaction: Transaction, partition: int) -> None:
        """Add a transaction that was loaded from the log. `resume_partition` continues it."""
        self.add(transaction, partition)

    def resume_partition(self, partition: int) -> None:
        """Write the markers of the loaded transactions whose outcome is decided."""
        now_ms = self.clock.now_ms()
        for transactional_id, index in list(self.partitions.items()):
            if index == partition:
                transaction = self.transactions[transactional_id]
                self.record(transaction, takeover(transaction, now_ms))
                markers = transaction_events.begin_completion(transaction)
                if markers is not None:
                    self.write_markers(transaction, markers)

    def drop(self, transaction: Transaction) -> None:
        del self.transactions[transaction.transactional_id]
        del self.partitions[transaction.transactional_id]
        self.wake_waiting_requests(transaction)

    def drop_partition(self, partition: int) -> None:
        """Drop the transactions of a partition that this broker no longer leads."""
        for name in [name for name, index in self.partitions.items() if index == partition]:
            self.drop(self.transactions[name])
        self.store.drop_deferred(partition)

    async def stop(self) -> None:
        self.is_stopping = True
        self.transactions.clear()
        self.partitions.clear()
        await self.channels.stop()
        await self.tasks.stop()

    # ---- requests

    async def init_producer_id(
        self,
        transactional_id: str,
        expected: ProducerIdentity | None,
        *,
        timeout_ms: int,
        take_producer_id: TakeProducerId,
        client: TransactionClient | None = None,
    ) -> TransactionAnswer:
        """Return the producer id and epoch of a transactional producer, or an error code."""
        if not transactional_id:
            return TransactionAnswer(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            return TransactionAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        new_producer_id: int | None = None
        try:
            transaction = self.find(transactional_id)
            if transaction is not None and transaction.is_completing:
                await self.wait_for_completion(transaction)
                transaction = self.find(transactional_id)
            if transaction is None or transaction_events.needs_producer_id(transaction, expected):
                new_producer_id = await take_producer_id()
                transaction = self.find(transactional_id)  # may have changed meanwhile
        except ApiError as error:
            return TransactionAnswer(error.code)
        now_ms = self.clock.now_ms()
        if transaction is None:
            assert new_producer_id is not None
            transaction = transaction_events.create_transaction(
                transactional_id, new_producer_id, timeout_ms, now_ms
            )
            self.add(transaction, self.store.partition_for(transactional_id))
        elif new_producer_id is None and transaction_events.needs_producer_id(
            transaction, expected
        ):
            return TransactionAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
        decision = transaction_events.handle_init(
            transaction,
            expected,
            timeout_ms=timeout_ms,
            new_producer_id=new_producer_id,
            now_ms=now_ms,
        )
        self.record_fencing(transaction, decision, expected, "InitProducerId")
        return await self.execute(transaction, decision, client)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
    ) -> ErrorCode:
        try:
            transaction = self.require(transactional_id)
            if transaction.is_completing:
                await self.wait_for_completion(transaction)
                transaction = self.require(transactional_id)
        except ApiError as error:
            return error.code
        decision = transaction_events.handle_add_partitions(
            transaction, producer, partitions, self.clock.now_ms()
        )
        self.record_fencing(transaction, decision, producer, "AddPartitionsToTxn")
        return (await self.execute(transaction, decision)).code

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Return NONE for each partition of the transaction of this producer, else the error."""
        try:
            transaction = self.require(transactional_id)
        except ApiError as error:
            return dict.fromkeys(partitions, error.code)
        return transaction_events.verify_partitions(transaction, producer, partitions)

    async def end(
        self, transactional_id: str, producer: ProducerIdentity, *, is_commit: bool
    ) -> ErrorCode:
        try:
            transaction = self.require(transactional_id)
        except ApiError as error:
            return error.code
        decision = transaction_events.handle_end(
            transaction, producer, is_commit=is_commit, now_ms=self.clock.now_ms()
        )
        self.record_fencing(transaction, decision, producer, "EndTxn")
        return (await self.execute(transaction, decision)).code

    async def wait_for_completion(self, transaction: Transaction) -> None:
        """Wait until the transaction is complete or dropped, for a short time only."""
        completed = self.completions.setdefault(transaction.transactional_id, asyncio.Event())
        with suppress(TimeoutError):
            async with asyncio.timeout(COMPLETION_WAIT_SECONDS):
                await completed.wait()

    def wake_waiting_requests(self, transaction: Transaction) -> None:
        completed = self.completions.pop(transaction.transactional_id, None)
        if completed is not None:
            completed.set()

    # ---- effects

    async def execute(
        self,
        transaction: Transaction,
        decision: Decision,
        client: TransactionClient | None = None,
    ) -> TransactionAnswer:
        """Execute the effect of an event, and return the answer to the request."""
        if isinstance(decision, TransactionAnswer):
            return decision
        code = ErrorCode.NOT_COORDINATOR
        if self.is_current(transaction):
            code = await self.store_transaction(transaction, decision)
        if not self.is_current(transaction):
            return TransactionAnswer(ErrorCode.NOT_COORDINATOR)
        answer, markers = transaction_events.finish_store(transaction, decision, code)
        if code is ErrorCode.NONE:
            self.record(transaction, decision.change, client)
        if markers is not None:
            self.write_markers(transaction, markers)
        return answer

    async def store_transaction(
        self, transaction: Transaction, effect: StoreTransaction
    ) -> ErrorCode:
        after = effect.after
        record = transaction_record(transaction.transactional_id, after)
        return await self.append(transaction, [record], after.timeout_ms / 1000)

    async def append(
        self,
        transaction: Transaction,
        records: Sequence[tuple[bytes, bytes | None]],
        timeout_s: float,
    ) -> ErrorCode:
        """Append records to the partition of the transaction. Return NONE, or the error code."""
        partition = self.partitions[transaction.transactional_id]
        try:
            await self.store.append(partition, records, timeout_s)
        except ApiError as error:
            logger.info(
                "cannot store transactional_id=%s state=%s error=%s",
                transaction.transactional_id,
                transaction.pending,
                error,
            )
            return error.code
        except Exception:
            # The pending move must end, or the transactional id would be unusable until the next coordinator.
            logger.exception("cannot store transactional_id=%s", transaction.transactional_id)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    def write_markers(self, transaction: Transaction, markers: WriteMarkers) -> None:
        partition = self.partitions[transaction.transactional_id]
        epoch = self.store.led.get(partition)
        if epoch is not None:
            self.channels.send(
                MarkerEntry(
                    transaction, markers.producer, markers.is_commit, epoch, markers.partitions
                )
            )

    def markers_written(
        self, transaction: Transaction, partitions: Collection[TopicPartition]
    ) -> None:
        """Called by MarkerChannels for a current transaction."""
        effect = transaction_events.finish_markers(transaction, partitions, self.clock.now_ms())
        if effect is not None and not self.complete(transaction, effect):
            name = f"complete-transaction-{transaction.transactional_id}"
            self.tasks.start(name, self.retry_completion(transaction, effect))

    async def retry_completion(self, transaction: Transaction, effect: StoreTransaction) -> None:
        """Append the completion when enough replicas are in sync and the disk has space."""
        backoff = Backoff(
            *COMPLETION_RETRY_SECONDS, random=Random(transaction.metadata.producer_id)
        )
        while True:
            await backoff.wait()
            if not self.is_current(transaction) or self.complete(transaction, effect):
                return

    def complete(self, transaction: Transaction, effect: StoreTransaction) -> bool:
        """Append the completion. Return whether that was possible.

        The next move does not wait for its replication: the record of that move follows in the same log. If the
        completion is lost, the next coordinator writes the markers again, and then the completion.
        """
        record = transaction_record(transaction.transactional_id, effect.after)
        partition = self.partitions[transaction.transactional_id]
        if transaction.transactional_id in self.completions:
            # The record of the waiting request follows at once.
            self.store.append_with_next(partition, record)
            code = ErrorCode.NONE
        else:
            code = self.store.append_unacknowledged(partition, [record])
        if code is not ErrorCode.NONE:
            return False
        transaction_events.finish_store(transaction, effect, code)
        self.wake_waiting_requests(transaction)
        return True

    # ---- timeouts and expiry; see coordinator_checks.py

    def abort_if_timed_out(self, transaction: Transaction) -> bool:
        """Start to abort the transaction if it exceeds its timeout. Return whether it does."""
        effect = transaction_events.abort_timed_out(transaction, self.clock.now_ms())
        if effect is None:
            return False
        name = f"abort-transaction-{transaction.transactional_id}"
        self.tasks.start(name, self.finish_abort(transaction, effect))
        return True

    async def finish_abort(self, transaction: Transaction, effect: StoreTransaction) -> None:
        answer = await self.execute(transaction, effect)
        log = logger.info if answer.code is ErrorCode.NONE else logger.warning
        log(
            "transaction timed out transactional_id=%s timeout_ms=%d result=%s",
            transaction.transactional_id,
            effect.after.timeout_ms,
            answer.code.name,
        )

    async def expire(self, transactions: Sequence[Transaction]) -> int:
        """Delete unused transactional ids of one partition. Return the number of deleted ids."""
        now_ms = self.clock.now_ms()
        expiration_ms = self.config.transactional_id_expiration_ms
        due = [
            each
            for each in transactions
            if self.is_current(each)
            and transaction_events.begin_expiry(each, now_ms, expiration_ms)
        ]
        if not due:
            return 0
        tombstones = [transaction_tombstone(each.transactional_id) for each in due]
        code = await self.append(due[0], tombstones, self.config.request_timeout_ms / 1000)
        deleted = 0
        for each in due:
            if self.is_current(each) and transaction_events.finish_expiry(each, code):
                self.record(each, expiry(each, expiration_ms))
                self.drop(each)
                deleted += 1
        return deleted

    # ---- history

    def record(
        self,
        transaction: Transaction,
        change: TransactionChange | None,
        client: TransactionClient | None = None,
    ) -> None:
        """Record a change of a current transaction in the history, if there is one."""
        if change is None or self.recorder is None:
            return
        partition = self.partitions[transaction.transactional_id]
        facts = {
            "coordinator_epoch": self.store.led.get(partition, -1),
            **asdict(change),
            "by": None if client is None else client.client_id,
            "host": None if client is None else client.host,
        }
        self.recorder.record_transaction(transaction.transactional_id, facts)

    def record_fencing(
        self,
        transaction: Transaction,
        decision: Decision,
        producer: ProducerIdentity | None,
        request: str,
    ) -> None:
        """Record that a request of a fenced producer is rejected."""
        if (
            producer is not None
            and isinstance(decision, TransactionAnswer)
            and decision.code is ErrorCode.PRODUCER_FENCED
        ):
            self.record(transaction, fencing(transaction, *producer, request))
