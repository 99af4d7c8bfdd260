"""State of the idempotent producers of one log: detects retried batches and lost ones.

Per producer id: its epoch, and the sequence numbers and offsets of its last five batches. A batch is
    in sequence   it follows the last one                           → append it
    a duplicate   its sequence numbers equal one of the five        → respond with the offsets of the first copy
    fenced        its epoch is lower than the known one             → INVALID_PRODUCER_EPOCH
    out of order  anything else                                     → OUT_OF_ORDER_SEQUENCE_NUMBER
An unknown producer may begin with any sequence number: retention or expiry may have removed its last records.

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
from barnabas.batch.header import BatchHeader
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_TIMESTAMP

BATCHES_KEPT: Final = 5
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
        self.transaction_first_offset = -1
        self.is_active = True
        """Loaded or used since the last expiry check."""
        self.idle_since_ms = 0
        """Monotonic time of the expiry check that last found it active."""


class Producers:
    __slots__ = ("by_id",)

    def __init__(self) -> None:
        self.by_id: dict[int, ProducerState] = {}

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """Return None if a batch is in sequence, or the first copy if it is a duplicate. Raises ApiError otherwise."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            return None
        epoch, sequence = header.producer_epoch, header.base_sequence
        if epoch == producer.epoch:
            if sequence == producer.next_sequence:
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
        return None

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
        if header.attributes & 0x10 and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = first_offset

    def record_marker(self, header: BatchHeader, coordinator_epoch: int) -> None:
        """Record a transaction marker. If it begins a new producer epoch, sequence numbers restart at 0."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            producer = self.by_id[header.producer_id] = ProducerState(header.producer_epoch)
        if producer.epoch != header.producer_epoch:
            producer.batches.clear()
            producer.next_sequence = 0
        producer.epoch = header.producer_epoch
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_first_offset = -1
        producer.last_timestamp = header.max_timestamp
        producer.is_active = True

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
    return producers


def last_sequence(first: int, delta: int) -> int:
    """Return the last sequence number of a batch. Sequence numbers run from 0 to 2³¹ − 1 and wrap around."""
    return (first + delta) % (SEQUENCE_MAX + 1)


def first_sequence(last: int, delta: int) -> int:
    return (last - delta) % (SEQUENCE_MAX + 1)
