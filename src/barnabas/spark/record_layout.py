"""Positions of all fields in the records of many batches, computed with numpy for all records at once.

    length │ attributes │ timestamp delta │ offset delta │ key length │ key │ value length │ value │ header count │ …
    varint      byte           varint          varint         varint             varint                 varint

The length of a record gives the start of the next one, so lengths must be read one after the other. Runs of records
with equal size are found faster. If the record at p has size d, and the bytes of its length are also found at p + d,
the next record has size d too.

The bytes are not trusted: every position is checked against the end of its record. Corrupt data raises RemoteWireError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barnabas.errors import RemoteWireError

Int64s = NDArray[np.int64]
Octets = NDArray[np.uint8]

RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, two lengths and the header count take at least one byte each."""
INT_BYTES_MAX, LONG_BYTES_MAX = 5, 10
"""Sizes of the longest varints of 32 and 64 bits. Excess bits of the last byte are dropped, as in batch/reader.py."""
RUN_RECORDS_MIN = 256
"""Shorter runs are read faster in plain Python."""
VECTOR_ROUND_MIN = 16
"""Headers of fewer records are read faster in plain Python."""


class BatchBody(NamedTuple):
    """The uncompressed records of one batch, from `start` to `end` of a buffer."""

    start: int
    end: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    last_offset_delta: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Positions and lengths of one bytes field of all records. Length -1 means null."""

    starts: Int64s
    lengths: Int64s

    def select(self, wanted: NDArray[np.bool_]) -> Spans:
        return Spans(starts=self.starts[wanted], lengths=self.lengths[wanted])


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLayout:
    """Field positions and values, one array element per record, in log order."""

    timestamp_deltas: Int64s
    offset_deltas: Int64s
    keys: Spans
    values: Spans
    header_counts: Int64s
    header_starts: Int64s
    ends: Int64s

    def select(self, wanted: NDArray[np.bool_]) -> RecordLayout:
        return RecordLayout(
            timestamp_deltas=self.timestamp_deltas[wanted],
            offset_deltas=self.offset_deltas[wanted],
            keys=self.keys.select(wanted),
            values=self.values.select(wanted),
            header_counts=self.header_counts[wanted],
            header_starts=self.header_starts[wanted],
            ends=self.ends[wanted],
        )


def lay_out(octets: Octets, data: memoryview, bodies: Sequence[BatchBody]) -> RecordLayout:
    """Find all fields of the records. Raises RemoteWireError for corrupt records.

    `octets` and `data` are the same bytes: numpy needs `octets`, and plain Python reads `data` faster.
    """
    for body in bodies:
        size = body.end - body.start
        if not 0 <= body.count <= size // RECORD_BYTES_MIN or (size and not body.count):
            raise RemoteWireError(f"{body.count} records cannot fit {size} bytes")
    try:
        starts, ends = find_records(octets, data, bodies)
        return read_record_fields(octets, starts, ends, bodies)
    except IndexError:
        raise RemoteWireError("a record ends after its batch") from None


def read_record_fields(
    octets: Octets, starts: Int64s, ends: Int64s, bodies: Sequence[BatchBody]
) -> RecordLayout:
    """Read the fields between the verified starts and ends of the records.

    A corrupt record may have a field after its end. The last check detects this: the fields must end with the record.
    """
    timestamp_deltas, at = read_varints(octets, starts + 1, LONG_BYTES_MAX)
    offset_deltas, at = read_varints(octets, at)
    last = np.repeat([body.last_offset_delta for body in bodies], [body.count for body in bodies])
    require_all(
        (offset_deltas >= 0) & (offset_deltas <= last), "an offset delta outside of the batch"
    )
    keys, at = read_spans(octets, at, ends)
    values, at = read_spans(octets, at, ends)
    header_counts, at = read_varints(octets, at)
    # A header takes at least two bytes. The count is checked before arrays of that size are allocated.
    fits = (header_counts >= 0) & (header_counts <= (ends - at) >> 1)
    require_all(fits, "an impossible number of headers")
    require_all((header_counts > 0) | (at == ends), "the fields of a record end before the record")
    return RecordLayout(
        timestamp_deltas=timestamp_deltas,
        offset_deltas=offset_deltas,
        keys=keys,
        values=values,
        header_counts=header_counts,
        header_starts=at,
        ends=ends,
    )


def read_spans(octets: Octets, at: Int64s, ends: Int64s) -> tuple[Spans, Int64s]:
    lengths, starts = read_varints(octets, at)
    lengths = np.maximum(lengths, -1)  # any negative length means null
    require_all(lengths <= ends - starts, "a field is longer than its record")
    return Spans(starts=starts, lengths=lengths), starts + np.maximum(lengths, 0)


def require_all(conditions: NDArray[np.bool_], message: str) -> None:
    if not conditions.all():
        raise RemoteWireError(message)


def read_varints(
    octets: Octets, at: Int64s, bytes_max: int = INT_BYTES_MAX
) -> tuple[Int64s, Int64s]:
    """Read the zigzag varint at each position. Returns the values and the positions after them.

    Raises IndexError after the end of the data. Each loop reads the next byte of all unfinished varints.
    """
    byte = octets.take(at)
    value = (byte & 0x7F).astype(np.uint64)
    after = at + 1
    unfinished = np.flatnonzero(byte > 0x7F)
    shift = 7
    while unfinished.size:
        if shift >= 7 * bytes_max:
            raise RemoteWireError("a varint is too long")
        # If all varints have another byte, a slice avoids two gathers.
        selected: Any = slice(None) if unfinished.size == at.size else unfinished
        byte = octets.take(after[selected])
        value[selected] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[selected] += 1
        unfinished = unfinished[byte > 0x7F]
        shift += 7
    if bytes_max == INT_BYTES_MAX:
        value &= np.uint64(0xFFFF_FFFF)
    return (value >> np.uint64(1)).view(np.int64) ^ -((value & np.uint64(1)).view(np.int64)), after


# ---- record boundaries ----------------------------------------------------------------------------------------


def find_records(
    octets: Octets, data: memoryview, bodies: Sequence[BatchBody]
) -> tuple[Int64s, Int64s]:
    """Return the start of each record, after its length, and its end.

    If an earlier batch has the same size and record count, its positions are tried first, because verifying them is
    cheap. If a guess is wrong, the positions are read from the data.
    """
    known: dict[tuple[int, int], Int64s] = {}
    positions: list[Int64s] = []
    guessed: list[int] = []
    for index, body in enumerate(bodies):
        shape = (body.end - body.start, body.count)
        relative = known.get(shape)
        if relative is None:
            relative = known[shape] = find_positions(octets, data, body) - body.start
        else:
            guessed.append(index)
        positions.append(relative + body.start)
    try:
        return verify_positions(octets, np.concatenate(positions), bodies)
    except (RemoteWireError, IndexError):
        if not guessed:
            raise
    for index in guessed:
        positions[index] = find_positions(octets, data, bodies[index])
    return verify_positions(octets, np.concatenate(positions), bodies)


def verify_positions(
    octets: Octets, positions: Int64s, bodies: Sequence[BatchBody]
) -> tuple[Int64s, Int64s]:
    """Check that each record ends where the next one begins, and the last one of a batch at the end of the batch.

    Returns the start of each record, after its length, and its end. Raises RemoteWireError.
    """
    lengths, starts = read_varints(octets, positions)
    ends = starts + lengths
    expected = np.empty_like(positions)
    expected[:-1] = positions[1:]
    filled = [body for body in bodies if body.count]
    last = np.cumsum([body.count for body in filled], dtype=np.int64) - 1
    expected[last] = [body.end for body in filled]
    require_all(
        (lengths > 0) & (ends == expected), "a record does not end where the next one begins"
    )
    return starts, ends


def find_positions(octets: Octets, data: memoryview, body: BatchBody) -> Int64s:
    """Return the position of each record's length field. Raises IndexError after the end of the data."""
    if body.count < RUN_RECORDS_MIN:
        return np.array(walk_lengths(data, body.start, body.count)[0], np.int64)
    at, left = body.start, body.count
    found: list[Int64s] = []
    while left:
        run, at = find_equal_run(octets, data, at, body.end, left)
        found.append(run)
        left -= len(run)
        if len(run) < RUN_RECORDS_MIN:
            steps = min(left, 4 * RUN_RECORDS_MIN)
            walked, at = walk_lengths(data, at, steps)
            found.append(np.array(walked, np.int64))
            left -= steps
    return np.concatenate(found)


def walk_lengths(data: memoryview, at: int, count: int) -> tuple[list[int], int]:
    """Return the positions of `count` length fields, and the position after the last record.

    The sign of a length is ignored here, so that positions only increase. `verify_positions` rejects negative lengths.
    """
    positions = []
    for _ in range(count):
        positions.append(at)
        byte = data[at]
        if byte < 0x80:
            at += 1 + (byte >> 1)
        else:
            second = data[at + 1]
            if second < 0x80:
                at += 2 + ((second << 7 | byte & 0x7F) >> 1)
            else:
                doubled, at = read_raw_varint(data, at)
                at += doubled >> 1
    return positions, at


def read_raw_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the 32-bit varint at `at`, without zigzag decoding, and the position after it."""
    value = 0
    for shift in range(0, 7 * INT_BYTES_MAX, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF, at
    raise RemoteWireError("a varint is too long")


def find_equal_run(
    octets: Octets, data: memoryview, at: int, end: int, count: int
) -> tuple[Int64s, int]:
    """Return the positions of up to `count` records of equal size that begin at `at`, and the position after them."""
    doubled, body = read_raw_varint(data, at)
    width, size = body - at, body - at + (doubled >> 1)
    run_max = min(count, (end - at) // size)
    if run_max < 1:
        raise RemoteWireError("a record is longer than its batch")
    run = 1
    limit = 2 * RUN_RECORDS_MIN
    while run < run_max:
        # Compare in growing steps, so that a short run costs little.
        until = min(run_max, limit)
        equal = np.ones(until - run, np.bool_)
        for index in range(at, at + width):
            column = octets[index + run * size : index + (until - 1) * size + 1 : size]
            equal &= column == octets[index]
        if not equal.all():
            run += int(equal.argmin())
            break
        run = until
        limit *= 4
    return at + np.arange(run, dtype=np.int64) * size, at + run * size


# ---- headers --------------------------------------------------------------------------------------------------


def lay_out_headers(octets: Octets, data: memoryview, layout: RecordLayout) -> tuple[Spans, Spans]:
    """Return the spans of the names and of the values of all headers, in record order. Raises RemoteWireError.

    The first headers of all records are read at once, then the second headers, and so on. When few records have
    another header, plain Python reads the rest.
    """
    counts = layout.header_counts
    total = int(counts.sum())
    name_starts, name_lengths = np.empty(total, np.int64), np.empty(total, np.int64)
    value_starts, value_lengths = np.empty(total, np.int64), np.empty(total, np.int64)
    first_slots = np.cumsum(counts) - counts
    rows = np.flatnonzero(counts)
    at, slots, left, stops = (
        each[rows] for each in (layout.header_starts, first_slots, counts, layout.ends)
    )
    try:
        while left.size >= VECTOR_ROUND_MIN:
            names, at = read_spans(octets, at, stops)
            values, at = read_spans(octets, at, stops)
            require_all(names.lengths >= 0, "a record header has no name")
            name_starts[slots], name_lengths[slots] = names.starts, names.lengths
            value_starts[slots], value_lengths[slots] = values.starts, values.lengths
            more = left > 1
            require_all(more | (at == stops), "the fields of a record end before the record")
            at, slots, left, stops = at[more], slots[more] + 1, left[more] - 1, stops[more]
        rest = (each.tolist() for each in (at, slots, left, stops))
        for position, slot, count, stop in zip(*rest, strict=True):
            for index in range(slot, slot + count):
                name, name_end = read_field(data, position, stop)
                value, position = read_field(data, name_end, stop)
                if name < 0:
                    raise RemoteWireError("a record header has no name")
                name_starts[index], name_lengths[index] = name_end - name, name
                value_starts[index], value_lengths[index] = position - max(value, 0), value
            if position != stop:
                raise RemoteWireError("the fields of a record end before the record")
    except IndexError:
        raise RemoteWireError("a record header ends after its record") from None
    names = Spans(starts=name_starts, lengths=name_lengths)
    return names, Spans(starts=value_starts, lengths=value_lengths)


def read_field(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return the length of a field, -1 for null, and the position after the field."""
    doubled, at = read_raw_varint(data, at)
    length = max((doubled >> 1) ^ -(doubled & 1), -1)  # any negative length means null
    if length > end - at:
        raise RemoteWireError("a field is longer than its record")
    return length, at + max(length, 0)
