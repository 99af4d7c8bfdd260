"""Producer: buffers records and sends them in batches, in the thread of the caller, or in transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, NamedTuple, Self, TypedDict

from barnabas.api.connection import Connection, ConnectionUser, existing_topic
from barnabas.api.group_consumer import GroupConsumer
from barnabas.api.settings import (
    Data,
    HeaderPairs,
    parse_acks,
    parse_compression_type,
    require_positive,
    to_bytes,
    to_headers,
    to_int64,
)
from barnabas.client import producer as client_producer
from barnabas.client.blocking import Deadline, now_ms
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.client.transactions import TRANSACTION_TIMEOUT_MS
from barnabas.errors import ApiError, BarnabasError, ConfigError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.security.client_sources import SecuritySource

LINGER_MS = 100


class RecordMetadata(NamedTuple):
    """The place of a produced record. `offset` is -1 if it is unknown: always with acks=0."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Delivery:
    """A record that was passed to `Producer.send`. Like a future, it has `done` and `result`."""

    __slots__ = ("_error", "_offset", "_producer", "partition", "timestamp", "topic")

    def __init__(self, producer: Producer, topic: str, partition: int, timestamp: int) -> None:
        self.topic = topic
        self.partition = partition
        self.timestamp = timestamp
        self._producer: Producer | None = producer
        self._offset = -1
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        state = f"offset {self._offset}" if self.done() else "not sent"
        return f"<Delivery to {self.topic}-{self.partition}, {self._error or state}>"

    def done(self) -> bool:
        """Whether the record was acknowledged, or failed."""
        return self._producer is None

    def result(self) -> RecordMetadata:
        """Return the place of the record. Flushes the producer if necessary. Raises ApiError if it failed."""
        if self._producer is not None:
            self._producer.flush()
        if self._error is not None:
            raise self._error
        return RecordMetadata(self.topic, self.partition, self._offset, self.timestamp)

    def _complete(self, offset: int, error: BaseException | None = None) -> None:
        self._producer, self._offset, self._error = None, offset, error


class ProducerSettings(TypedDict, total=False):
    """Settings of a Producer, for `Client.producer`."""

    acks: int | Literal["all"]
    compression_type: str
    linger_ms: float
    enable_idempotence: bool | None
    transactional_id: str | None
    transaction_timeout_ms: int


class Producer(ConnectionUser):
    """Sends records. Use it in a `with` statement, which flushes at its end, or call `close`.

    There is no background thread. `send` buffers a record. The producer sends the buffer in `flush`, in `close`, and in
    a `send` when it is full (8 MiB) or its oldest record is `linger_ms` old. `linger_ms=0` sends every record at once.

    `acks` is "all", 1 or 0. `compression_type` is "none", "gzip", "snappy", "lz4" or "zstd". `enable_idempotence=None`
    enables idempotence with acks="all": a retry then never writes a record twice. The client retries until its
    request_timeout_ms is over.

    With a `transactional_id`, records are sent in transactions. The constructor fences other producers with the same
    id, and aborts their open transaction. The cluster aborts a transaction that is open for `transaction_timeout_ms`.

        with producer.transaction():
            producer.send("orders", b"one order")
    """

    def __init__(
        self,
        bootstrap_servers: Connection | str | Sequence[str],
        *,
        acks: int | Literal["all"] = "all",
        compression_type: str = "none",
        linger_ms: float = LINGER_MS,
        enable_idempotence: bool | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        security: SecuritySource = None,
    ) -> None:
        self._acks = parse_acks(acks)
        self._compression = parse_compression_type(compression_type)
        self._idempotence = enable_idempotence
        if enable_idempotence and self._acks != client_producer.ACKS_ALL:
            raise ConfigError("enable_idempotence", "needs acks='all'")
        if linger_ms < 0:
            raise ConfigError("linger_ms", f"{linger_ms!r} is less than 0")
        if transactional_id is not None:
            check_transactional(transactional_id, self._acks, enable_idempotence)
        require_positive("transaction_timeout_ms", transaction_timeout_ms)
        self._transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._linger_s = linger_ms / 1000
        super().__init__(bootstrap_servers, security=security)
        self._deadline: Deadline | None = None
        """When the buffer has to be sent; None if it is empty."""
        self._pending: dict[TopicPartition, deque[Delivery]] = {}
        """Deliveries of the buffered records, in their order per partition."""
        self._sent_offsets: dict[GroupConsumer, dict[TopicPartition, int]] = {}
        """Offsets of consumers in the open transaction."""
        try:
            self._producer = self._new_producer()
        except BaseException:
            self._close(is_failed=True)
            raise

    def send(
        self,
        topic: str,
        value: Data = None,
        *,
        key: Data = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Buffer a record. `timestamp` is in milliseconds, None means now. Without `partition`, the key determines it,
        as in Kafka's Java client.

        Raises ApiError if the topic or the partition does not exist, or if this call sends the buffer and that fails.
        Raises TypeError for an argument of a wrong type. The record is not buffered then.
        """
        cluster = self._open_cluster()
        key_bytes, value_bytes = to_bytes("key", key), to_bytes("value", value)
        header_pairs = to_headers(headers)
        timestamp = now_ms() if timestamp is None else to_int64("timestamp", timestamp)
        if partition is not None:
            partition = to_int64("partition", partition)
        if topic not in cluster.view.topics:
            existing_topic(cluster, topic)
        target = self._producer.add(
            topic,
            value_bytes,
            key=key_bytes,
            headers=header_pairs,
            partition=partition,
            timestamp=timestamp,
        )
        delivery = Delivery(self, topic, target.partition, timestamp)
        pending = self._pending.get(target)
        if pending is None:
            pending = self._pending[target] = deque()
        pending.append(delivery)
        if self._deadline is None:
            self._deadline = Deadline(self._linger_s)
        if self._producer.is_full or self._deadline.passed:
            self._flush()
        return delivery

    def flush(self) -> None:
        """Send all buffered records, and wait for their acknowledgements.

        Raises ApiError if that fails. The records that were not acknowledged are dropped, and their deliveries have
        the error. The caller may send them again.
        """
        self._open_cluster()
        self._flush()

    def close(self) -> None:
        """Flush, and release the connections. Idempotent; every other call after it raises ClientClosed.

        An open transaction is aborted.
        """
        super().close()

    # ---- transactions ---------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Send the records of a `with` block in one transaction. An exception in the block aborts it.

        Raises ApiError if the commit fails. Then the transaction is aborted. If the cluster did not answer, its result
        is unknown. In this case the next call of `transaction` aborts it before it begins another one, so the result
        is known in the block. It raises ApiError INVALID_TXN_STATE instead if the commit has taken effect after all:
        do not send these records again.
        """
        if self._transactional().needs_abort:
            self.abort_transaction()
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException as error:
            if not isinstance(error, Exception):
                # An interrupt may have left a partly read response.
                self._connection._cluster.close()
            if self._transactional().is_open:
                with suppress(ApiError):
                    self.abort_transaction()
            raise

    def begin_transaction(self) -> None:
        """Begin a transaction. `send` needs one, if the producer has a transactional id."""
        self._transactional().begin()
        self._sent_offsets.clear()

    def send_offsets_to_transaction(
        self, consumer: GroupConsumer, offsets: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Commit offsets of a consumer's group with the transaction: by default those after all records that the
        consumer returned so far. An offset is the next one to read.

        The consumer must have enable_auto_commit=False. Raises ApiError ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID if the
        group has rebalanced: abort the transaction, because another member may own the partitions now.
        """
        producer = self._transactional()
        wanted = consumer._uncommitted()
        if offsets is not None:
            wanted = {TopicPartition(*each): offset for each, offset in offsets.items()}
        producer.send_offsets(consumer._sender(), wanted)
        self._sent_offsets.setdefault(consumer, {}).update(wanted)

    def commit_transaction(self) -> None:
        """Flush, and commit the transaction. Consumers with isolation_level="read_committed" get its records then.

        Raises ApiError. If it is retriable, the result is unknown: call this again, or `abort_transaction`, which
        raises INVALID_TXN_STATE if the commit has taken effect. After any other error, abort the transaction.
        """
        producer = self._transactional()
        if not producer.is_ending:
            producer.require_open()
            self._flush()
        producer.commit()
        for consumer, offsets in self._sent_offsets.items():
            consumer._member.forget_committed(offsets)
        self._sent_offsets.clear()

    def abort_transaction(self) -> None:
        """Abort the transaction. Records that are still in the buffer are dropped.

        Raises ApiError. If it is retriable, call this again. INVALID_TXN_STATE can mean that a commit with an unknown
        result has taken effect; the next transaction can begin then.

        A consumer whose offsets were sent continues after the records of the transaction. To read them again, call
        its `seek_to_committed`.
        """
        producer = self._transactional()
        self._fail_pending(BarnabasError("not sent: the transaction was aborted"))
        producer.abort()
        self._sent_offsets.clear()

    def _transactional(self) -> TransactionalProducer:
        self._open_cluster()
        if not isinstance(self._producer, TransactionalProducer):
            why = "the producer has no transactional id; create it with transactional_id=…"
            raise ApiError(ErrorCode.INVALID_TXN_STATE, why)
        return self._producer

    # ---- sending --------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        try:
            self._producer.send_buffers()
        except BaseException as error:
            self._fail(error)
            raise
        self._complete()

    def _finish_work(self, *, is_failed: bool) -> None:
        if self._transactional_id is not None:
            self._finish_transactional()
        elif is_failed:
            self._fail(
                BarnabasError("not sent: the with block of the producer raised an exception")
            )
        else:
            self._flush()

    def _finish_transactional(self) -> None:
        """Abort the open transaction. Errors are ignored: the cluster aborts it after its timeout."""
        self._fail_pending(BarnabasError("not sent: the producer was closed"))
        producer = getattr(self, "_producer", None)  # missing if the constructor failed
        if isinstance(producer, TransactionalProducer) and producer.is_open:
            with suppress(ApiError):
                producer.abort()

    def _complete(self) -> None:
        """Complete the deliveries of the batches that were sent."""
        sent, self._producer.sent = self._producer.sent, []
        for partition, base_offset, count in sent:
            pending = self._pending[partition]
            for index in range(count):
                pending.popleft()._complete(base_offset + index if base_offset >= 0 else -1)
        self._deadline = None

    def _fail(self, error: BaseException) -> None:
        """Fail the deliveries that are still pending. The next record gets a new producer id and a new sequence: it is
        unknown which sequence numbers the brokers have seen. In a transaction, its abort does that."""
        self._complete()
        self._fail_pending(error)
        if not isinstance(error, ApiError):
            # An interrupt may have left a partly read response.
            self._connection._cluster.close()
        if self._transactional_id is None:
            self._producer = self._new_producer()

    def _fail_pending(self, error: BaseException) -> None:
        for pending in self._pending.values():
            for delivery in pending:
                delivery._complete(-1, error)
        self._pending.clear()
        self._deadline = None

    def _new_producer(self) -> client_producer.Producer:
        if self._transactional_id is not None:
            return TransactionalProducer(
                self._connection._open_cluster(),
                self._transactional_id,
                timeout_ms=self._timeout_ms,
                compression=self._compression,
            )
        return client_producer.Producer(
            self._connection._cluster,
            acks=self._acks,
            compression=self._compression,
            idempotent=self._idempotence,
        )


def check_transactional(transactional_id: str, acks: int, enable_idempotence: bool | None) -> None:
    """Raise ConfigError for settings that a transactional producer cannot have."""
    if not transactional_id:
        raise ConfigError("transactional_id", "is empty; use a name, or None without transactions")
    if acks != client_producer.ACKS_ALL:
        raise ConfigError("transactional_id", "needs acks='all'")
    if enable_idempotence is False:
        raise ConfigError("transactional_id", "needs enable_idempotence=True")
