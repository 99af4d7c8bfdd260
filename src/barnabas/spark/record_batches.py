"""Encoding of Arrow columns as record batches, all rows at once. Pure; the inverse of arrow_records.py.

    record   size │ 0 │ timestamp delta │ offset delta │ key size │ key │ value size │ value │ headers
             └──────────────────────── head ──────────────────────┘       └─ middle ─┘         └─ tail ─┘

Sizes and deltas are varints. Deltas are relative to the first record of the batch. numpy computes heads and middles as
columns. Arrow joins the five columns row by row into the body of the batch. Only headers are encoded one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.batch.compression import Compression
from barnabas.batch.header import TRANSACTIONAL
from barnabas.batch.records import seal_batch, varint
from barnabas.client.partitioner import MULTIPLIER, SEED, murmur2
from barnabas.errors import ConfigError

VARINT_BYTES_MAX = 5
"""Sizes and offset deltas are 32-bit integers."""
VARLONG_BYTES_MAX = 10
VECTOR_KEY_BYTES_MAX = 256
"""Longer keys are hashed one by one, because the vectorised hash loops once per 4-byte word of the longest key."""
NO_HEADERS = b"\0"
LARGE = pa.large_binary()

Integers = np.ndarray[Any, np.dtype[np.int64]]
Unsigned = np.ndarray[Any, np.dtype[np.integer[Any]]]


class Columns(NamedTuple):
    """The records for one partition, in order. `tails` holds the encoded headers; None if no record has any.

    `timestamps` are milliseconds since 1970: one for each record, or one for all of them."""

    keys: pa.BinaryArray | None
    values: pa.BinaryArray
    tails: pa.BinaryArray | None
    timestamps: Integers | int


class EncodedRecords(NamedTuple):
    """The encoded records of one batch."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    data: memoryview
    base_timestamp: int
    max_timestamp: int

    def builder(
        self, compression: Compression, *, is_transactional: bool = False
    ) -> Callable[..., bytes]:
        """Return the `build` function of a PendingBatch (client/producer.py)."""
        return partial(
            seal_batch,
            self.data,
            count=self.count,
            last_offset_delta=self.count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            attributes=int(compression) | (TRANSACTIONAL if is_transactional else 0),
        )


def encode_records(columns: Columns, bytes_max: int) -> Iterator[EncodedRecords]:
    """Encode records, split into batches of at most `bytes_max`. A larger record gets a batch of its own."""
    count = len(columns.values)
    key_sizes, value_sizes = binary_sizes(columns.keys, count), binary_sizes(columns.values, count)
    tail_sizes = (
        np.ones(count, np.int64) if columns.tails is None else binary_sizes(columns.tails, count)
    )
    # The size of a delta depends on where its batch begins, so the maximum is used.
    timestamp_bytes_max = 1 if isinstance(columns.timestamps, int) else VARLONG_BYTES_MAX
    overhead_max = 4 * VARINT_BYTES_MAX + 1 + timestamp_bytes_max
    sizes_max = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + tail_sizes + overhead_max
    splits = find_splits(np.cumsum(sizes_max), bytes_max)
    firsts = np.repeat(splits[:-1], np.diff(splits))
    offset_deltas = np.arange(count) - firsts
    times = columns.timestamps
    time_deltas = None if isinstance(times, int) else times - times[firsts]
    joined = join_records(columns, key_sizes, value_sizes, tail_sizes, offset_deltas, time_deltas)
    offsets = np.frombuffer(joined.buffers()[1], np.int64)
    data = memoryview(joined.buffers()[2] or b"")
    for begin, end in pairwise(splits.tolist()):
        yield EncodedRecords(
            end - begin,
            data[int(offsets[begin]) : int(offsets[end])],
            base_timestamp=times if isinstance(times, int) else int(times[begin]),
            max_timestamp=times if isinstance(times, int) else int(times[begin:end].max()),
        )


def find_splits(ends: Integers, size_max: int) -> Integers:
    """Split rows into pieces of at most `size_max` bytes. `ends` holds the cumulative sizes of the rows.

    Returns 0, the first row of each further piece, and the number of rows.
    """
    splits = [0]
    while splits[-1] < len(ends):
        done = ends[splits[-1] - 1] if splits[-1] else 0
        split = int(np.searchsorted(ends, done + size_max, side="right"))
        splits.append(max(split, splits[-1] + 1))
    return np.array(splits, np.int64)


def join_records(
    columns: Columns,
    key_sizes: Integers,
    value_sizes: Integers,
    tail_sizes: Integers,
    offset_deltas: Integers,
    time_deltas: Integers | None,
) -> pa.Array:
    """Return the encoded records, one per row. `time_deltas` is None if all records have the same timestamp."""
    middles = Varints([value_sizes])
    after_size = (
        Varints([offset_deltas, key_sizes], zeros=2)
        if time_deltas is None
        else Varints([time_deltas, offset_deltas, key_sizes], zeros=1)
    )
    record_sizes = (
        after_size.sizes
        + np.maximum(key_sizes, 0)
        + middles.sizes
        + np.maximum(value_sizes, 0)
        + tail_sizes
    )
    heads = Varints([record_sizes], suffix=after_size)
    keys = [] if columns.keys is None else [columns.keys.cast(LARGE)]
    tails = pa.scalar(NO_HEADERS, LARGE) if columns.tails is None else columns.tails.cast(LARGE)
    parts = [heads.column(), *keys, middles.column(), columns.values.cast(LARGE), tails]
    return pc.binary_join_element_wise(
        *parts, pa.scalar(b"", LARGE), null_handling="replace", null_replacement=b""
    )


class Varints:
    """Zigzag varints of several columns. Row i is the concatenation of the varints in row i of each column.

    Each row begins with `zeros` zero bytes and ends with the same row of `suffix`.
    """

    def __init__(
        self, columns: Sequence[Integers], *, zeros: int = 0, suffix: Varints | None = None
    ) -> None:
        count = len(columns[0])
        raws = [zigzag(column) for column in columns]
        widths = [bytes_of_varint(int(raw.max(initial=0))) for raw in raws]
        end = zeros + sum(widths)
        width = end if suffix is None else end + suffix.matrix.shape[1]
        self.matrix: np.ndarray[Any, np.dtype[np.uint8]] = np.zeros((count, width), np.uint8)
        self.mask: np.ndarray[Any, np.dtype[np.bool_]] = np.ones((count, width), bool)
        """Which bytes of the matrix belong to the row."""
        self.sizes: Integers = np.full(count, zeros + len(columns))
        if suffix is not None:
            self.matrix[:, end:], self.mask[:, end:] = suffix.matrix, suffix.mask
            self.sizes += suffix.sizes
        at = zeros
        for raw, bytes_max in zip(raws, widths, strict=True):
            rest: Unsigned = raw
            for place in range(bytes_max):
                self.matrix[:, at] = rest & 0x7F
                # The first byte is always written, and each further one until the rest is zero.
                if place > 0:
                    used = rest > 0
                    self.mask[:, at] = used
                    self.matrix[:, at - 1] |= used * np.uint8(0x80)
                    self.sizes += used
                rest = rest >> 7
                at += 1

    def column(self) -> pa.LargeBinaryArray:
        offsets = np.zeros(len(self.sizes) + 1, np.int64)
        np.cumsum(self.sizes, out=offsets[1:])
        data = self.matrix[self.mask]
        return pa.LargeBinaryArray.from_buffers(
            LARGE, len(self.sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )


def zigzag(column: Integers) -> Unsigned:
    """Return unsigned numbers, of 32 bits if all of them fit."""
    raw = ((column << 1) ^ (column >> 63)).view(np.uint64)
    return raw if int(raw.max(initial=0)) >> 32 else raw.astype(np.uint32)


def bytes_of_varint(value: int) -> int:
    """Return the size of an unsigned varint.

    >>> bytes_of_varint(0), bytes_of_varint(127), bytes_of_varint(128)
    (1, 1, 2)
    """
    return max(1, -(-value.bit_length() // 7))


def binary_sizes(column: pa.Array | None, count: int) -> Integers:
    """Return the length of each value; -1 for null, as in the record format."""
    if column is None:
        return np.full(count, -1, np.int64)
    found = pc.fill_null(pc.binary_length(column), -1)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)


def header_tails(column: pa.Array) -> pa.Array | None:
    """Encode headers, a list<struct<key, value>> per record. Returns None if no record has any."""
    counts = pc.fill_null(pc.list_value_length(column), 0)
    if not pc.any(pc.greater(counts, 0)).as_py():
        return None
    return pa.array([header_tail(headers) for headers in column.to_pylist()], pa.binary())


def header_tail(headers: Sequence[dict[str, Any] | None] | None) -> bytes:
    if not headers:
        return NO_HEADERS
    parts = [varint(len(headers))]
    for header in headers:
        if header is None or header["key"] is None:
            raise ConfigError("column headers", "a header has no key; remove it or give it one")
        name, value = header["key"].encode(), header["value"]
        parts += (varint(len(name)), name)
        parts += (b"\1",) if value is None else (varint(len(value)), value)
    return b"".join(parts)


# ---- partitioning -----------------------------------------------------------------------------------------------


def partitions_of_keys(keys: pa.Array, partition_count: int) -> Integers:
    """Return the partition of each key, by Kafka's default partitioner; -1 for null."""
    hashes = murmur2_hashes(keys)
    partitions = ((hashes & 0x7FFF_FFFF) % partition_count).astype(np.int64)
    if keys.null_count:
        partitions = np.where(np.asarray(keys.is_null()), -1, partitions)
    return partitions


def murmur2_hashes(keys: pa.Array) -> Unsigned:
    """Return the murmur2 hash of every key. Each loop hashes one 4-byte word of all keys. Undefined for null."""
    keys = keys.cast(LARGE)
    offsets = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    multiplier = np.uint32(MULTIPLIER)  # numpy drops the bits of a product above 32
    state: Unsigned = (SEED ^ lengths).astype(np.uint32)
    word_counts = np.minimum(lengths, VECTOR_KEY_BYTES_MAX) // 4
    for word in range(int(word_counts.max(initial=0))):
        rows = np.nonzero(word_counts > word)[0]
        mixed = little_endian(data, starts[rows] + 4 * word, 4) * multiplier
        mixed = (mixed ^ mixed >> 24) * multiplier
        state[rows] = state[rows] * multiplier ^ mixed
    tails = lengths % 4
    for size in (1, 2, 3):
        rows = np.nonzero(tails == size)[0]
        rest = little_endian(data, starts[rows] + lengths[rows] - size, size)
        state[rows] = (state[rows] ^ rest) * multiplier
    state = (state ^ state >> 13) * multiplier
    state = state ^ state >> 15
    for row in np.nonzero(lengths > VECTOR_KEY_BYTES_MAX)[0]:
        state[row] = murmur2(bytes(data[starts[row] : starts[row] + lengths[row]]))
    return state


def little_endian(data: np.ndarray[Any, np.dtype[np.uint8]], at: Integers, size: int) -> Unsigned:
    """Return the integers of `size` bytes at these positions."""
    found: Unsigned = data[at].astype(np.uint32)
    for byte in range(1, size):
        found |= data[at + byte].astype(np.uint32) << (8 * byte)
    return found
