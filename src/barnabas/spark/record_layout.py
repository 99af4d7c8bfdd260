"""Where everything stands in the records of many batches: arrays of positions, found for all records at once.

    length │ attributes │ timestamp delta │ offset delta │ key length │ key │ value length │ value │ header count │ …
    varint      byte           varint          varint         varint             varint                 varint

Only the chain of lengths has to be followed one by one, since a record says where the next one begins. Where records
are alike even that is a jump: if the record at p has size d, and the bytes of its length also stand at p + d, then the
next one has size d too, and so on for as long as they are found at p + kd.

The bytes come from strangers. Every position is checked against the end of its record before it is used, so that no
array is indexed outside of the record, and RemoteWireError is what damage becomes.
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
"""Length, attributes, two deltas, two lengths, header count: a byte each."""
VARINT_BYTES_MAX = 10
RUN_WORTH_LOOKING_FOR = 64
"""Shorter chains of records are followed faster than they are compared."""
ROUND_WORTH_VECTORISING = 16


class Body(NamedTuple):
    """The plain records of one batch, from `start` to `end` of a buffer."""

    start: int
    end: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    last_offset_delta: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Fields of bytes: where each begins and how long it is. -1 is null."""

    starts: Int64s
    lengths: Int64s

    def where(self, wanted: NDArray[np.bool_]) -> Spans:
        return Spans(starts=self.starts[wanted], lengths=self.lengths[wanted])


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One element per record, in the order of the bytes."""

    timestamp_deltas: Int64s
    offset_deltas: Int64s
    keys: Spans
    values: Spans
    header_counts: Int64s
    header_starts: Int64s
    ends: Int64s

    def where(self, wanted: NDArray[np.bool_]) -> Layout:
        return Layout(
            timestamp_deltas=self.timestamp_deltas[wanted],
            offset_deltas=self.offset_deltas[wanted],
            keys=self.keys.where(wanted),
            values=self.values.where(wanted),
            header_counts=self.header_counts[wanted],
            header_starts=self.header_starts[wanted],
            ends=self.ends[wanted],
        )


def lay_out(octets: Octets, data: memoryview, bodies: Sequence[Body]) -> Layout:
    """`octets` and `data` are the same bytes: numpy reads the one, and Python faster the other."""
    positions = [find_records(octets, data, body) for body in bodies]
    counts = [body.count for body in bodies]
    try:
        return read_fields(
            octets,
            positions[0] if len(positions) == 1 else np.concatenate(positions),
            np.repeat([body.last_offset_delta for body in bodies], counts),
        )
    except IndexError:
        raise RemoteWireError("a record goes on behind the end of its batch") from None


def read_fields(octets: Octets, positions: Int64s, last_offset_deltas: Int64s) -> Layout:
    """The positions are those of a chain that was followed to its end, so the lengths there can be trusted; nothing
    behind them can. A field may seem to begin behind its record, but then it is not the one that ends with it."""
    lengths, at = read_varints(octets, positions)
    ends = at + lengths
    timestamp_deltas, at = read_varints(octets, at + 1)
    offset_deltas, at = read_varints(octets, at)
    within = (offset_deltas >= 0) & (offset_deltas <= last_offset_deltas)
    require(within, "an offset outside of the batch")
    keys, at = read_spans(octets, at, ends)
    values, at = read_spans(octets, at, ends)
    header_counts, at = read_varints(octets, at)
    # Two lengths at least stand for each header: a larger count is refused before anything is built from it.
    fits = (header_counts >= 0) & (header_counts <= (ends - at) >> 1)
    require(fits, "a count of headers that cannot be")
    require((header_counts > 0) | (at == ends), "a record whose fields end before it does")
    return Layout(
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
    require((lengths >= -1) & (lengths <= ends - starts), "a field longer than its record")
    return Spans(starts=starts, lengths=lengths), starts + np.maximum(lengths, 0)


def require(holds: NDArray[np.bool_], otherwise: str) -> None:
    if not holds.all():
        raise RemoteWireError(otherwise)


def read_varints(octets: Octets, at: Int64s) -> tuple[Int64s, Int64s]:
    """The zigzag varint at each position, and the positions behind them. IndexError if the bytes run out.

    The second round of the loop looks only at those that have a second byte, and so on: most are done at once.
    """
    byte = octets.take(at)
    value = (byte & 0x7F).astype(np.uint64)
    after = at + 1
    going_on = np.flatnonzero(byte & 0x80)
    shift = 7
    while going_on.size:
        if shift >= 7 * VARINT_BYTES_MAX:
            raise RemoteWireError("a varint longer than 64 bits")
        # Where every record needs another byte, as many fields of large records do, a slice spares two gathers.
        some: Any = slice(None) if going_on.size == at.size else going_on
        byte = octets.take(after[some])
        if shift == 63 and byte.max() > 1:
            raise RemoteWireError("a varint longer than 64 bits")
        value[some] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[some] += 1
        going_on = going_on[byte >= 0x80]
        shift += 7
    return (value >> np.uint64(1)).view(np.int64) ^ -((value & np.uint64(1)).view(np.int64)), after


# ---- the chain of lengths -------------------------------------------------------------------------------------


def find_records(octets: Octets, data: memoryview, body: Body) -> Int64s:
    """The position of each record's length. RemoteWireError unless `count` records fill the body exactly."""
    at, end, left = body.start, body.end, body.count
    if not 0 <= left <= (end - at) // RECORD_BYTES_MIN:
        raise RemoteWireError(f"{left} records in {end - at} bytes")
    found: list[Int64s] = []
    try:
        while left:
            run = 0
            if left >= RUN_WORTH_LOOKING_FOR:
                positions, at = follow_run(octets, data, at, end, left)
                run = len(positions)
                found.append(positions)
                left -= run
            if run < RUN_WORTH_LOOKING_FOR:
                steps = min(left, 4 * RUN_WORTH_LOOKING_FOR)
                walked, at = walk(data, at, end, steps)
                found.append(np.array(walked, np.int64))
                left -= steps
    except IndexError:
        raise RemoteWireError("a record goes on behind the end of its batch") from None
    if at != end:
        raise RemoteWireError(f"{end - at} bytes behind the last of {body.count} records")
    if not found:
        return np.empty(0, np.int64)
    return found[0] if len(found) == 1 else np.concatenate(found)


def walk(data: memoryview, at: int, end: int, count: int) -> tuple[list[int], int]:
    positions = []
    for _ in range(count):
        positions.append(at)
        byte = data[at]
        if byte < 0x80:
            doubled = byte
            at += 1
        else:
            doubled, at = read_long_length(data, at)
        # An odd number is a negative one: it would lead back, and round in circles.
        if doubled & 1 or at >= end:
            raise RemoteWireError("a record of negative length, or behind the end of its batch")
        at += doubled >> 1
    return positions, at


def read_long_length(data: memoryview, at: int) -> tuple[int, int]:
    doubled = shift = 0
    while True:
        byte = data[at]
        at += 1
        doubled |= (byte & 0x7F) << shift
        if byte < 0x80:
            return doubled, at
        shift += 7
        if shift > 63:
            raise RemoteWireError("a varint longer than 64 bits")


def follow_run(
    octets: Octets, data: memoryview, at: int, end: int, count: int
) -> tuple[Int64s, int]:
    """The positions of the first records from `at` on that have the same length, and the position behind them."""
    _, after = walk(data, at, end, 1)
    size = after - at
    width = len(length_bytes(data, at))
    most = min(count, (end - at) // size)
    if most < 1:
        raise RemoteWireError("a record that is longer than its batch")
    same = 1
    limit = 2 * RUN_WORTH_LOOKING_FOR
    while same < most:
        # Look at ever more of them, so that a short run costs little.
        until = min(most, limit)
        alike = np.ones(until - same, np.bool_)
        for index in range(width):
            first = at + same * size + index
            column = octets[first : at + (until - 1) * size + index + 1 : size]
            alike &= column == octets[at + index]
        if not alike.all():
            same += int(alike.argmin())
            break
        same = until
        limit *= 4
    return at + np.arange(same, dtype=np.int64) * size, at + same * size


def length_bytes(data: memoryview, at: int) -> memoryview:
    end = at
    while data[end] >= 0x80:
        end += 1
    return data[at : end + 1]


# ---- headers --------------------------------------------------------------------------------------------------


def lay_out_headers(octets: Octets, data: memoryview, layout: Layout) -> tuple[Spans, Spans]:
    """Names and values of all headers of all records, one behind the other: the first headers of all records are read
    at once, then the second ones, and so on. What only a few records have is read one by one."""
    counts, ends = layout.header_counts, layout.ends
    total = int(counts.sum())
    name_starts, name_lengths = np.empty(total, np.int64), np.empty(total, np.int64)
    value_starts, value_lengths = np.empty(total, np.int64), np.empty(total, np.int64)
    having = np.flatnonzero(counts)
    at, slots, left = (
        layout.header_starts[having],
        (np.cumsum(counts) - counts)[having],
        counts[having],
    )
    stops = ends[having]
    try:
        while left.size >= ROUND_WORTH_VECTORISING:
            names, at = read_spans(octets, at, stops)
            values, at = read_spans(octets, at, stops)
            require(names.lengths >= 0, "a record header without a name")
            name_starts[slots], name_lengths[slots] = names.starts, names.lengths
            value_starts[slots], value_lengths[slots] = values.starts, values.lengths
            more = left > 1
            require(more | (at == stops), "a record whose fields end before it does")
            at, slots, left, stops = at[more], slots[more] + 1, left[more] - 1, stops[more]
        for start, slot, count, stop in zip(
            at.tolist(), slots.tolist(), left.tolist(), stops.tolist(), strict=True
        ):
            position = start
            for index in range(slot, slot + count):
                name, name_end = read_field(data, position, stop)
                value, position = read_field(data, name_end, stop)
                if name < 0:
                    raise RemoteWireError("a record header without a name")
                name_starts[index], name_lengths[index] = name_end - name, name
                value_starts[index], value_lengths[index] = position - max(value, 0), value
            if position != stop:
                raise RemoteWireError("a record whose fields end before it does")
    except IndexError:
        raise RemoteWireError("a record header goes on behind the end of its record") from None
    return Spans(starts=name_starts, lengths=name_lengths), Spans(
        starts=value_starts, lengths=value_lengths
    )


def read_field(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """The length of a field, -1 for null, and the position behind it."""
    doubled, at = read_long_length(data, at)
    length = (doubled >> 1) ^ -(doubled & 1)
    if not -1 <= length <= end - at:
        raise RemoteWireError("a field longer than its record")
    return length, at + max(length, 0)
