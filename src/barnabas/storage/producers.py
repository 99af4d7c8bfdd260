"""State of the idempotent and transactional producers of one log: detects retried batches, and knows open transactions.

Per producer id: its epoch, and the sequence numbers and offsets of its last five batches. A batch is
    in sequence   it follows the last one                           → append it
    a duplicate   its sequence numbers equal one of the five        → respond with the offsets of the first copy
    fenced        its epoch is lower than the known one             → INVALID_PRODUCER_EPOCH
    out of order  anything else                                     → OUT_OF_ORDER_SEQUENCE_NUMBER
An unknown producer may begin with any sequence number: retention or expiry may have removed its last records.

A transaction is open from its first batch to its marker. It is decided when the marker is below the high watermark: an
earlier one may still be truncated. No record at or after the first undecided transaction is stable.

    ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░│·················
                       last stable offset                  high watermark    log end

The first batch of a transaction needs a *verification*: the coordinator confirms that the transaction is ongoing and
includes this partition. Otherwise a delayed batch would open a transaction that never ends. The log appends the batch
only if the verification is still the current one of its producer. Markers and batches of a transaction remove it, so
that a confirmation of an earlier transaction is useless.

A producer expires when it has written nothing for producer.id.expiration.ms while this process was running. The time is
monotonic and starts when the producer is loaded. Record timestamps and the wall clock are ignored: a clock that jumps
must not expire a producer that is about to retry.

    <offset>.snapshot   int16 version 1, uint32 crc32c of what follows, int32 count, then per producer
                        int64 id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta,
                        int64 timestamp, int32 coordinator epoch, int64 first offset of its open transaction or −1

The file holds the state before `offset`, with one batch per producer. It only saves time at a start: a missing or
corrupt snapshot is rebuilt from batch headers.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from barnabas.batch.checksum import crc32c
from barnabas.batch.header import TRANSACTIONAL, BatchHeader
from barnabas.batch.markers import Marker
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_TIMESTAMP

BATCHES_KEPT: Final = 5
NO_TRANSACTION: Final = -1
SEQUENCE_MAX: Final = 2**31 - 1
NO_SEQUENCE: Final = -1
EXPIRATION_MS: Final = 86_400_000

SNAPSHOT_HEAD: Final = Struct(">hI")
SNAPSHOT_COUNT: Final = Struct(">i")
SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")
SNAPSHOT_VERSION: Final = 1


class ProducedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class CompletedTransaction(NamedTuple):
    """A transaction with records in this log, and its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the marker."""
    is_aborted: bool


class Verification:
    """A verification of the first batch of a transaction, in progress or confirmed.

    `lowest_sequence` is the smallest sequence number of the batches that need it. A later batch must not be written
    before that one: the earlier batch would then be out of order in each retry.
    """

    __slots__ = ("epoch", "is_active", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.is_active = True
        """Used since the last expiry check."""


OPEN: Final = Verification(-1, -1)
"""Stands for the verification of a batch whose transaction was open. It never confirms the first batch of another."""


class ProducerState:
    """State of one producer id. Its next batch must begin with sequence number `next_sequence`."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "idle_since_ms",
        "is_active",
        "last_timestamp",
        "next_sequence",
        "transaction_first_offset",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[ProducedBatch] = []
        self.next_sequence = 0
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = -1
        self.transaction_first_offset = NO_TRANSACTION
        self.is_active = True
        """Loaded or used since the last expiry check."""
        self.idle_since_ms = 0
        """Monotonic time of the expiry check that last found it active."""


class Producers:
    __slots__ = ("by_id", "completed", "ongoing", "verifications")

    def __init__(self) -> None:
        self.by_id: dict[int, ProducerState] = {}
        self.ongoing: dict[int, int] = {}
        """First offset of each open transaction → producer id. Ascending."""
        self.completed: list[CompletedTransaction] = []
        """Transactions whose marker may be at or above the high watermark, in the order of the markers."""
        self.verifications: dict[int, Verification] = {}
        """By producer id."""

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """Return None if a batch is in sequence, or the first copy if it is a duplicate. Raises ApiError otherwise."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            return None
        epoch, sequence = header.producer_epoch, header.base_sequence
        if epoch == producer.epoch:
            if sequence == producer.next_sequence:
                if producer.transaction_first_offset >= 0:
                    require_transactional(header)
                return None
            last = last_sequence(sequence, header.last_offset_delta)
            for batch in producer.batches:
                if batch.first_sequence == sequence and batch.last_sequence == last:
                    return batch
            why = (
                f"producer {header.producer_id} sent {sequence}, expected {producer.next_sequence}"
            )
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)
        if epoch < producer.epoch:
            why = f"producer {header.producer_id} has epoch {epoch}, older than {producer.epoch}"
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, why)
        if sequence != 0:
            why = f"producer {header.producer_id} begins epoch {epoch} with {sequence}, not with 0"
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)
        if producer.transaction_first_offset >= 0:
            require_transactional(header)
        return None

    def check_transactional(
        self, header: BatchHeader, verification: Verification | None, checks_sequence: bool
    ) -> ProducedBatch | None:
        """Check a batch of a transaction, as `check` does. `verification` is None if none is required.

        Without `checks_sequence` only its epoch is checked: a group coordinator writes the offsets of a transaction
        without counting sequence numbers.
        """
        producer_id = header.producer_id
        producer = self.by_id.get(producer_id)
        current = self.verifications.get(producer_id)
        if producer is None or producer.transaction_first_offset < 0:
            is_verified = verification is None or verification is current
            is_duplicate = checks_sequence and self.find_duplicate(header) is not None
            if not is_verified and not is_duplicate:
                why = f"producer {producer_id} has no ongoing transaction with this partition"
                raise ApiError(ErrorCode.INVALID_TXN_STATE, why)
        if not checks_sequence:
            self.check_epoch(header)
            return None
        duplicate = self.check(header)
        if duplicate is None and current is not None:
            lowest = current.lowest_sequence
            if header.base_sequence > lowest:
                why = f"producer {producer_id} sent {header.base_sequence}, expected {lowest} first"
                raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)
        return duplicate

    def check_epoch(self, header: BatchHeader) -> None:
        """Raise ApiError if the epoch of a batch is older than that of its producer."""
        producer = self.by_id.get(header.producer_id)
        if producer is not None and header.producer_epoch < producer.epoch:
            epoch = header.producer_epoch
            why = f"producer {header.producer_id} has epoch {epoch}, older than {producer.epoch}"
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, why)

    def find_duplicate(self, header: BatchHeader) -> ProducedBatch | None:
        producer = self.by_id.get(header.producer_id)
        if producer is not None and producer.epoch == header.producer_epoch:
            last = last_sequence(header.base_sequence, header.last_offset_delta)
            for batch in producer.batches:
                if batch.first_sequence == header.base_sequence and batch.last_sequence == last:
                    return batch
        return None

    def check_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Raise ApiError if a marker has an old producer epoch, or comes from an old coordinator."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            return
        if header.producer_epoch < producer.epoch:
            why = (
                f"producer {header.producer_id} has epoch {producer.epoch}, the marker has "
                f"{header.producer_epoch}"
            )
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, why)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            why = (
                f"coordinator epoch {marker.coordinator_epoch} is older than "
                f"{producer.coordinator_epoch}"
            )
            raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, why)

    def verify(self, producer_id: int, epoch: int, sequence: int) -> Verification:
        """Return the verification that a batch of a transaction needs, or OPEN if its transaction is open.

        Batches of one transaction that wait for the coordinator share a verification.
        """
        producer = self.by_id.get(producer_id)
        if producer is not None and producer.transaction_first_offset >= 0:
            return OPEN
        current = self.verifications.get(producer_id)
        if current is None:
            current = self.verifications[producer_id] = Verification(epoch, sequence)
        elif epoch > current.epoch:
            current.epoch, current.lowest_sequence = epoch, sequence
        elif epoch == current.epoch and sequence < current.lowest_sequence:
            current.lowest_sequence = sequence
        current.is_active = True
        return current

    def record(self, header: BatchHeader, first_offset: int, timestamp: int) -> None:
        """Record a batch that was appended at `first_offset`. Never rejects: followers and recovery accept every batch
        that the leader accepted."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            producer = self.by_id[header.producer_id] = ProducerState(header.producer_epoch)
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        delta = header.last_offset_delta
        sequence = header.base_sequence
        last = sequence + delta
        if last >= SEQUENCE_MAX:
            last = last_sequence(sequence, delta)
            producer.next_sequence = 0 if last == SEQUENCE_MAX else last + 1
        else:
            producer.next_sequence = last + 1
        batches = producer.batches
        if len(batches) >= BATCHES_KEPT:
            del batches[0]
        batches.append(ProducedBatch(sequence, last, first_offset, first_offset + delta, timestamp))
        producer.last_timestamp = timestamp
        producer.is_active = True
        if header.attributes & TRANSACTIONAL:
            self.verifications.pop(header.producer_id, None)
            if producer.transaction_first_offset < 0:
                producer.transaction_first_offset = first_offset
                self.ongoing[first_offset] = header.producer_id

    def record_marker(self, header: BatchHeader, marker: Marker) -> CompletedTransaction | None:
        """Record a transaction marker, and return the transaction that it ends. None if that has no records here.

        If the marker begins a new producer epoch, sequence numbers restart at 0.
        """
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            producer = self.by_id[header.producer_id] = ProducerState(header.producer_epoch)
        if producer.epoch != header.producer_epoch:
            producer.batches.clear()
            producer.next_sequence = 0
        producer.epoch = header.producer_epoch
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = header.max_timestamp
        producer.is_active = True
        self.verifications.pop(header.producer_id, None)
        first_offset = producer.transaction_first_offset
        if first_offset < 0:
            return None
        producer.transaction_first_offset = NO_TRANSACTION
        self.ongoing.pop(first_offset, None)
        completed = CompletedTransaction(
            header.producer_id, first_offset, header.base_offset, not marker.is_commit
        )
        self.completed.append(completed)
        return completed

    # ---- stable offsets

    def has_undecided(self) -> bool:
        """Return whether `last_stable_offset` may be below the high watermark."""
        return len(self.ongoing) > 0 or len(self.completed) > 0

    def has_seen_markers(self) -> bool:
        """Return whether the log has a marker of a producer that has not expired."""
        return any(producer.coordinator_epoch >= 0 for producer in self.by_id.values())

    def first_ongoing_offset(self, default: int) -> int:
        """Return the first offset of the oldest open transaction, or `default` if none is open."""
        for first_offset in self.ongoing:
            return first_offset
        return default

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the first offset of the oldest undecided transaction, at most the high watermark."""
        self.forget_decided(high_watermark)
        stable = min(high_watermark, self.first_ongoing_offset(high_watermark))
        for transaction in self.completed:
            stable = min(stable, transaction.first_offset)
        return stable

    def forget_decided(self, high_watermark: int) -> None:
        """Remove the completed transactions whose marker is below the high watermark."""
        completed = self.completed
        decided = 0
        while decided < len(completed) and completed[decided].last_offset < high_watermark:
            decided += 1
        if decided > 0:
            del completed[:decided]

    # ---- expiry and snapshots

    def expire(self, monotonic_ms: int, expiration_ms: int) -> None:
        """Remove producers without an open transaction that were idle for `expiration_ms`.

        Called periodically. Idle time counts from the last check that found the producer active or newly loaded, so it
        never expires earlier than `expiration_ms` after its last batch.
        """
        expired: list[int] = []
        for producer_id, producer in self.by_id.items():
            if producer.is_active or producer.transaction_first_offset >= 0:
                producer.is_active = False
                producer.idle_since_ms = monotonic_ms
            elif monotonic_ms - producer.idle_since_ms >= expiration_ms:
                expired.append(producer_id)
        for producer_id in expired:
            del self.by_id[producer_id]
        for producer_id, verification in tuple(self.verifications.items()):
            if not verification.is_active:
                del self.verifications[producer_id]
            verification.is_active = False

    def encode(self) -> bytes:
        body = bytearray(SNAPSHOT_COUNT.pack(len(self.by_id)))
        for producer_id, producer in self.by_id.items():
            last = producer.batches[-1] if producer.batches else None
            body += SNAPSHOT_ENTRY.pack(
                producer_id,
                producer.epoch,
                last.last_sequence if last else NO_SEQUENCE,
                last.last_offset if last else -1,
                last.last_offset - last.first_offset if last else 0,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_first_offset,
            )
        return SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> Producers:
    """Decode a snapshot. Raises ValueError if it is incomplete or corrupt."""
    head = SNAPSHOT_HEAD.size
    if len(data) < head + SNAPSHOT_COUNT.size:
        raise ValueError("too short for a producer snapshot")
    version, checksum = SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise ValueError(f"producer snapshot of version {version}")
    (count,) = SNAPSHOT_COUNT.unpack_from(data, head)
    entries = data[head + SNAPSHOT_COUNT.size :]
    if len(entries) != count * SNAPSHOT_ENTRY.size:
        raise ValueError(f"{len(entries)} bytes for {count} producers")
    if crc32c(data[head:]) != checksum:
        raise ValueError("the checksum of the producer snapshot does not match")
    producers = Producers()
    for entry in SNAPSHOT_ENTRY.iter_unpack(entries):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, open_at = entry
        producer = producers.by_id[producer_id] = ProducerState(epoch)
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_first_offset = open_at
        if offset >= 0:
            first = first_sequence(sequence, delta)
            producer.batches.append(
                ProducedBatch(first, sequence, offset - delta, offset, timestamp)
            )
            producer.next_sequence = 0 if sequence == SEQUENCE_MAX else sequence + 1
    open_producers = [
        (producer.transaction_first_offset, producer_id)
        for producer_id, producer in producers.by_id.items()
        if producer.transaction_first_offset >= 0
    ]
    producers.ongoing = dict(sorted(open_producers))
    return producers


def require_transactional(header: BatchHeader) -> None:
    """Raise ApiError if a batch is not part of the open transaction of its producer."""
    if not header.attributes & TRANSACTIONAL:
        why = f"producer {header.producer_id} has an open transaction, the batch is outside it"
        raise ApiError(ErrorCode.INVALID_TXN_STATE, why)


def last_sequence(first: int, delta: int) -> int:
    """Return the last sequence number of a batch. Sequence numbers run from 0 to 2³¹ − 1 and wrap around."""
    return (first + delta) % (SEQUENCE_MAX + 1)


def first_sequence(last: int, delta: int) -> int:
    return (last - delta) % (SEQUENCE_MAX + 1)
