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
RUN_WORTH_LOOKING_FOR = 256
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
    for body in bodies:
        size = body.end - body.start
        if not 0 <= body.count <= size // RECORD_BYTES_MIN or (size and not body.count):
            raise RemoteWireError(f"{body.count} records in {size} bytes")
    try:
        starts, ends = find_records(octets, data, bodies)
        return read_fields(octets, starts, ends, bodies)
    except IndexError:
        raise RemoteWireError("a record goes on behind the end of its batch") from None


def read_fields(octets: Octets, starts: Int64s, ends: Int64s, bodies: Sequence[Body]) -> Layout:
    """Starts and ends have been proved, nothing between them is. A field may seem to begin behind its record, but then
    it is not the last of them that ends where the record does."""
    timestamp_deltas, at = read_varints(octets, starts + 1)
    offset_deltas, at = read_varints(octets, at)
    last = np.repeat([body.last_offset_delta for body in bodies], [body.count for body in bodies])
    require((offset_deltas >= 0) & (offset_deltas <= last), "an offset outside of the batch")
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
    going_on = np.flatnonzero(byte > 0x7F)
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
        going_on = going_on[byte > 0x7F]
        shift += 7
    return (value >> np.uint64(1)).view(np.int64) ^ -((value & np.uint64(1)).view(np.int64)), after


# ---- the chain of lengths -------------------------------------------------------------------------------------


def find_records(octets: Octets, data: memoryview, bodies: Sequence[Body]) -> tuple[Int64s, Int64s]:
    """Where each record begins, behind its length, and where it ends.

    Producers that send alike records send alike batches. So a batch of the same size and count as an earlier one is
    taken to have its records in the same places, until the proof, which costs next to nothing, says otherwise.
    """
    known: dict[tuple[int, int], Int64s] = {}
    positions: list[Int64s] = []
    guessed: list[int] = []
    for index, body in enumerate(bodies):
        shape = (body.end - body.start, body.count)
        places = known.get(shape)
        if places is None:
            places = known[shape] = follow(octets, data, body) - body.start
        else:
            guessed.append(index)
        positions.append(places + body.start)
    try:
        return prove(octets, np.concatenate(positions), bodies)
    except (RemoteWireError, IndexError):
        if not guessed:
            raise
    for index in guessed:
        positions[index] = follow(octets, data, bodies[index])
    return prove(octets, np.concatenate(positions), bodies)


def prove(octets: Octets, positions: Int64s, bodies: Sequence[Body]) -> tuple[Int64s, Int64s]:
    """The lengths at the positions lead from each record to the next, and from the last one to the end of its batch."""
    lengths, starts = read_varints(octets, positions)
    ends = starts + lengths
    expected = np.empty_like(positions)
    expected[:-1] = positions[1:]
    filled = [body for body in bodies if body.count]
    last = np.cumsum([body.count for body in filled], dtype=np.int64) - 1
    expected[last] = [body.end for body in filled]
    require((lengths > 0) & (ends == expected), "a record that does not end where the next begins")
    return starts, ends


def follow(octets: Octets, data: memoryview, body: Body) -> Int64s:
    """The position of each record's length. IndexError if it leads behind the end of all bytes."""
    if body.count < RUN_WORTH_LOOKING_FOR:
        return np.array(walk(data, body.start, body.count)[0], np.int64)
    at, left = body.start, body.count
    found: list[Int64s] = []
    while left:
        run, at = follow_run(octets, data, at, body.end, left)
        found.append(run)
        left -= len(run)
        if len(run) < RUN_WORTH_LOOKING_FOR:
            steps = min(left, 4 * RUN_WORTH_LOOKING_FOR)
            walked, at = walk(data, at, steps)
            found.append(np.array(walked, np.int64))
            left -= steps
    return np.concatenate(found)


def walk(data: memoryview, at: int, count: int) -> tuple[list[int], int]:
    """Positions of `count` lengths, and the position behind the last of their records. Negative lengths are taken for
    positive ones: the way leads only forward, and `prove` finds them."""
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
                doubled, at = read_uvarint(data, at)
                at += doubled >> 1
    return positions, at


def read_uvarint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise RemoteWireError("a varint longer than 64 bits")


def follow_run(
    octets: Octets, data: memoryview, at: int, end: int, count: int
) -> tuple[Int64s, int]:
    """The positions of the first records from `at` on that have the same length, and the position behind them."""
    doubled, body = read_uvarint(data, at)
    width, size = body - at, body - at + (doubled >> 1)
    most = min(count, (end - at) // size)
    if most < 1:
        raise RemoteWireError("a record that is longer than its batch")
    same = 1
    limit = 2 * RUN_WORTH_LOOKING_FOR
    while same < most:
        # Look at ever more of them, so that a short run costs little.
        until = min(most, limit)
        alike = np.ones(until - same, np.bool_)
        for index in range(at, at + width):
            column = octets[index + same * size : index + (until - 1) * size + 1 : size]
            alike &= column == octets[index]
        if not alike.all():
            same += int(alike.argmin())
            break
        same = until
        limit *= 4
    return at + np.arange(same, dtype=np.int64) * size, at + same * size


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
    doubled, at = read_uvarint(data, at)
    length = (doubled >> 1) ^ -(doubled & 1)
    if not -1 <= length <= end - at:
        raise RemoteWireError("a field longer than its record")
    return length, at + max(length, 0)
