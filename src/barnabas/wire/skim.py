"""Are these so many records, one behind the other? For what clients send, at a fraction of the price of a walk.

    length │ attributes │ timestamp delta │ offset delta │ key │ value │ headers

Most batches have runs of records of one size. Each byte there that says how a record is laid out stands as far from the
same byte of the next record as a record is long: one slice has them all, and what it should hold is known beforehand.
Other records are read one by one, in as few steps as Python allows. Whatever is out of the ordinary, wrong or not, is
left to `walk` in contents.py: here a record is in order, or nothing is said of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

from barnabas.wire.records import read_varint

LONG_BYTES = 9
RUN_MIN = 12
"""In a shorter run each record is read for itself, which takes no longer."""
STRETCH_MAX = 256
"""Where records differ, so many are read before the next run is looked for;"""
REST_MAX = 8192
"""and so many where they do not seem to, and do."""
LAYOUTS_MAX = 32
LAYOUT_BYTES_MAX = 128 << 10
PLACES_MAX = 64
HEADERS_MAX = 200_000
BEYOND = 1 << 40
"""Behind all records: where what is not in order ends."""

CONTINUED = bytes(range(0x80, 0x100))
"""What every byte of a varint but its last is one of."""

# The offset deltas from 0 on, as varints: all their first bytes, all their second bytes.
ONE_BYTE, PERIOD = 64, 8192
ONLY = bytes(number << 1 for number in range(ONE_BYTE))
FIRST = bytes(number << 1 & 0x7F | 0x80 for number in range(ONE_BYTE)) * (PERIOD // ONE_BYTE)
LAST = bytes(number >> 6 for number in range(PERIOD))
MIDDLE = bytes(number >> 6 | 0x80 for number in range(PERIOD))
THREE_BYTES = PERIOD * 0x80

TWO_BYTES = memoryview(
    bytes(digit for pair in zip(FIRST, LAST, strict=True) for digit in pair)
).cast("H")

# A length of two bytes, a timestamp delta of one, an offset delta of one or two, the size of a key.
start_of_early_record = struct.Struct("=BBxBBB").unpack_from
start_of_late_record = struct.Struct("=BBxBHB").unpack_from


class Skimmed(NamedTuple):
    """So many records are in order, and end there."""

    records: int
    end: int


class Layout(NamedTuple):
    """Where to look in a batch for what settles how its records are laid out, and what to find there."""

    settled: tuple[slice, ...]
    take: Callable[[bytes], tuple[bytes, ...]]
    """All of them at once; there are always several."""
    expected: tuple[bytes, ...]
    """What stands there: the lengths, the offset deltas, the sizes of keys, values and headers."""
    last: tuple[slice, ...]
    continued: tuple[slice, ...]
    """Of the timestamp deltas, which may be any: the last bytes, and those before."""


class Run(NamedTuple):
    """Records of one size, one behind the other."""

    begin: int
    number: int
    """Of the first."""
    size: int
    alike: int


layouts: dict[Run | tuple[int, int], Layout] = {}
"""Those of the last batches, by their sizes and how many records they had; and those of single runs."""


def skim(body: bytes, count: int) -> Skimmed:
    """The records from the first on that are in order and numbered, `count` at most."""
    whole = layouts.get((len(body), count))
    if whole is not None and fits(body, whole):
        return Skimmed(count, len(body))
    at = number = 0
    stretch, headers_left = RUN_MIN, HEADERS_MAX
    runs: list[tuple[Run, Layout]] = []
    next_run, rest = 0, RUN_MIN
    try:
        while number < count:
            run = find_run(body, at, number, count) if number >= next_run else None
            if run is not None:
                layout = settle(body, run)
                if layout is not None:
                    runs.append((run, layout))
                    number += run.alike
                    at += run.alike * run.size
                    continue
                # They have one length and differ within. To look again and again would cost more than to read them.
                rest = min(rest * 2, REST_MAX)
                next_run = number + rest
            stretch = min(stretch * 2, STRETCH_MAX)
            until = min(number + stretch, count)
            before = number
            number, at = in_step(body, at, number, until)
            if number < until:
                until = number + 1 if number > before else min(number + RUN_MIN, until)
                number, at, headers = one_by_one(body, at, number, until)
                headers_left -= headers
                if number < until or headers_left < 0:
                    break
    except (IndexError, struct.error):
        pass  # the last of what was looked at; nothing is said of those few
    if runs and number == count and at == len(body):
        remember_whole(body, count, runs)
    return Skimmed(number, at)


def remember_whole(body: bytes, count: int, runs: list[tuple[Run, Layout]]) -> None:
    """How a batch is laid out that has runs alone, and often one more record to fill it."""
    last = runs[-1][0]
    behind, number = last.begin + last.size * last.alike, last.number + last.alike
    if sum(run.alike for run, _ in runs) != number or number < count - 1:
        return
    pieces = [layout for _, layout in runs]
    if number < count:
        filling = layout_of(body, Run(behind, number, len(body) - behind, 1))
        if filling is None:
            return
        pieces.append(filling)
    settled = [places for piece in pieces for places in piece.settled]
    if len(settled) <= PLACES_MAX:
        whole = Layout(
            tuple(settled),
            itemgetter(*settled),
            tuple(column for piece in pieces for column in piece.expected),
            tuple(places for piece in pieces for places in piece.last),
            tuple(places for piece in pieces for places in piece.continued),
        )
        remember((len(body), count), whole)


def remember(key: Run | tuple[int, int], layout: Layout) -> None:
    if sum(map(len, layout.expected)) <= LAYOUT_BYTES_MAX:
        if len(layouts) >= LAYOUTS_MAX:
            layouts.clear()
        layouts[key] = layout


# ---- records of one size ---------------------------------------------------------------------------------------


def find_run(body: bytes, at: int, number: int, count: int) -> Run | None:
    """The records from here on that may be alike, by their lengths."""
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
        end -= size  # usually it is only the last that is different
        most -= 1
        if body[end - size : end - size + width] != sought:
            lengths = body[at:end:size]
            most -= len(lengths.lstrip(sought[:1]))
    return Run(at, number, size, most) if most >= RUN_MIN else None


def run_max(number: int) -> int:
    """How many records from that one on have offset deltas of as many bytes; of three, with the same third."""
    if number < ONE_BYTE:
        return ONE_BYTE - number
    return PERIOD - number % PERIOD if number < THREE_BYTES else 0


def settle(body: bytes, run: Run) -> Layout | None:
    """How its records are laid out, if all are as the first of them is."""
    layout = layouts.get(run)
    if layout is not None and fits(body, layout):
        return layout
    layout = layout_of(body, run)
    if layout is None or not fits(body, layout):
        return None
    remember(run, layout)
    return layout


def fits(body: bytes, layout: Layout) -> bool:
    _, take, expected, last, continued = layout
    if take(body) != expected:
        return False
    for places in last:
        if not body[places].isascii():
            return False
    return not any(body[places].translate(None, CONTINUED) for places in continued)


def layout_of(body: bytes, run: Run) -> Layout | None:
    """As the first record has it; None if that one is not in order, or has very many parts."""
    begin, number, size, alike = run
    if one_by_one(body, begin, number, number + 1)[1] != begin + size:
        return None
    behind = begin + alike * size
    _, attributes_at = read_varint(body, begin)
    numbers_at = behind_varint(body, attributes_at + 1)
    fields_at = behind_varint(body, numbers_at)
    same = [*range(begin, attributes_at), *places_of_fields(body, fields_at)]
    if len(same) > PLACES_MAX:
        return None
    *continued, last = range(attributes_at + 1, numbers_at)
    first = number % PERIOD
    columns = [body[place : place + 1] * alike for place in same]
    columns += [column[first : first + alike] for column in offset_deltas(number)]
    settled = [slice(place, behind, size) for place in (*same, *range(numbers_at, fields_at))]
    return Layout(
        tuple(settled),
        itemgetter(*settled),
        tuple(columns),
        (slice(last, behind, size),),
        tuple(slice(place, behind, size) for place in continued),
    )


def offset_deltas(number: int) -> tuple[bytes, ...]:
    if number < ONE_BYTE:
        return (ONLY,)
    if number < PERIOD:
        return FIRST, LAST
    return FIRST, MIDDLE, bytes((number // PERIOD,)) * PERIOD


def places_of_fields(body: bytes, at: int) -> list[int]:
    """Where the sizes of key, value and headers stand, in a record that is in order."""
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


def in_step(body: bytes, at: int, number: int, until: int) -> tuple[int, int]:
    """`one_by_one` for the most usual kind: of 64 bytes to 8 KB, within 64 ms, with no headers and a short key or none.
    The first that is not so ends it."""
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
        stop = at + (low + (high << 7) - 126 >> 1)  # where the number of headers stands
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


def one_by_one(body: bytes, at: int, number: int, until: int) -> tuple[int, int, int]:
    """Up to which number records are in order, where the last of them ends, and how many headers they have."""
    headers_seen = 0
    for current in range(number, until):
        end, headers = behind_record(body, at, current)
        if end == BEYOND:
            return current, at, headers_seen
        at = end
        headers_seen += headers
    return until, at, headers_seen


def behind_record(body: bytes, at: int, number: int) -> tuple[int, int]:
    """Where a record of that number ends, and its headers. BEYOND if it is not in order, or IndexError."""
    size = body[at]
    at += 1
    if size > 0x7F:
        size, at = long_varint(body, at, size)
    stop = at + (size >> 1)
    at += 1
    at = behind_varint(body, at) if body[at] > 0x7F else at + 1
    delta = body[at]
    at += 1
    if delta > 0x7F:
        delta, at = long_varint(body, at, delta)
    if size & 1 or delta != number << 1:
        return BEYOND, 0
    size = body[at]  # of the key
    at += 1
    at = behind_other(body, at, size) if size & 0x81 else at + (size >> 1)
    size = body[at]  # of the value
    at += 1
    at = behind_other(body, at, size) if size & 0x81 else at + (size >> 1)
    headers = body[at]
    at += 1
    if headers:
        at = behind_headers(body, at, headers)
    return at if at == stop <= len(body) else BEYOND, headers >> 1


def long_varint(body: bytes, at: int, first: int) -> tuple[int, int]:
    """The others of its bytes with it, as the number it stands for doubled; -1 if it has no 32 bits."""
    value, shift = first & 0x7F, 7
    while shift < 35:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value if value < 1 << 32 else -1), at
        shift += 7
    return -1, at


def behind_varint(body: bytes, at: int) -> int:
    for end in range(at, at + LONG_BYTES):
        if body[end] < 0x80:
            return end + 1
    return BEYOND


def behind_headers(body: bytes, at: int, count: int) -> int:
    """`count` as it stands there, doubled. BEYOND for more than 63, too."""
    if count & 0x81:
        return BEYOND
    for _ in range(count >> 1):
        size = body[at]  # of the name, which is never null
        at += 1
        if size == 1:
            return BEYOND
        at = behind_other(body, at, size) if size & 0x81 else at + (size >> 1)
        size = body[at]
        at += 1
        at = behind_other(body, at, size) if size & 0x81 else at + (size >> 1)
    return at


def behind_other(body: bytes, at: int, size: int) -> int:
    """Behind what is null, or has 64 bytes or more."""
    if size == 1:
        return at
    if size > 0x7F:
        size, at = long_varint(body, at, size)
    return BEYOND if size & 1 else at + (size >> 1)
