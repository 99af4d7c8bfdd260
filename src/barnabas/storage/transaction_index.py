"""The transaction index of a segment: the aborted transactions whose markers are in it.

    .txnindex   int16 version 0, int64 producer id, int64 first offset, int64 offset of the marker,
                int64 last stable offset when the marker was written           34 bytes, big endian

The entries ascend by the offset of their marker. As in Kafka, a segment without aborted transactions has no file. The
functions here work on the encoded entries, since an index may have many of them and a lookup needs few.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

ENTRY: Final = Struct(">hqqqq")
VERSION: Final = 0
SUFFIX: Final = ".txnindex"

Entries = bytes | bytearray
NO_ENTRIES: Final = b""


class AbortedEntry(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the marker."""
    last_stable_offset: int
    """First offset of the oldest transaction that was open after the marker, else the offset after the marker."""


def encode_entry(entry: AbortedEntry) -> bytes:
    return ENTRY.pack(VERSION, *entry)


def entry_at(entries: Entries, at: int) -> AbortedEntry:
    return AbortedEntry(*ENTRY.unpack_from(entries, at * ENTRY.size)[1:])


def floor_of(entries: Entries, offset: int) -> int:
    """Return the position of the first entry whose marker is at or after `offset`."""
    low, high = 0, len(entries) // ENTRY.size
    while low < high:
        middle = (low + high) // 2
        if entry_at(entries, middle).last_offset < offset:
            low = middle + 1
        else:
            high = middle
    return low


def search(entries: Entries, start: int, end: int) -> tuple[list[AbortedEntry], bool]:
    """Return the aborted transactions with records at or after offset `start` and before `end`.

    Also return whether the search is complete. If not, the next segment may have markers of further ones.
    """
    found = []
    for at in range(floor_of(entries, start), len(entries) // ENTRY.size):
        entry = entry_at(entries, at)
        if entry.first_offset < end:
            found.append(entry)
        if entry.last_stable_offset >= end:
            return found, True
    return found, False


def truncate(entries: Entries, offset: int) -> Entries:
    """Return the entries whose marker is before `offset`."""
    return entries[: floor_of(entries, offset) * ENTRY.size]


def is_valid(entries: Entries, *, base_offset: int, end_offset: int) -> bool:
    """Return whether these are whole entries of markers in a segment with these offsets, in order."""
    if len(entries) % ENTRY.size:
        return False
    previous = base_offset - 1
    for version, _, first, last, stable in ENTRY.iter_unpack(entries):
        if version != VERSION or not previous < last < end_offset:
            return False
        if not (0 <= first < last and stable <= last + 1):
            return False
        previous = last
    return True
