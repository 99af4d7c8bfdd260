"""A producer whose records become visible to read_committed consumers together, or not at all.

    producer = TransactionalProducer(cluster, "payments-1")     fences other producers with this id
    producer.begin()
    producer.send("orders", b"…")
    producer.send_offsets(group, offsets)
    producer.commit()                                            or abort()

          ┌─────── commit, abort ───────┐
          ▼                             │
        READY ────── begin ──────────► OPEN ── an error ──► FAILED ── abort ──► READY
                                        │                      │
                                        └── fenced ──► FENCED ◄┘

A FAILED transaction can only be aborted. A FENCED producer can only be closed. If the response to a commit is lost for
longer than the timeout of the cluster, the transaction is ENDING: its result is unknown until `commit` is repeated or
`abort` is called, or until another producer takes over the transactional id. `abort` then raises an error if the commit
has taken effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from functools import partial
from random import Random

from barnabas.batch.compression import Compression
from barnabas.batch.records import Record, build_batch
from barnabas.client.cluster import Cluster
from barnabas.client.producer import ACKS_ALL, PendingBatch, Producer
from barnabas.client.transactions import (
    FENCED_ERRORS,
    TRANSACTION_TIMEOUT_MS,
    GroupSender,
    TransactionLink,
)
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import TopicPartition


class ProducerPhase(Enum):
    READY = auto()
    OPEN = auto()
    FAILED = auto()
    ENDING = auto()
    FENCED = auto()


class TransactionalProducer(Producer):
    """Producer with a transactional id. The constructor fences other producers with the same id, and aborts their
    open transaction.

    A transaction that is open for longer than `timeout_ms` is aborted by its coordinator.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        compression: Compression = Compression.NONE,
        random: Random | None = None,
    ) -> None:
        if not transactional_id:
            raise ConfigError("transactional.id", "has at least one character")
        super().__init__(
            cluster, acks=ACKS_ALL, compression=compression, idempotent=True, random=random
        )
        self.transactional_id = transactional_id
        self.link = TransactionLink(cluster, transactional_id, timeout_ms=timeout_ms)
        self.phase = ProducerPhase.READY
        self.failure: ApiError | None = None
        self.partitions: set[TopicPartition] = set()
        """Partitions of the transaction."""
        self.groups: set[str] = set()
        """Groups whose offsets are part of the transaction."""
        self.is_commit_sent = False
        """Whether the coordinator may have committed the transaction."""
        self.identity = self.link.init()

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and has not ended."""
        return self.phase in (ProducerPhase.OPEN, ProducerPhase.FAILED)

    @property
    def is_ending(self) -> bool:
        """Whether the result of the last commit is unknown."""
        return self.phase is ProducerPhase.ENDING

    @property
    def needs_abort(self) -> bool:
        """Whether the last transaction failed, or its result is unknown."""
        return self.phase in (ProducerPhase.FAILED, ProducerPhase.ENDING)

    def begin(self) -> None:
        """Begin a transaction. The coordinator learns of it with the first record."""
        self.require(ProducerPhase.READY, "a transaction is open; commit or abort it first")
        self.phase = ProducerPhase.OPEN

    def target(self, topic: str, key: bytes | None, partition: int | None) -> TopicPartition:
        self.require_open()
        return super().target(topic, key, partition)

    def send_buffers(self) -> None:
        if self.buffers:
            self.require_open()
        try:
            super().send_buffers()
        except BaseException as error:
            self.fail(error)
            raise

    def send_batches(self, batches: Mapping[TopicPartition, PendingBatch]) -> None:
        added = sorted(each for each in batches if each not in self.partitions)
        if added:
            # Before the request: if that fails, the transaction may have begun, or not. `abort` handles both.
            self.partitions.update(added)
            self.link.add_partitions(added)
        super().send_batches(batches)

    def pending_batch(self, records: list[Record]) -> PendingBatch:
        build = partial(build_batch, records, compression=self.compression, is_transactional=True)
        return PendingBatch(len(records), build)

    def send_offsets(self, sender: GroupSender, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group with the transaction. An offset is the next one to read."""
        self.require_open()
        if not offsets:
            return
        try:
            if sender.group_id not in self.groups:
                self.groups.add(sender.group_id)
                self.link.add_group(sender.group_id)
            self.link.commit_offsets(sender, offsets)
        except BaseException as error:
            self.fail(error)
            raise

    def commit(self) -> None:
        """Send the buffered records and commit. Raises ApiError; then the transaction must be aborted, except if it
        is ENDING."""
        if self.phase is not ProducerPhase.ENDING:
            self.require_open()
            self.send_buffers()
        if self.partitions or self.groups:
            self.phase = ProducerPhase.ENDING
            self.is_commit_sent = True
            try:
                self.link.end(is_commit=True)
            except ApiError as error:
                if not error.code.retriable:
                    self.fail(error)
                raise
        self.reset(ProducerPhase.READY)

    def abort(self) -> None:
        """Drop the buffered records and abort the transaction. If this raises a retriable error, call it again.

        Raises ApiError INVALID_TXN_STATE if an earlier commit has taken effect, whose result was unknown. Another
        transaction may begin then.
        """
        if not self.is_open and not self.is_ending:
            self.require(ProducerPhase.OPEN, "there is no transaction to abort")
        self.buffers.clear()
        self.buffered_bytes = 0
        needs_new_epoch = self.needs_abort
        try:
            if self.partitions or self.groups:
                self.end_with_abort()
                self.partitions.clear()
                self.groups.clear()
            if needs_new_epoch:
                # It is unknown which sequence numbers the brokers have seen. With a new epoch they start at 0. It also
                # fences late requests of this transaction.
                self.identity = self.link.init()
                self.sequences.clear()
        except BaseException as error:
            self.fail(error)
            raise
        is_committed = self.is_commit_sent
        self.reset(ProducerPhase.READY)
        if is_committed:
            why = (
                "cannot abort: the commit has taken effect after all; do not send its records again"
            )
            raise ApiError(ErrorCode.INVALID_TXN_STATE, why)

    def end_with_abort(self) -> None:
        """Abort the transaction if it is open at the coordinator. After a commit, `is_commit_sent` remains set."""
        try:
            self.link.end(is_commit=False)
        except ApiError as error:
            # No transaction is open: it was committed, or the first partition or group could not be added.
            if not self.needs_abort or error.code is not ErrorCode.INVALID_TXN_STATE:
                raise
        else:
            self.is_commit_sent = False

    def reset(self, phase: ProducerPhase) -> None:
        self.phase = phase
        self.failure = None
        self.partitions.clear()
        self.groups.clear()
        self.is_commit_sent = False

    def fail(self, error: BaseException) -> None:
        """Note that the transaction has failed. If the producer is fenced, all later calls fail."""
        if isinstance(error, ApiError):
            self.failure = self.failure or error
            is_fenced = error.code in FENCED_ERRORS
            self.phase = ProducerPhase.FENCED if is_fenced else ProducerPhase.FAILED
        else:
            self.phase = ProducerPhase.FAILED

    def require_open(self) -> None:
        self.require(ProducerPhase.OPEN, "no transaction is open; begin one first")

    def require(self, phase: ProducerPhase, why: str) -> None:
        """Raise ApiError if the producer is in another phase."""
        if self.phase is phase:
            return
        match self.phase:
            case ProducerPhase.FENCED:
                code = ErrorCode.PRODUCER_FENCED
                why = self.link.describe_error(code)
            case ProducerPhase.FAILED:
                # Not the code of the failure: a retriable one would ask to repeat a call that cannot succeed.
                code = ErrorCode.INVALID_TXN_STATE
                why = f"the transaction has failed ({self.failure or 'interrupted'}); abort it"
            case ProducerPhase.ENDING:
                code = ErrorCode.INVALID_TXN_STATE
                why = "the result of the last commit is unknown; repeat it, or abort it"
            case _:
                code = ErrorCode.INVALID_TXN_STATE
        raise ApiError(code, why)
