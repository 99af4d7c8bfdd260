from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.index import (
    OFFSET_ENTRY,
    SEARCH_BLOCK,
    TIME_ENTRY,
    OffsetEntries,
    TimeEntries,
    find_floor_entry,
    last_entry,
    strip_zero_tail,
)
from tests.unit.storage.builders import forgetful_disk

growing = st.lists(st.integers(1, 1000), max_size=40).map(
    lambda steps: [sum(steps[: at + 1]) for at in range(len(steps))]
)


def test_offset_index_has_kafka_format() -> None:
    entries = OffsetEntries()
    entries.append(5, 4100)
    entries.append(9, 8300)
    assert entries.encode() == struct.pack(">iiii", 5, 4100, 9, 8300)


def test_time_index_has_kafka_format_and_only_grows() -> None:
    entries = TimeEntries()
    entries.append_if_later(1000, 3)
    entries.append_if_later(1000, 7)
    entries.append_if_later(999, 8)
    entries.append_if_later(1001, 9)
    assert entries.encode() == struct.pack(">qiqi", 1000, 3, 1001, 9)


@given(growing, st.integers(-1, 45_000))
def test_memory_and_file_find_same_entry(offsets: list[int], target: int) -> None:
    entries = OffsetEntries()
    for at, offset in enumerate(offsets):
        entries.append(offset, 100 * (at + 1))
    expected = max((100 * (at + 1) for at, o in enumerate(offsets) if o <= target), default=0)
    assert entries.floor_position(target) == expected
    disk = forgetful_disk()
    disk.replace_bytes("/data/index", entries.encode())
    found = find_floor_entry(disk.open("/data/index"), OFFSET_ENTRY, target)
    assert (found[1] if found else 0) == expected
    assert OffsetEntries.decode(entries.encode()).encode() == entries.encode()


def test_large_index_file_is_searched_in_blocks() -> None:
    count = 20 * SEARCH_BLOCK
    disk = forgetful_disk()
    data = b"".join(OFFSET_ENTRY.pack(2 * at, at) for at in range(count))
    disk.replace_bytes("/data/index", data)
    file = disk.open("/data/index")
    for target in (0, 1, 2 * SEARCH_BLOCK, 7777, 2 * count):
        assert find_floor_entry(file, OFFSET_ENTRY, target) == (
            min(target // 2, count - 1) * 2,
            min(target // 2, count - 1),
        )
    assert find_floor_entry(file, OFFSET_ENTRY, -1) is None
    assert last_entry(file, OFFSET_ENTRY) == (2 * count - 2, count - 1)


@given(growing, st.integers(0, 45_000))
def test_truncation_keeps_lower_entries(offsets: list[int], target: int) -> None:
    entries, times = OffsetEntries(), TimeEntries()
    for at, offset in enumerate(offsets):
        entries.append(offset, at + 1)
        times.append_if_later(at, offset)
    entries.truncate(target)
    times.truncate(target)
    assert list(entries.offsets) == [o for o in offsets if o < target] == list(times.offsets)
    assert entries.is_valid(10**6)
    assert times.is_valid()


def test_invalid_entries_are_detected() -> None:
    for pairs in ([(5, 10), (5, 20)], [(5, 10), (6, 10)], [(-1, 10)], [(1, 0)], [(1, 100)]):
        entries = OffsetEntries.decode(b"".join(OFFSET_ENTRY.pack(*pair) for pair in pairs))
        assert not entries.is_valid(100), pairs
    for pairs in ([(5, 1), (5, 2)], [(5, 2), (6, 1)], [(-1, 0)], [(1, -1)]):
        times = TimeEntries.decode(b"".join(TIME_ENTRY.pack(*pair) for pair in pairs))
        assert not times.is_valid(), pairs


def test_trailing_zeros_are_no_entries() -> None:
    entry = OFFSET_ENTRY.pack(256, 512)
    assert strip_zero_tail(entry + bytes(80), 8) == entry
    assert strip_zero_tail(bytes(80), 8) == b""
    assert strip_zero_tail(entry + b"\0", 8) is None
