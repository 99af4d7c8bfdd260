"""Fast validation of the records in a batch, for the records that clients usually send.

    length │ attributes │ timestamp delta │ offset delta │ key │ value │ headers

Most batches have runs of records of one size. In a run, each length, size and delta lies at the same distance from that
of the next record. One slice of the body therefore reads it for all records, and is compared with the expected bytes.
Other records are read one by one, in as few Python operations as possible. `skim` stops at the first unusual record,
valid or not; `walk_records` in record_walk.py validates the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

from barnabas.batch.records import read_varint

LONG_BYTES = 9
RUN_MIN = 12
"""Shorter runs are read record by record, which takes no longer."""
STRETCH_MAX = 256
"""Number of records of different sizes that are read before the next search for a run."""
REST_MAX = 8192
"""The same for records of one size whose layouts differ."""
LAYOUTS_MAX = 32
LAYOUT_BYTES_MAX = 128 << 10
PLACES_MAX = 64
HEADERS_MAX = 200_000
INVALID_END = 1 << 40
"""End position of an invalid or unusual record. It is greater than any valid position."""

CONTINUED = bytes(range(0x80, 0x100))
"""All bytes of a varint except the last are among these."""

# The offset deltas from 0 on as varints: all first bytes, all second bytes.
ONE_BYTE, PERIOD = 64, 8192
ONLY = bytes(number << 1 for number in range(ONE_BYTE))
FIRST = bytes(number << 1 & 0x7F | 0x80 for number in range(ONE_BYTE)) * (PERIOD // ONE_BYTE)
LAST = bytes(number >> 6 for number in range(PERIOD))
MIDDLE = bytes(number >> 6 | 0x80 for number in range(PERIOD))
THREE_BYTES = PERIOD * 0x80

TWO_BYTES = memoryview(
    bytes(digit for pair in zip(FIRST, LAST, strict=True) for digit in pair)
).cast("H")

# Record length of two bytes, timestamp delta of one byte, offset delta of one or two bytes, key size of one byte.
start_of_early_record = struct.Struct("=BBxBBB").unpack_from
start_of_late_record = struct.Struct("=BBxBHB").unpack_from


class SkimResult(NamedTuple):
    """The number of leading records that are valid, and the position after them."""

    records: int
    end: int


class RunLayout(NamedTuple):
    """Positions of the bytes that determine the layout of the records in a run, and their expected values."""

    columns_at: tuple[slice, ...]
    take: Callable[[bytes], tuple[bytes, ...]]
    """Returns all of `columns_at` from a body in one call."""
    expected: tuple[bytes, ...]
    """Expected bytes: the lengths, the offset deltas, the sizes of keys, values and headers."""
    last: tuple[slice, ...]
    continued: tuple[slice, ...]
    """Positions of the last bytes, and of the other bytes, of the timestamp deltas. Their values are not compared."""


class Run(NamedTuple):
    """Consecutive records of one size. `number` is the index of the first record in the batch."""

    begin: int
    number: int
    size: int
    records: int


layouts: dict[Run | tuple[int, int], RunLayout] = {}
"""Layouts of recent batches by (size, record count), and of recent runs."""


def skim(body: bytes, count: int) -> SkimResult:
    """Validate records with consecutive offset deltas from the first on, up to `count`."""
    whole = layouts.get((len(body), count))
    if whole is not None and matches_layout(body, whole):
        return SkimResult(count, len(body))
    at = number = 0
    stretch, headers_left = RUN_MIN, HEADERS_MAX
    runs: list[tuple[Run, RunLayout]] = []
    next_run, rest = 0, RUN_MIN
    try:
        while number < count:
            run = find_run(body, at, number, count) if number >= next_run else None
            if run is not None:
                layout = find_layout(body, run)
                if layout is not None:
                    runs.append((run, layout))
                    number += run.records
                    at += run.records * run.size
                    continue
                # The records have one size but different layouts. Frequent searches would cost more than reading them.
                rest = min(rest * 2, REST_MAX)
                next_run = number + rest
            stretch = min(stretch * 2, STRETCH_MAX)
            until = min(number + stretch, count)
            before = number
            number, at = skim_common_records(body, at, number, until)
            if number < until:
                until = number + 1 if number > before else min(number + RUN_MIN, until)
                number, at, headers = skim_each_record(body, at, number, until)
                headers_left -= headers
                if number < until or headers_left < 0:
                    break
    except (IndexError, struct.error):
        pass  # the last records are incomplete: left to walk_records
    if runs and number == count and at == len(body):
        remember_whole(body, count, runs)
    return SkimResult(number, at)


def remember_whole(body: bytes, count: int, runs: list[tuple[Run, RunLayout]]) -> None:
    """Cache the layout of a batch that consists of runs, and of one more record at the end at most."""
    last = runs[-1][0]
    end, number = last.begin + last.size * last.records, last.number + last.records
    if sum(run.records for run, _ in runs) != number or number < count - 1:
        return
    pieces = [layout for _, layout in runs]
    if number < count:
        filling = build_layout(body, Run(end, number, len(body) - end, 1))
        if filling is None:
            return
        pieces.append(filling)
    columns_at = [places for piece in pieces for places in piece.columns_at]
    if len(columns_at) <= PLACES_MAX:
        whole = RunLayout(
            tuple(columns_at),
            itemgetter(*columns_at),
            tuple(column for piece in pieces for column in piece.expected),
            tuple(places for piece in pieces for places in piece.last),
            tuple(places for piece in pieces for places in piece.continued),
        )
        remember((len(body), count), whole)


def remember(key: Run | tuple[int, int], layout: RunLayout) -> None:
    if sum(map(len, layout.expected)) <= LAYOUT_BYTES_MAX:
        if len(layouts) >= LAYOUTS_MAX:
            layouts.clear()
        layouts[key] = layout


# ---- records of one size ---------------------------------------------------------------------------------------


def find_run(body: bytes, at: int, number: int, count: int) -> Run | None:
    """Return the run that begins at `at`, judged by the lengths of its records alone."""
    most = count - number
    if most < RUN_MIN:
        return None
    width, size = 1, body[at]
    if size > 0x7F:
        width, size = 2, size + (body[at + 1] << 7) - 0x80
    sought = body[at : at + width]
    size = width + (size >> 1)
    if body[at + size : at + size + width] != sought:
        return None
    most = min(most, (len(body) - at) // size, run_max(number))
    if most < RUN_MIN:
        return None
    end = at + most * size
    if body[end - size : end - size + width] != sought:
        end -= size  # usually only the last record differs
        most -= 1
        if body[end - size : end - size + width] != sought:
            lengths = body[at:end:size]
            most -= len(lengths.lstrip(sought[:1]))
    return Run(at, number, size, most) if most >= RUN_MIN else None


def run_max(number: int) -> int:
    """Return the number of records from `number` on whose offset deltas have the same width and third byte."""
    if number < ONE_BYTE:
        return ONE_BYTE - number
    return PERIOD - number % PERIOD if number < THREE_BYTES else 0


def find_layout(body: bytes, run: Run) -> RunLayout | None:
    """Return the layout of a run, or None if the records differ from the first one."""
    layout = layouts.get(run)
    if layout is not None and matches_layout(body, layout):
        return layout
    layout = build_layout(body, run)
    if layout is None or not matches_layout(body, layout):
        return None
    remember(run, layout)
    return layout


def matches_layout(body: bytes, layout: RunLayout) -> bool:
    _, take, expected, last, continued = layout
    if take(body) != expected:
        return False
    for places in last:
        if not body[places].isascii():
            return False
    return not any(body[places].translate(None, CONTINUED) for places in continued)


def build_layout(body: bytes, run: Run) -> RunLayout | None:
    """Return the layout of the first record for the whole run, or None if that record is invalid or unusual."""
    begin, number, size, records = run
    if skim_each_record(body, begin, number, number + 1)[1] != begin + size:
        return None
    end = begin + records * size
    _, attributes_at = read_varint(body, begin)
    numbers_at = find_varint_end(body, attributes_at + 1)
    fields_at = find_varint_end(body, numbers_at)
    same = [*range(begin, attributes_at), *places_of_fields(body, fields_at)]
    if len(same) > PLACES_MAX:
        return None
    *continued, last = range(attributes_at + 1, numbers_at)
    first = number % PERIOD
    columns = [body[place : place + 1] * records for place in same]
    columns += [column[first : first + records] for column in offset_deltas(number)]
    columns_at = [slice(place, end, size) for place in (*same, *range(numbers_at, fields_at))]
    return RunLayout(
        tuple(columns_at),
        itemgetter(*columns_at),
        tuple(columns),
        (slice(last, end, size),),
        tuple(slice(place, end, size) for place in continued),
    )


def offset_deltas(number: int) -> tuple[bytes, ...]:
    if number < ONE_BYTE:
        return (ONLY,)
    if number < PERIOD:
        return FIRST, LAST
    return FIRST, MIDDLE, bytes((number // PERIOD,)) * PERIOD


def places_of_fields(body: bytes, at: int) -> list[int]:
    """Return the positions of the sizes of key, value and headers in a valid record."""
    places: list[int] = []

    def size_at(at: int) -> tuple[int, int]:
        size, end = read_varint(body, at)
        places.extend(range(at, end))
        return size, end

    for _ in range(2):
        size, at = size_at(at)
        at += max(size, 0)
    headers, at = size_at(at)
    for _ in range(2 * headers):
        size, at = size_at(at)
        at += max(size, 0)
    return places


# ---- one by one ------------------------------------------------------------------------------------------------


def skim_common_records(body: bytes, at: int, number: int, until: int) -> tuple[int, int]:
    """Validate the most common records, and stop at the first other one. Return the next number and position.

    Common records have 64 bytes to 8 KiB, a timestamp delta below 64 ms, no headers, and a short key or none.
    """
    if number < ONE_BYTE:
        start, width = start_of_early_record, 6
        deltas: bytes | memoryview = ONLY[number:until]
    else:
        start, width = start_of_late_record, 7
        deltas = TWO_BYTES[number:until]
    begin = at
    for expected in deltas:
        begin = at
        low, high, timestamp, delta, key = start(body, at)
        if delta != expected or timestamp > 0x7F or low < 0x80 or high > 0x7F or low & 1:
            break
        stop = at + (low + (high << 7) - 126 >> 1)  # position of the header count
        at += width
        if key != 1:
            if key & 0x81:
                break
            at += key >> 1
        size = body[at]
        if size & 1:
            break
        if size > 0x7F:
            at += size + (body[at + 1] << 7) - 124 >> 1
        else:
            at += 1 + (size >> 1)
        if at != stop or body[at]:
            break
        at += 1
        number += 1
    else:
        return number, at
    return number, begin


def skim_each_record(body: bytes, at: int, number: int, until: int) -> tuple[int, int, int]:
    """Validate records up to `until`. Return the next number and position, and the number of headers read."""
    headers_seen = 0
    for current in range(number, until):
        end, headers = find_record_end(body, at, current)
        if end == INVALID_END:
            return current, at, headers_seen
        at = end
        headers_seen += headers
    return until, at, headers_seen


def find_record_end(body: bytes, at: int, number: int) -> tuple[int, int]:
    """Return the end of a record and its number of headers. INVALID_END or IndexError if the record is invalid."""
    size = body[at]
    at += 1
    if size > 0x7F:
        size, at = long_varint(body, at, size)
    stop = at + (size >> 1)
    at += 1
    at = find_varint_end(body, at) if body[at] > 0x7F else at + 1
    delta = body[at]
    at += 1
    if delta > 0x7F:
        delta, at = long_varint(body, at, delta)
    if size & 1 or delta != number << 1:
        return INVALID_END, 0
    size = body[at]  # of the key
    at += 1
    at = find_field_end(body, at, size) if size & 0x81 else at + (size >> 1)
    size = body[at]  # of the value
    at += 1
    at = find_field_end(body, at, size) if size & 0x81 else at + (size >> 1)
    headers = body[at]
    at += 1
    if headers:
        at = find_headers_end(body, at, headers)
    return at if at == stop <= len(body) else INVALID_END, headers >> 1


def long_varint(body: bytes, at: int, first: int) -> tuple[int, int]:
    """Return the zigzag value of a varint whose first byte is `first`, and the position after it; -1 above 32 bits."""
    value, shift = first & 0x7F, 7
    while shift < 35:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value if value < 1 << 32 else -1), at
        shift += 7
    return -1, at


def find_varint_end(body: bytes, at: int) -> int:
    for end in range(at, at + LONG_BYTES):
        if body[end] < 0x80:
            return end + 1
    return INVALID_END


def find_headers_end(body: bytes, at: int, count: int) -> int:
    """Return the position after the headers; INVALID_END also for more than 63. `count` is a zigzag value."""
    if count & 0x81:
        return INVALID_END
    for _ in range(count >> 1):
        size = body[at]  # of the name, which is never null
        at += 1
        if size == 1:
            return INVALID_END
        at = find_field_end(body, at, size) if size & 0x81 else at + (size >> 1)
        size = body[at]
        at += 1
        at = find_field_end(body, at, size) if size & 0x81 else at + (size >> 1)
    return at


def find_field_end(body: bytes, at: int, size: int) -> int:
    """Return the end of a field that is null or has 64 bytes or more. `size` is its first byte."""
    if size == 1:
        return at
    if size > 0x7F:
        size, at = long_varint(body, at, size)
    return INVALID_END if size & 1 else at + (size >> 1)
