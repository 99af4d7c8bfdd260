"""Fast validation of the records in a batch, for the records that clients usually send.

    length │ attributes │ timestamp delta │ offset delta │ key │ value │ headers

Most batches have runs of records of one size. In a run, the byte at the same place in every record is read with one
slice, whose step is the record size. Such a slice is a *column*, which is compared with the expected bytes. Other
records are read one by one, in as few Python operations as possible. `skim` stops at the first unusual record, valid or
not; `walk_records` in record_walk.py validates the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

from barnabas.batch.records import read_varint

VARLONG_BYTES_MAX = 9
"""A longer timestamp delta is unusual."""
RUN_MIN = 12
"""Shorter runs are read record by record, which takes no longer."""
STRETCH_MAX = 256
"""Maximum number of records that are read one by one before the next search for a run."""
SEARCH_PAUSE_MAX = 8192
"""Maximum number of records without a search after a run whose records have different layouts."""
LAYOUTS_MAX = 32
LAYOUT_BYTES_MAX = 128 << 10
COLUMNS_MAX = 64
HEADERS_MAX = 200_000
"""Maximum number of record headers in a batch. `skim` stops after more; `walk_records` validates the rest."""
INVALID_END = 1 << 40
"""End position of an invalid or unusual record. It is greater than any valid position."""

CONTINUED = bytes(range(0x80, 0x100))
"""All bytes of a varint except the last one have the high bit set."""

# Offset deltas below 64, 8192 and 2**20 are varints of one, two and three bytes. The expected columns of 0, 1, 2, … are
# ONLY for one byte, FIRST and LAST for two, and FIRST, MIDDLE and a constant third byte for three.
ONE_BYTE_END, PERIOD = 64, 8192
ONLY = bytes(number << 1 for number in range(ONE_BYTE_END))
FIRST = bytes(number << 1 & 0x7F | 0x80 for number in range(ONE_BYTE_END)) * (
    PERIOD // ONE_BYTE_END
)
LAST = bytes(number >> 6 for number in range(PERIOD))
MIDDLE = bytes(number >> 6 | 0x80 for number in range(PERIOD))
THREE_BYTE_END = PERIOD * 0x80

TWO_BYTE_DELTAS = memoryview(
    bytes(digit for pair in zip(FIRST, LAST, strict=True) for digit in pair)
).cast("H")

# Two bytes of record length, attributes, one byte of timestamp delta, one (early) or two (late) of offset delta, one of
# key size.
start_of_early_record = struct.Struct("=BBxBBB").unpack_from
start_of_late_record = struct.Struct("=BBxBHB").unpack_from


class SkimResult(NamedTuple):
    """The number of leading records that are valid, and the position after them."""

    records: int
    end: int


class RunLayout(NamedTuple):
    """The columns that determine the layout of the records in a run, and their expected bytes."""

    columns_at: tuple[slice, ...]
    take: Callable[[bytes], tuple[bytes, ...]]
    """Returns all columns of a body in one call."""
    expected: tuple[bytes, ...]
    """Columns of the lengths, offset deltas, and sizes of keys, values and headers."""
    last: tuple[slice, ...]
    continued: tuple[slice, ...]
    """Columns of the last bytes, and of the other bytes, of the timestamp deltas. Only their high bits are checked."""


class Run(NamedTuple):
    """Consecutive records of one size. `number` is the index in the batch of the run's first record."""

    begin: int
    number: int
    size: int
    records: int


layouts: dict[Run | tuple[int, int], RunLayout] = {}
"""Cache: layouts of recent batches by (size, record count), and of recent runs."""


def skim(body: bytes, count: int) -> SkimResult:
    """Validate up to `count` records, whose offset deltas must be 0, 1, 2, …."""
    batch_layout = layouts.get((len(body), count))
    if batch_layout is not None and matches_layout(body, batch_layout):
        return SkimResult(count, len(body))
    at = number = 0
    stretch, headers_left = RUN_MIN, HEADERS_MAX
    runs: list[tuple[Run, RunLayout]] = []
    next_search, search_pause = 0, RUN_MIN
    try:
        while number < count:
            run = find_run(body, at, number, count) if number >= next_search else None
            if run is not None:
                layout = find_layout(body, run)
                if layout is not None:
                    runs.append((run, layout))
                    number += run.records
                    at += run.records * run.size
                    continue
                # The records have one size but different layouts. Frequent searches would cost more than reading them.
                search_pause = min(search_pause * 2, SEARCH_PAUSE_MAX)
                next_search = number + search_pause
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
        pass  # a record is incomplete, invalid or unusual: left to walk_records
    if runs and number == count and at == len(body):
        cache_batch_layout(body, count, runs)
    return SkimResult(number, at)


def cache_batch_layout(body: bytes, count: int, runs: list[tuple[Run, RunLayout]]) -> None:
    """Cache the layout of a batch that consists of runs and at most one more record at the end."""
    last = runs[-1][0]
    end, number = last.begin + last.size * last.records, last.number + last.records
    if sum(run.records for run, _ in runs) != number or number < count - 1:
        return
    parts = [layout for _, layout in runs]
    if number < count:
        last_record = build_layout(body, Run(end, number, len(body) - end, 1))
        if last_record is None:
            return
        parts.append(last_record)
    columns_at = [places for part in parts for places in part.columns_at]
    if len(columns_at) <= COLUMNS_MAX:
        batch_layout = RunLayout(
            tuple(columns_at),
            itemgetter(*columns_at),
            tuple(column for part in parts for column in part.expected),
            tuple(places for part in parts for places in part.last),
            tuple(places for part in parts for places in part.continued),
        )
        cache_layout((len(body), count), batch_layout)


def cache_layout(key: Run | tuple[int, int], layout: RunLayout) -> None:
    if sum(map(len, layout.expected)) <= LAYOUT_BYTES_MAX:
        if len(layouts) >= LAYOUTS_MAX:
            layouts.clear()
        layouts[key] = layout


# ---- records of one size ---------------------------------------------------------------------------------------


def find_run(body: bytes, at: int, number: int, count: int) -> Run | None:
    """Return a candidate run at `at`, or None. Only some record lengths are compared; `find_layout` verifies it."""
    records = count - number
    if records < RUN_MIN:
        return None
    width, size = 1, body[at]
    if size > 0x7F:
        width, size = 2, size + (body[at + 1] << 7) - 0x80
    length = body[at : at + width]
    size = width + (size >> 1)
    if body[at + size : at + size + width] != length:
        return None
    records = min(records, (len(body) - at) // size, run_max(number))
    if records < RUN_MIN:
        return None
    end = at + records * size
    if body[end - size : end - size + width] != length:
        end -= size  # usually only the last record differs
        records -= 1
        if body[end - size : end - size + width] != length:
            first_bytes = body[at:end:size]
            records -= len(first_bytes.lstrip(length[:1]))
    return Run(at, number, size, records) if records >= RUN_MIN else None


def run_max(number: int) -> int:
    """Return the maximum length of a run that begins at record `number`, or 0 if its offset delta is too large.

    The offset deltas of a run have the same width and the same third byte.
    """
    if number < ONE_BYTE_END:
        return ONE_BYTE_END - number
    return PERIOD - number % PERIOD if number < THREE_BYTE_END else 0


def find_layout(body: bytes, run: Run) -> RunLayout | None:
    """Return the layout of a run, or None if the layouts of its records differ."""
    layout = layouts.get(run)
    if layout is not None and matches_layout(body, layout):
        return layout
    layout = build_layout(body, run)
    if layout is None or not matches_layout(body, layout):
        return None
    cache_layout(run, layout)
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
    offset_delta_at = find_varint_end(body, attributes_at + 1)
    fields_at = find_varint_end(body, offset_delta_at)
    constant = [*range(begin, attributes_at), *places_of_sizes(body, fields_at)]
    if len(constant) > COLUMNS_MAX:
        return None
    *continued, last = range(attributes_at + 1, offset_delta_at)
    first = number % PERIOD
    columns = [body[place : place + 1] * records for place in constant]
    columns += [column[first : first + records] for column in offset_deltas(number)]
    columns_at = [
        slice(place, end, size) for place in (*constant, *range(offset_delta_at, fields_at))
    ]
    return RunLayout(
        tuple(columns_at),
        itemgetter(*columns_at),
        tuple(columns),
        (slice(last, end, size),),
        tuple(slice(place, end, size) for place in continued),
    )


def offset_deltas(number: int) -> tuple[bytes, ...]:
    if number < ONE_BYTE_END:
        return (ONLY,)
    if number < PERIOD:
        return FIRST, LAST
    return FIRST, MIDDLE, bytes((number // PERIOD,)) * PERIOD


def places_of_sizes(body: bytes, at: int) -> list[int]:
    """Return the positions of all size bytes of key, value and headers in a valid record."""
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
    if number < ONE_BYTE_END:
        start, width = start_of_early_record, 6
        deltas: bytes | memoryview = ONLY[number:until]
    else:
        start, width = start_of_late_record, 7
        deltas = TWO_BYTE_DELTAS[number:until]
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
    """Validate records up to `until`, and stop at an invalid one. Return next number, position and headers read."""
    headers_seen = 0
    for current in range(number, until):
        end, headers = find_record_end(body, at, current)
        if end == INVALID_END:
            return current, at, headers_seen
        at = end
        headers_seen += headers
    return until, at, headers_seen


def find_record_end(body: bytes, at: int, number: int) -> tuple[int, int]:
    """Return the end of a record and its number of headers. INVALID_END, or raises IndexError, if it is invalid."""
    size = body[at]
    at += 1
    if size > 0x7F:
        size, at = read_multibyte_varint(body, at, size)
    stop = at + (size >> 1)
    at += 1
    at = find_varint_end(body, at) if body[at] > 0x7F else at + 1
    delta = body[at]
    at += 1
    if delta > 0x7F:
        delta, at = read_multibyte_varint(body, at, delta)
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


def read_multibyte_varint(body: bytes, at: int, first: int) -> tuple[int, int]:
    """Return a varint of several bytes, still zigzag-encoded, and the position after it; -1 if it exceeds 32 bits.

    `first` is its first byte, and `at` is the position of its second byte.
    """
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
    for end in range(at, at + VARLONG_BYTES_MAX):
        if body[end] < 0x80:
            return end + 1
    return INVALID_END


def find_headers_end(body: bytes, at: int, count: int) -> int:
    """Return the position after the headers, or INVALID_END if they are invalid or more than 63. `count` is zigzag."""
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
    """Return the end of a field that is null or has 64 bytes or more. `size` is the first byte of its size varint."""
    if size == 1:
        return at
    if size > 0x7F:
        size, at = read_multibyte_varint(body, at, size)
    return INVALID_END if size & 1 else at + (size >> 1)
