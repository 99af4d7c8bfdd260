"""Arrow columns become record batches, all rows at once. Pure; the way back from arrow_records.py.

    record   varint(size) │ 0 │ 0 │ varint(offset delta) varint(key size) │ key │ varint(value size) │ value │ headers
             └──────────────────────────── head ──────────────────────────┘      └────── middle ─────┘        └─ tail ─┘

All records of a batch carry one timestamp, so their delta is 0. Heads and middles are computed as columns with numpy;
Arrow joins the five columns row by row, and the buffer behind the joined column is the body of the batch. Only headers
are written record by record, where there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.partitioner import MASK, MULTIPLIER, SEED, murmur2
from barnabas.wire.compression import Compression
from barnabas.wire.records import seal_batch, varint

VARINT_BYTES_MAX = 5
"""Sizes and deltas within one batch are 32-bit numbers."""
VECTOR_KEY_BYTES_MAX = 256
"""Longer keys are rare, and hashed one at a time: word by word over all rows, one long key would set the pace."""
NO_HEADERS = b"\0"

Integers = np.ndarray[Any, np.dtype[np.int64]]


class Columns(NamedTuple):
    """The records for one partition, in order. `tails` is None where no record has headers."""

    keys: pa.BinaryArray | None
    values: pa.BinaryArray
    tails: pa.BinaryArray | None


class Body(NamedTuple):
    """Records one behind the other, as many as go into one batch."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    data: memoryview

    def builder(self, timestamp: int, compression: Compression) -> Callable[..., bytes]:
        return partial(
            seal_batch,
            self.data,
            count=self.count,
            last_offset_delta=self.count - 1,
            base_timestamp=timestamp,
            max_timestamp=timestamp,
            attributes=int(compression),
        )


def bodies(columns: Columns, bytes_max: int) -> Iterator[Body]:
    """No body is larger than `bytes_max`, unless a single record is."""
    count = len(columns.values)
    key_sizes, value_sizes = sizes(columns.keys, count), sizes(columns.values, count)
    tail_sizes = np.ones(count, np.int64) if columns.tails is None else sizes(columns.tails, count)
    # Of the deltas only the largest possible size is known before it is known where a batch begins.
    most = 3 * VARINT_BYTES_MAX + 2 + VARINT_BYTES_MAX
    bounds = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + tail_sizes + most
    edges = cut_at(np.cumsum(bounds), bytes_max)
    deltas = np.arange(count) - np.repeat(edges[:-1], np.diff(edges))
    joined = join_records(columns, key_sizes, value_sizes, tail_sizes, deltas)
    offsets = np.frombuffer(joined.buffers()[1], np.int64 if is_large(joined) else np.int32)
    data = memoryview(joined.buffers()[2] or b"")
    for begin, end in pairwise(edges.tolist()):
        yield Body(end - begin, data[int(offsets[begin]) : int(offsets[end])])


def cut_at(ends: Integers, size_max: int) -> Integers:
    """Where to cut rows whose sizes add up to `ends`: 0, the beginning of each further piece, the number of rows."""
    edges = [0]
    while edges[-1] < len(ends):
        begun = ends[edges[-1] - 1] if edges[-1] else 0
        following = int(np.searchsorted(ends, begun + size_max, side="right"))
        edges.append(max(following, edges[-1] + 1))
    return np.array(edges, np.int64)


def join_records(
    columns: Columns,
    key_sizes: Integers,
    value_sizes: Integers,
    tail_sizes: Integers,
    deltas: Integers,
) -> pa.Array:
    middles = Varints([value_sizes])
    after_size = Varints([deltas, key_sizes], zeros=2)
    record_sizes = (
        after_size.sizes
        + np.maximum(key_sizes, 0)
        + middles.sizes
        + np.maximum(value_sizes, 0)
        + tail_sizes
    )
    heads = Varints([record_sizes], then=after_size)
    parts = [heads.column(), middles.column(), large(columns.values)]
    if columns.keys is not None:
        parts.insert(1, large(columns.keys))
    parts.append(
        large(columns.tails) if columns.tails is not None else pa.scalar(NO_HEADERS, LARGE)
    )
    return pc.binary_join_element_wise(
        *parts, pa.scalar(b"", LARGE), null_handling="replace", null_replacement=b""
    )


LARGE = pa.large_binary()


def large(column: pa.Array) -> pa.Array:
    return column.cast(LARGE)


def is_large(column: pa.Array) -> bool:
    return bool(pa.types.is_large_binary(column.type))


class Varints:
    """Zigzag varints of several columns, side by side: row i holds those of row i of each column, without gaps."""

    def __init__(
        self, columns: Sequence[Integers], *, zeros: int = 0, then: Varints | None = None
    ) -> None:
        count = len(columns[0])
        matrices = [np.zeros((count, zeros), np.uint8)]
        masks = [np.ones((count, zeros), bool)]
        places = np.arange(VARINT_BYTES_MAX)
        for column in columns:
            raw = (column.astype(np.int64) << 1) ^ (column.astype(np.int64) >> 63)
            rest = raw[:, None] >> (7 * places)
            # A byte is written if it or any behind it has bits; the first is always.
            used = (rest > 0) | (places == 0)
            more = np.zeros_like(used)
            more[:, :-1] = used[:, 1:]
            matrices.append(((rest & 0x7F) | (more * 0x80)).astype(np.uint8))
            masks.append(used)
        if then is not None:
            matrices.append(then.matrix)
            masks.append(then.mask)
        self.matrix: np.ndarray[Any, np.dtype[np.uint8]] = np.hstack(matrices)
        self.mask: np.ndarray[Any, np.dtype[np.bool_]] = np.hstack(masks)
        self.sizes: Integers = self.mask.sum(axis=1)

    def column(self) -> pa.Array:
        offsets = np.zeros(len(self.sizes) + 1, np.int64)
        np.cumsum(self.sizes, out=offsets[1:])
        data = self.matrix[self.mask]
        return pa.LargeBinaryArray.from_buffers(
            LARGE, len(self.sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )


def sizes(column: pa.Array | None, count: int) -> Integers:
    """-1 for null, as a record has it."""
    if column is None:
        return np.full(count, -1, np.int64)
    found = pc.fill_null(pc.binary_length(column), -1)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)


def header_tails(column: pa.Array) -> pa.Array | None:
    """The end of each record, from list<struct<key, value>>; None if there is not one header."""
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
            raise ValueError("a header without a key; leave such headers out")
        name, value = header["key"].encode(), header["value"]
        parts += (varint(len(name)), name)
        parts += (b"\1",) if value is None else (varint(len(value)), value)
    return b"".join(parts)


# ---- placement --------------------------------------------------------------------------------------------------


def partitions_of_keys(keys: pa.Array, partition_count: int) -> Integers:
    """Where Kafka's default partitioner puts each key; -1 for null."""
    hashes = murmur2_of(keys)
    placed = (hashes & 0x7FFF_FFFF) % partition_count
    if keys.null_count:
        placed = np.where(np.asarray(keys.is_null()), -1, placed)
    return placed


def murmur2_of(keys: pa.Array) -> Integers:
    """murmur2 of every key, four bytes of all keys at a time. Of a null it is not to be used."""
    keys = large(keys)
    offsets = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    state = (SEED ^ lengths) & MASK
    whole = np.minimum(lengths, VECTOR_KEY_BYTES_MAX) // 4
    for word in range(int(whole.max(initial=0))):
        rows = np.nonzero(whole > word)[0]
        at = starts[rows] + 4 * word
        read = sum(data[at + byte].astype(np.int64) << (8 * byte) for byte in range(4))
        mixed = read * MULTIPLIER & MASK
        mixed = (mixed ^ mixed >> 24) * MULTIPLIER & MASK
        state[rows] = (state[rows] * MULTIPLIER & MASK) ^ mixed
    tails = lengths % 4
    for size in (1, 2, 3):
        rows = np.nonzero(tails == size)[0]
        at = starts[rows] + lengths[rows] - size
        rest = sum(data[at + byte].astype(np.int64) << (8 * byte) for byte in range(size))
        state[rows] = (state[rows] ^ rest) * MULTIPLIER & MASK
    state = (state ^ state >> 13) * MULTIPLIER & MASK
    state = state ^ state >> 15
    for row in np.nonzero(lengths > VECTOR_KEY_BYTES_MAX)[0]:
        state[row] = murmur2(bytes(data[starts[row] : starts[row] + lengths[row]]))
    return state
