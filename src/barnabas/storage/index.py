"""Sparse indexes of a segment, by offset and by timestamp: sorted entries of fixed size.

    .index      int32 offset − base, int32 position                     8 bytes, big endian
    .timeindex  int64 largest timestamp so far, int32 offset − base    12 bytes, big endian

An offset entry holds the last offset of an append set and the position where the set begins. A lookup takes the
greatest entry at or below its target and scans from there, so a missing entry costs time but never changes the result.

The entries of the active segment are in arrays (`OffsetEntries`, `TimeEntries`) and are written to their file when the
segment is closed. A closed segment keeps nothing in memory: `find_floor_entry` searches its file. Kafka preallocates
index files, so they may end with zero entries; `strip_zero_tail` removes those.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import itemgetter
from struct import Struct
from typing import Final

from barnabas.model import NO_TIMESTAMP
from barnabas.world.ports import File

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
IS_LITTLE_ENDIAN: Final = sys.byteorder == "little"
SEARCH_BLOCK: Final = 256  # a range of up to this number of entries is read at once
first_field = itemgetter(0)


# Shared by all empty indexes, of which there are thousands. `append` replaces them with arrays of its own.
NO_INTS: Final = array("i")
NO_LONGS: Final = array("q")


class OffsetEntries:
    """The offset index of the active segment."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = NO_INTS
        self.positions = NO_INTS

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, offset: int, position: int) -> None:
        """Add an entry. `offset` is relative to the segment's base offset and larger than all earlier ones."""
        if self.offsets is NO_INTS:
            self.offsets, self.positions = array("i"), array("i")
        self.offsets.append(offset)
        self.positions.append(position)

    def floor_position(self, offset: int) -> int:
        at = bisect_right(self.offsets, offset) - 1
        return self.positions[at] if at >= 0 else 0

    def truncate(self, offset: int) -> None:
        """Keep the entries below `offset`."""
        keep = bisect_left(self.offsets, offset)
        del self.offsets[keep:]
        del self.positions[keep:]

    def is_valid(self, log_size: int) -> bool:
        """Return whether offsets and positions strictly ascend and point into the log. No entry has position 0."""
        return (
            is_strictly_ascending(self.offsets, at_least=0)
            and is_strictly_ascending(self.positions, at_least=1)
            and (not self.positions or self.positions[-1] < log_size)
        )

    def encode(self) -> bytes:
        words = array("i", bytes(8 * len(self.offsets)))
        words[0::2] = self.offsets
        words[1::2] = self.positions
        if IS_LITTLE_ENDIAN:
            words.byteswap()
        return words.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> OffsetEntries:
        entries = cls()
        words = array("i")
        words.frombytes(data)
        if IS_LITTLE_ENDIAN:
            words.byteswap()
        entries.offsets = words[0::2]
        entries.positions = words[1::2]
        return entries


class TimeEntries:
    """The time index of the active segment."""

    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = NO_LONGS
        self.offsets = NO_INTS

    def __len__(self) -> int:
        return len(self.offsets)

    def append_if_later(self, timestamp: int, offset: int) -> None:
        """Add an entry if `timestamp` is larger than the last one."""
        timestamps = self.timestamps
        if timestamp > (timestamps[-1] if timestamps else NO_TIMESTAMP):
            if timestamps is NO_LONGS:
                timestamps = self.timestamps = array("q")
                self.offsets = array("i")
            timestamps.append(timestamp)
            self.offsets.append(offset)

    def floor_entry(self, timestamp: int) -> tuple[int, int] | None:
        """Return the last entry (timestamp, relative offset) at or before `timestamp`, or None."""
        at = bisect_right(self.timestamps, timestamp) - 1
        return (self.timestamps[at], self.offsets[at]) if at >= 0 else None

    def truncate(self, offset: int) -> None:
        keep = bisect_left(self.offsets, offset)
        del self.offsets[keep:]
        del self.timestamps[keep:]

    def is_valid(self) -> bool:
        return is_strictly_ascending(self.timestamps, at_least=0) and (
            all(a <= b for a, b in pairwise(self.offsets))
            and (not self.offsets or self.offsets[0] >= 0)
        )

    def encode(self) -> bytes:
        return b"".join(map(TIME_ENTRY.pack, self.timestamps, self.offsets))

    @classmethod
    def decode(cls, data: bytes) -> TimeEntries:
        entries = cls()
        entries.timestamps, entries.offsets = array("q"), array("i")
        for timestamp, offset in TIME_ENTRY.iter_unpack(data):
            entries.timestamps.append(timestamp)
            entries.offsets.append(offset)
        return entries


def find_floor_entry(file: File, layout: Struct, key: int) -> tuple[int, int] | None:
    """Return the last entry of an index file whose first field is at most `key`, or None."""
    size = layout.size
    low, high = 0, file.size() // size
    while high - low > SEARCH_BLOCK:
        middle = (low + high) // 2
        if layout.unpack(file.read(middle * size, size))[0] <= key:
            low = middle
        else:
            high = middle
    entries: list[tuple[int, int]] = list(
        layout.iter_unpack(file.read(low * size, (high - low) * size))
    )
    at = bisect_right(entries, key, key=first_field) - 1
    return entries[at] if at >= 0 else None


def last_entry(file: File, layout: Struct) -> tuple[int, int] | None:
    size = layout.size
    end = file.size() // size * size
    if end == 0:
        return None
    entry: tuple[int, int] = layout.unpack(file.read(end - size, size))
    return entry


def strip_zero_tail(data: bytes, entry_size: int) -> bytes | None:
    """Return the entries of an index file without trailing zero entries, or None if the last entry is incomplete."""
    if len(data) % entry_size:
        return None
    used = len(data.rstrip(b"\0"))
    return data[: -(-used // entry_size) * entry_size]


def is_strictly_ascending(values: array[int], *, at_least: int) -> bool:
    return not values or (values[0] >= at_least and all(a < b for a, b in pairwise(values)))
