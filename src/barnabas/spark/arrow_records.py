"""Decoding of the record batches of a Fetch response to Arrow. Pure; only the requested columns are built.

Each numpy call has a fixed cost, so all batches of a response are decoded together into one RecordBatch. Keys and
values are copied once, in one call for all records. `record_layout.py` finds their positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import as_strided

from barnabas.batch.compression import DECOMPRESSED_BYTES_MAX, Compression, decompress
from barnabas.batch.header import HEADER_SIZE, BatchHeader, batch_headers, crc_is_valid
from barnabas.client.aborted_filter import AbortedFilter
from barnabas.errors import ConfigError, RemoteWireError
from barnabas.model import TopicPartition
from barnabas.spark.ranges import COLUMNS
from barnabas.spark.record_layout import (
    BatchBody,
    Int64s,
    Octets,
    RecordLayout,
    Spans,
    lay_out,
    lay_out_headers,
)
from barnabas.wire.messages.fetch import AbortedTransaction

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

MILLISECONDS_MAX = np.iinfo(np.int64).max // 1000
"""Spark's timestamps are microseconds in 64 bits."""
DECODE_BYTES_MAX = 32 << 20
"""Batches are decoded together up to about this uncompressed size."""


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
    """Decode the records with start <= offset < end. A partial batch at the end of `data` is ignored.

    Returns the records, and the offset after the last batch that begins before `end` (`start` if there is none).
    `aborted` holds the aborted transactions of a read_committed response; their records are skipped. Raises
    RemoteWireError for a corrupt batch.
    """
    view = memoryview(data)
    decoded: list[pa.RecordBatch] = []
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
            batch = read_batch(view, at, header, check_crcs=check_crcs)
        except RemoteWireError as error:
            raise corrupt_batch_error(topic, partition, header.base_offset, error) from None
        # Keeps arrays small: Arrow's binary type has 32-bit offsets.
        if pending and pending_bytes + batch.size > DECODE_BYTES_MAX:
            decoded += build_record_batch(view, pending, topic, partition, start, end, columns)
            pending, pending_bytes = [], 0
        pending.append(batch)
        pending_bytes += batch.size
    if pending:
        decoded += build_record_batch(view, pending, topic, partition, start, end, columns)
    return decoded, next_offset


def corrupt_batch_error(topic: str, partition: int, offset: int, why: Exception) -> RemoteWireError:
    name = TopicPartition(topic, partition)
    return RemoteWireError(f"{name}: the batch at offset {offset} is corrupt: {why}")


# ---- batches --------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """A batch of the response. Its records are the bytes `start` to `end`, or `decompressed` if they were compressed.

    `size` is the uncompressed size of the records.
    """

    header: BatchHeader
    start: int
    end: int
    size: int
    decompressed: bytes | None = None


def read_batch(view: memoryview, at: int, header: BatchHeader, *, check_crcs: bool) -> Batch:
    """Verify the checksum of the batch at position `at`, and decompress its records. Raises RemoteWireError."""
    if check_crcs and not crc_is_valid(view, at, header):
        raise RemoteWireError("its checksum does not match")
    start, end = at + HEADER_SIZE, at + header.size
    codec = header.compression
    if codec == Compression.NONE:
        return Batch(header, start, end, end - start)
    if codec > Compression.ZSTD:
        raise RemoteWireError(f"unknown compression codec {codec}")
    decompressed = decompress(Compression(codec), view[start:end], limit=DECOMPRESSED_BYTES_MAX)
    return Batch(header, start, end, len(decompressed), decompressed)


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
    """Yield one RecordBatch with the records of all batches, or nothing if no record is in the range."""
    data, bodies = join_bodies(view, batches)
    octets = np.frombuffer(data, np.uint8)
    counts = [body.count for body in bodies]
    try:
        layout = lay_out(octets, data, bodies)
        offsets = layout.offset_deltas + per_record([b.header.base_offset for b in batches], counts)
        times = timestamps_ms(layout, batches, counts)
        time_types = per_record([int(b.header.is_log_append_time) for b in batches], counts)
        if any(b.header.base_offset < start or b.header.last_offset >= end for b in batches):
            wanted = (offsets >= start) & (offsets < end)
            layout = layout.select(wanted)
            offsets, times, time_types = (each[wanted] for each in (offsets, times, time_types))
        count = len(offsets)
        if not count:
            return
        builders: dict[str, Callable[[], pa.Array]] = {
            "key": lambda: build_binary(octets, layout.keys),
            "value": lambda: build_binary(octets, layout.values),
            "topic": lambda: pa.repeat(pa.scalar(topic, pa.string()), count),
            "partition": lambda: build_array("partition", np.full(count, partition, np.int32)),
            "offset": lambda: build_array("offset", offsets),
            "timestamp": lambda: build_array(
                "timestamp", microseconds(times, offsets, f"{topic}-{partition}")
            ),
            "timestampType": lambda: build_array("timestampType", time_types.astype(np.int32)),
            "headers": lambda: build_headers(octets, data, layout),
        }
        arrays = [builders[name]() for name in columns]
    except RemoteWireError as error:
        # Decode the batches one by one to report the offset of the corrupt one.
        for batch in batches if len(batches) > 1 else ():
            list(build_record_batch(view, [batch], topic, partition, start, end, columns))
        raise corrupt_batch_error(topic, partition, batches[0].header.base_offset, error) from None
    yield pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def join_bodies(view: memoryview, batches: Sequence[Batch]) -> tuple[memoryview, list[BatchBody]]:
    """Return a buffer with the records of all batches, and the position of each batch in it. The buffer is `view` if
    no batch was compressed."""
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
    return memoryview(b"".join(parts)), bodies


def batch_body(batch: Batch, start: int) -> BatchBody:
    header = batch.header
    return BatchBody(start, start + batch.size, header.count, header.last_offset_delta)


def per_record(values: Sequence[int], counts: Sequence[int]) -> Int64s:
    return np.repeat(np.array(values, np.int64), counts)


def timestamps_ms(layout: RecordLayout, batches: Sequence[Batch], counts: Sequence[int]) -> Int64s:
    """Return the timestamp of each record. With LogAppendTime this is the batch's max_timestamp."""
    headers = [batch.header for batch in batches]
    timestamps = layout.timestamp_deltas + per_record([h.base_timestamp for h in headers], counts)
    if not any(header.is_log_append_time for header in headers):
        return timestamps
    appended = per_record([int(h.is_log_append_time) for h in headers], counts) == 1
    return np.where(appended, per_record([h.max_timestamp for h in headers], counts), timestamps)


def microseconds(times_ms: Int64s, offsets: Int64s, partition: str) -> Int64s:
    """Return Spark's timestamps. Raises ConfigError for one that is out of their range, such as nanoseconds."""
    if times_ms.max() > MILLISECONDS_MAX or times_ms.min() < -MILLISECONDS_MAX:
        first = np.flatnonzero((times_ms > MILLISECONDS_MAX) | (times_ms < -MILLISECONDS_MAX))[0]
        why = f"is {times_ms[first]} ms at offset {offsets[first]} of {partition}, too large for Spark"
        hint = "read the topic without this column: .schema('key binary, value binary')"
        raise ConfigError("column timestamp", f"{why}; {hint}")
    return times_ms * 1000


def build_array(column: str, values: np.ndarray[Any, Any]) -> pa.Array:
    return pa.Array.from_buffers(TYPES[column], len(values), [None, pa.py_buffer(values)])


def build_binary(octets: Octets, spans: Spans) -> pa.Array:
    """Copy the bytes of all spans into one array. A span of length -1 becomes null."""
    count = len(spans.lengths)
    lengths = np.maximum(spans.lengths, 0)
    is_null = spans.lengths < 0
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null.any() else None
    longest = int(lengths.max()) if count else 0
    if longest == 0 or longest == lengths.min():
        # Equal lengths: select rows of a sliding window.
        offsets = np.arange(count + 1, dtype=np.int64) * longest
        windows = as_strided(octets, (octets.size - longest + 1, longest), (1, 1))
        content = pa.py_buffer(windows[spans.starts]) if longest else pa.py_buffer(b"")
    else:
        offsets, content = gather_spans(octets, spans.starts, lengths)
    return pa.Array.from_buffers(
        pa.binary(), count, [validity, pa.py_buffer(offsets.astype(np.int32)), content]
    )


def gather_spans(octets: Octets, starts: Int64s, lengths: Int64s) -> tuple[Int64s, pa.Buffer]:
    """Copy spans of different lengths. Returns their offsets in the copy, and the copy.

    The spans must be in ascending order. The buffer is viewed as one binary array in which spans and gaps alternate.
    Taking every second element copies the spans without the gaps.
    """
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


def build_headers(octets: Octets, data: memoryview, layout: RecordLayout) -> pa.Array:
    """Build the column of headers. It is null for a record without headers, as in Spark's Kafka source."""
    counts = layout.header_counts
    names, values = lay_out_headers(octets, data, layout)
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    validity = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    pairs = pa.StructArray.from_arrays(
        [to_strings(build_binary(octets, names)), build_binary(octets, values)],
        fields=list(HEADER_TYPE),
    )
    return pa.Array.from_buffers(
        TYPES["headers"], len(counts), [validity, pa.py_buffer(offsets)], children=[pairs]
    )


def to_strings(names: pa.Array) -> pa.Array:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        # Replace invalid UTF-8, as Kafka's clients do.
        return pa.array([name.as_py().decode(errors="replace") for name in names], pa.string())
