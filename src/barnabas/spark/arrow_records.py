"""Raw record batches to Arrow, as a Fetch returned them. Pure; only the columns that are asked for are built.

Batches are many and small, and numpy pays per call, so all batches of a fetch are taken together: their records become
one RecordBatch. Keys and values are copied once, by one call for all records. `record_layout.py` finds where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import as_strided

from barnabas.errors import RemoteWireError
from barnabas.model import TopicPartition
from barnabas.spark.ranges import COLUMNS
from barnabas.spark.record_layout import (
    BatchBody,
    Int64s,
    RecordLayout,
    Octets,
    Spans,
    lay_out,
    lay_out_headers,
)
from barnabas.wire.compression import Compression, decompress
from barnabas.wire.messages.fetch import AbortedTransaction
from barnabas.wire.records import (
    DECOMPRESSED_BYTES_MAX,
    HEADER_SIZE,
    BatchHeader,
    batch_headers,
    crc_is_valid,
)

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(HEADER_TYPE),
}
assert tuple(TYPES) == COLUMNS

DECODE_BYTES_MAX = 32 << 20
"""Decompressed batches are gathered up to about this size before they become one RecordBatch."""

ABORT_MARKER = b"\0\0\0\0"
"""Key of a control record: version 0, type 0. A commit has type 1."""


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, TYPES[name]) for name in columns])


def decode_batches(
    data: bytes | bytearray | memoryview,
    *,
    topic: str,
    partition: int,
    start: int,
    end: int,
    columns: Sequence[str],
    check_crcs: bool = True,
    aborted: Sequence[AbortedTransaction] = (),
) -> tuple[list[pa.RecordBatch], int]:
    """The records with start <= offset < end of the whole batches in `data`, and the offset behind the last of them
    (`start`, if there is none). A batch that is cut at the end is left for the next fetch.

    `aborted` is what a broker tells those who read committed records only. RemoteWireError for damaged batches.
    """
    view = memoryview(data)
    found: list[pa.RecordBatch] = []
    pending: list[Batch] = []
    pending_bytes = 0
    next_offset = start
    aborted_filter = AbortedFilter(aborted)
    for at, header in batch_headers(view):
        if header.base_offset >= end:
            break
        next_offset = max(next_offset, header.next_offset)
        if aborted_filter.hides(header, view, at) or header.last_offset < start:
            continue
        try:
            batch = decompress_batch(view, at, header, check_crcs=check_crcs)
        except RemoteWireError as error:
            raise corrupt_batch_error(topic, partition, header.base_offset, error) from None
        # A buffer of Arrow is addressed with 32 bits.
        if pending and pending_bytes + batch.size > DECODE_BYTES_MAX:
            found += build_record_batch(view, pending, topic, partition, start, end, columns)
            pending, pending_bytes = [], 0
        pending.append(batch)
        pending_bytes += batch.size
    if pending:
        found += build_record_batch(view, pending, topic, partition, start, end, columns)
    return found, next_offset


def corrupt_batch_error(topic: str, partition: int, offset: int, why: Exception) -> RemoteWireError:
    where = TopicPartition(topic, partition)
    return RemoteWireError(f"{where}: the batch at offset {offset} is damaged: {why}")


# ---- batches --------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Its records stand between `start` and `end` of the fetched bytes, or in `plain` if they were compressed."""

    header: BatchHeader
    start: int
    end: int
    size: int
    decompressed: bytes | None = None


def decompress_batch(view: memoryview, at: int, header: BatchHeader, *, check_crcs: bool) -> Batch:
    if check_crcs and not crc_is_valid(view, at, header):
        raise RemoteWireError("its checksum does not match")
    start, end = at + HEADER_SIZE, at + header.size
    codec = header.compression
    if codec == Compression.NONE:
        return Batch(header, start, end, end - start)
    if codec > Compression.ZSTD:
        raise RemoteWireError(f"there is no codec {codec}")
    decompressed = decompress(Compression(codec), view[start:end], limit=DECOMPRESSED_BYTES_MAX)
    return Batch(header, start, end, len(decompressed), decompressed)


class AbortedFilter:
    """Which batches nobody who reads committed records may see. Transactions of one producer follow each other, so a
    producer's batches are hidden from where one of its aborted transactions begins up to the next marker of abort."""

    def __init__(self, transactions: Sequence[AbortedTransaction]) -> None:
        self.waiting = sorted(transactions, key=lambda found: found.first_offset, reverse=True)
        self.producers: set[int] = set()

    def hides(self, header: BatchHeader, view: memoryview, at: int) -> bool:
        """Also true for control batches, which nobody sees. To be asked in the order of the log."""
        while self.waiting and self.waiting[-1].first_offset <= header.last_offset:
            self.producers.add(self.waiting.pop().producer_id)
        if header.is_control:
            if header.producer_id in self.producers and is_abort(view, at):
                self.producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self.producers


def is_abort(view: memoryview, at: int) -> bool:
    # One record: length, attributes, two deltas and the key's length take a byte each, the key four.
    key_at = at + HEADER_SIZE + 5
    return bytes(view[key_at : key_at + 4]) == ABORT_MARKER


# ---- columns --------------------------------------------------------------------------------------------------


def build_record_batch(
    view: memoryview,
    batches: Sequence[Batch],
    topic: str,
    partition: int,
    start: int,
    end: int,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """One RecordBatch of all the batches, or none if no record of theirs is wanted."""
    data, bodies = join_bodies(view, batches)
    octets = np.frombuffer(data, np.uint8)
    try:
        layout = lay_out(octets, data, bodies)
        counts = [body.count for body in bodies]
        offsets = layout.offset_deltas + per_record([b.header.base_offset for b in batches], counts)
        timestamps = timestamps_ms(layout, batches, counts)
        timestamp_types = per_record([int(b.header.is_log_append_time) for b in batches], counts)
        if any(b.header.base_offset < start or b.header.last_offset >= end for b in batches):
            wanted = (offsets >= start) & (offsets < end)
            layout = layout.where(wanted)
            offsets, timestamps, timestamp_types = offsets[wanted], timestamps[wanted], timestamp_types[wanted]
        if not offsets.size:
            return
        records = RecordView(data, octets, layout)
        arrays = [
            build_column(name, records, topic, partition, offsets, timestamps, timestamp_types) for name in columns
        ]
    except RemoteWireError as error:
        # Which of the batches it was is found by opening them one by one.
        for batch in batches if len(batches) > 1 else ():
            list(build_record_batch(view, [batch], topic, partition, start, end, columns))
        raise corrupt_batch_error(topic, partition, batches[0].header.base_offset, error) from None
    yield pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def join_bodies(view: memoryview, batches: Sequence[Batch]) -> tuple[memoryview, list[BatchBody]]:
    """One buffer in which all records stand: the fetched bytes themselves, unless something was compressed."""
    if all(batch.decompressed is None for batch in batches):
        return view, [batch_body(batch, batch.start) for batch in batches]
    parts: list[bytes | memoryview] = []
    bodies = []
    at = 0
    for batch in batches:
        part = view[batch.start : batch.end] if batch.decompressed is None else batch.decompressed
        parts.append(part)
        bodies.append(batch_body(batch, at))
        at += len(part)
    # A single part is what it is; joining it would copy it.
    return memoryview(parts[0] if len(parts) == 1 else b"".join(parts)), bodies


def batch_body(batch: Batch, start: int) -> BatchBody:
    header = batch.header
    return BatchBody(start, start + batch.size, header.count, header.last_offset_delta)


def per_record(values: Sequence[int], counts: Sequence[int]) -> Int64s:
    return np.repeat(np.array(values, np.int64), counts)


def timestamps_ms(layout: RecordLayout, batches: Sequence[Batch], counts: Sequence[int]) -> Int64s:
    """Milliseconds. The broker's time stands in the batch alone; the deltas of its records are then without meaning."""
    headers = [batch.header for batch in batches]
    timestamps = layout.timestamp_deltas + per_record([h.base_timestamp for h in headers], counts)
    if not any(header.is_log_append_time for header in headers):
        return timestamps
    appended = per_record([int(h.is_log_append_time) for h in headers], counts) == 1
    return np.where(appended, per_record([h.max_timestamp for h in headers], counts), timestamps)


@dataclass(frozen=True, slots=True)
class RecordView:
    data: memoryview
    octets: Octets
    layout: RecordLayout


def build_column(
    name: str,
    records: RecordView,
    topic: str,
    partition: int,
    offsets: Int64s,
    timestamps: Int64s,
    timestamp_types: Int64s,
) -> pa.Array:
    count = len(offsets)
    match name:
        case "key":
            return build_binary(records.octets, records.layout.keys)
        case "value":
            return build_binary(records.octets, records.layout.values)
        case "topic":
            return pa.repeat(pa.scalar(topic, pa.string()), count)
        case "partition":
            return build_array(TYPES[name], np.full(count, partition, np.int32))
        case "offset":
            return build_array(TYPES[name], offsets)
        case "timestamp":
            return build_array(TYPES[name], timestamps * 1000)
        case "timestampType":
            return build_array(TYPES[name], timestamp_types.astype(np.int32))
        case "headers":
            return build_headers(records)
        case _:
            raise ValueError(f"there is no column {name!r}")


def build_array(kind: pa.DataType, values: np.ndarray[Any, Any]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def build_binary(octets: Octets, spans: Spans) -> pa.Array:
    """The bytes of all spans, one behind the other."""
    count = len(spans.lengths)
    lengths = np.maximum(spans.lengths, 0)
    is_null = spans.lengths < 0
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null.any() else None
    longest = int(lengths.max()) if count else 0
    if longest == 0 or longest == lengths.min():
        # Equal lengths: rows of a window that slides over the bytes, gathered by their starts.
        offsets = np.arange(count + 1, dtype=np.int64) * longest
        windows = as_strided(octets, (octets.size - longest + 1, longest), (1, 1))
        content = pa.py_buffer(windows[spans.starts]) if longest else pa.py_buffer(b"")
    else:
        offsets, content = gather_spans(octets, spans.starts, lengths)
    return pa.Array.from_buffers(
        pa.binary(), count, [validity, pa.py_buffer(offsets.astype(np.int32)), content]
    )


def gather_spans(octets: Octets, starts: Int64s, lengths: Int64s) -> tuple[Int64s, pa.Buffer]:
    """Spans and the gaps between them are the elements of an array that needs no copy; taking every second element
    copies the spans alone. The spans must rise, and those of records do."""
    count = len(starts)
    borders = np.empty(2 * count, np.int32)
    borders[0::2] = starts
    borders[1::2] = starts + lengths
    alternating = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(borders), pa.py_buffer(octets)]
    )
    taken = alternating.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, taken.buffers()[2]


def build_headers(records: RecordView) -> pa.Array:
    """Null, not an empty list, for a record without headers: as Spark's own source does."""
    counts = records.layout.header_counts
    names, values = lay_out_headers(records.octets, records.data, records.layout)
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    validity = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    pairs = pa.StructArray.from_arrays(
        [to_strings(build_binary(records.octets, names)), build_binary(records.octets, values)],
        fields=list(HEADER_TYPE),
    )
    return pa.Array.from_buffers(
        TYPES["headers"], len(counts), [validity, pa.py_buffer(offsets)], children=[pairs]
    )


def to_strings(names: pa.Array) -> pa.Array:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        # Kafka's own clients replace what is no UTF-8, so nobody is stopped by a name that others can read.
        return pa.array([name.as_py().decode(errors="replace") for name in names], pa.string())
