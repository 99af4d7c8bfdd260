"""The records of a batch that survive a cleaning, and the batch that is rebuilt from them.

A record is removed if a later record with the same key is in the part whose keys were read, or if it has no key. The
last record of a key survives, even a tombstone: a reader that started earlier must see the deletion. The first cleaning
that keeps a tombstone stores a delete horizon in the batch, delete.retention.ms from then on. A cleaning after that
time removes the tombstone.

    attribute bit 6 set: base timestamp = delete horizon; the deltas are relative to it, so the timestamps do not change

Base offset, last offset, producer, sequence, leader epoch and codec of a batch do not change. A batch without surviving
records is removed, unless it is the last batch of its producer: a retry of it must be recognised as a duplicate.

An aborted record does not replace a committed one. Batches of aborted transactions and transaction markers are removed
too (compaction_transactions.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from msgspec import Struct

from barnabas.batch.compression import DECOMPRESSED_BYTES_MAX, Compression, decompress
from barnabas.batch.header import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
)
from barnabas.batch.reader import RecordReader
from barnabas.batch.records import seal_batch, varint
from barnabas.errors import RemoteWireError
from barnabas.model import NO_TIMESTAMP
from barnabas.storage.compaction_transactions import CleanedTransactions
from barnabas.world.ports import Buffer

FINGERPRINT_BYTES = 16


class Survival(Struct, frozen=True, kw_only=True):
    """The facts by which a cleaning selects the records that survive."""

    latest: Mapping[bytes, int]
    """Fingerprint of a key → its last offset in the part that was read."""
    mapped_to: int
    """End offset of the part that was read. Records at or after it survive."""
    now_ms: int
    delete_retention_ms: int
    last_offset_of: Mapping[int, int]
    """Producer id → last offset of its last batch."""
    epoch_of: Mapping[int, int]
    """Producer id → epoch, for producers of which only a marker is known. It fences older epochs."""


class RecordSpan(NamedTuple):
    """Position of a record in the decompressed batch, and the fields that decide about it."""

    start: int
    end: int
    rest_at: int
    """Position after length, attributes and timestamp."""
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def fingerprint(key: bytes) -> bytes:
    """Return a short key itself, or a 128-bit hash of a longer key. This limits the memory of a key in the map."""
    if len(key) < FINGERPRINT_BYTES:
        return key
    return blake2b(key, digest_size=FINGERPRINT_BYTES).digest()


def find_keys(batch: memoryview, header: BatchHeader) -> Iterator[tuple[int, bytes]]:
    """Yield offset and key fingerprint of each record that may replace earlier ones.

    The caller leaves out control batches and aborted ones.
    """
    found = decode_spans(batch, header)
    if found is not None:
        base = header.base_offset
        for span in found[1]:
            if span.key is not None:
                yield base + span.offset_delta, fingerprint(span.key)


def decode_spans(batch: memoryview, header: BatchHeader) -> tuple[bytes, list[RecordSpan]] | None:
    """Return the decompressed records and their spans, or None if they are unreadable: the batch is then kept."""
    try:
        packed = batch[HEADER_SIZE : header.size]
        if header.compression:
            codec = Compression(header.compression)
            body = decompress(codec, packed, limit=DECOMPRESSED_BYTES_MAX)
        else:
            body = bytes(packed)
        return body, find_spans(body, header.count)
    except (RemoteWireError, ValueError):
        return None


def find_spans(body: bytes, count: int) -> list[RecordSpan]:
    """Return the spans of all records. Raises RemoteWireError if `body` is not exactly `count` records."""
    reader = RecordReader(body)
    found = []
    for _ in range(count):
        reader.read_next()
        found.append(
            RecordSpan(
                reader.start,
                reader.end,
                reader.offset_delta_at,
                reader.timestamp_delta,
                reader.offset_delta,
                reader.key(),
                reader.value_size >= 0,
            )
        )
    reader.require_end(count)
    return found


def clean_batch(
    batch: memoryview, header: BatchHeader, survival: Survival, transactions: CleanedTransactions
) -> Buffer | None:
    """Return the batch without the removed records: `batch` itself, a smaller one, or None if no record survives."""
    if header.is_control:
        is_removable = transactions.read_control_batch(header, batch)
        return clean_control_batch(batch, header, survival) if is_removable else batch
    if transactions.read_batch(header):
        return strip_or_remove(header, survival)
    if header.base_offset >= survival.mapped_to:
        return batch
    found = decode_spans(batch, header)
    if found is None:
        return batch
    body, all_spans = found
    kept = select_survivors(all_spans, header, survival)
    if not kept:
        return strip_or_remove(header, survival)
    needs_horizon = not header.has_delete_horizon and any(
        not span.has_value and header.base_offset + span.offset_delta < survival.mapped_to
        for span in kept
    )
    if len(kept) == header.count and not needs_horizon:
        return batch
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if needs_horizon:
        attributes |= DELETE_HORIZON
        base_timestamp = survival.now_ms + survival.delete_retention_ms
        shift = header.base_timestamp - base_timestamp
        records = b"".join(shift_timestamp(body, span, shift) for span in kept)
    else:
        records = b"".join(body[span.start : span.end] for span in kept)
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = header.base_timestamp + max(span.timestamp_delta for span in kept)
    return rebuild_batch(
        header,
        records,
        count=len(kept),
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
    )


def clean_control_batch(
    batch: memoryview, header: BatchHeader, survival: Survival
) -> Buffer | None:
    """Return a marker that is no longer needed with a delete horizon, or None if the horizon has passed."""
    if header.count == 0 or header.has_delete_horizon:
        if header.count and header.base_timestamp > survival.now_ms:
            return batch
        return strip_or_remove(header, survival)
    found = decode_spans(batch, header)
    if found is None:
        return batch
    body, all_spans = found
    horizon = survival.now_ms + survival.delete_retention_ms
    shift = header.base_timestamp - horizon
    return rebuild_batch(
        header,
        b"".join(shift_timestamp(body, span, shift) for span in all_spans),
        count=header.count,
        attributes=header.attributes | DELETE_HORIZON,
        base_timestamp=horizon,
        max_timestamp=header.max_timestamp,
    )


def strip_or_remove(header: BatchHeader, survival: Survival) -> bytes | None:
    """Return the batch without records if the log needs it for the state of its producer, else None."""
    producer_id = header.producer_id
    last_offset = survival.last_offset_of.get(producer_id)
    if last_offset is not None:
        is_needed = header.last_offset == last_offset
    else:
        is_needed = (
            header.is_control and survival.epoch_of.get(producer_id) == header.producer_epoch
        )
    return strip_records(header) if is_needed and producer_id >= 0 else None


def select_survivors(
    found: list[RecordSpan], header: BatchHeader, survival: Survival
) -> list[RecordSpan]:
    base, latest, end = header.base_offset, survival.latest, survival.mapped_to
    # Readers had delete.retention.ms to read the tombstones.
    removes_tombstones = header.has_delete_horizon and header.base_timestamp <= survival.now_ms
    kept = []
    for span in found:
        offset = base + span.offset_delta
        if offset < end:
            if span.key is None or (removes_tombstones and not span.has_value):
                continue
            if latest.get(fingerprint(span.key), -1) > offset:
                continue
        kept.append(span)
    return kept


def shift_timestamp(body: bytes, span: RecordSpan, shift: int) -> bytes:
    """Return the record with `shift` added to its timestamp delta, since the base timestamp changes."""
    content = b"\0" + varint(span.timestamp_delta + shift) + body[span.rest_at : span.end]
    return varint(len(content)) + content


def strip_records(header: BatchHeader) -> bytes:
    """Return an empty batch, which keeps the producer's last sequence number. Without codec and delete horizon."""
    return rebuild_batch(
        header,
        b"",
        count=0,
        attributes=header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL),
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
    )


def rebuild_batch(
    header: BatchHeader,
    records: bytes,
    *,
    count: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
) -> bytes:
    return seal_batch(
        records,
        count=count,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        attributes=attributes,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        partition_leader_epoch=header.partition_leader_epoch,
    )
