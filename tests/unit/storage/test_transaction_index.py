from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage import transaction_index
from barnabas.storage.transaction_index import AbortedEntry, encode_entry

FIRST = AbortedEntry(producer_id=5, first_offset=10, last_offset=20, last_stable_offset=12)
SECOND = AbortedEntry(producer_id=6, first_offset=12, last_offset=30, last_stable_offset=31)
BOTH = encode_entry(FIRST) + encode_entry(SECOND)


def test_entry_has_kafka_format() -> None:
    fields = (5, 10, 20, 12)
    assert encode_entry(FIRST) == b"\0\0" + b"".join(each.to_bytes(8, "big") for each in fields)


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (0, 10, ([], True)),
        (0, 11, ([FIRST], True)),
        (0, 12, ([FIRST], True)),
        (0, 13, ([FIRST, SECOND], True)),
        (20, 31, ([FIRST, SECOND], True)),
        (21, 31, ([SECOND], True)),
        (21, 32, ([SECOND], False)),
        (31, 40, ([], False)),
    ],
)
def test_search(start: int, end: int, found: tuple[list[AbortedEntry], bool]) -> None:
    assert transaction_index.search(BOTH, start, end) == found


def test_truncation_keeps_markers_before_the_offset() -> None:
    assert transaction_index.truncate(BOTH, 31) == BOTH
    assert transaction_index.truncate(BOTH, 30) == encode_entry(FIRST)
    assert transaction_index.truncate(BOTH, 20) == b""


def test_damaged_index_is_detected() -> None:
    def is_valid(entries: bytes, *, base_offset: int = 0, end_offset: int = 31) -> bool:
        return transaction_index.is_valid(entries, base_offset=base_offset, end_offset=end_offset)

    assert is_valid(BOTH)
    assert is_valid(b"")
    assert is_valid(BOTH, base_offset=20)
    assert not is_valid(BOTH[:-1])
    assert not is_valid(BOTH, base_offset=21), "a marker of an earlier segment"
    assert not is_valid(BOTH, end_offset=30), "a marker after the end"
    assert not is_valid(encode_entry(SECOND) + encode_entry(FIRST)), "not in order"
    assert not is_valid(b"\0\1" + BOTH[2:]), "unknown version"
    assert not is_valid(bytes(len(BOTH)))


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(0, 60)), max_size=8),
    st.integers(0, 80),
    st.integers(0, 80),
)
def test_search_equals_a_scan(drawn: list[tuple[int, int, int]], start: int, length: int) -> None:
    """Compare with the definition: every entry is looked at, in order."""
    entries, last = [], 0
    for producer, (first, gap, stable) in enumerate(drawn):
        last += gap
        entries.append(AbortedEntry(producer, min(first, last - 1), last, min(stable, last + 1)))
    end = start + 1 + length
    expected, is_complete = [], False
    for entry in entries:
        if entry.last_offset >= start and entry.first_offset < end:
            expected.append(entry)
        if entry.last_stable_offset >= end:
            is_complete = True
            break
    encoded = b"".join(map(encode_entry, entries))
    assert transaction_index.search(encoded, start, end) == (expected, is_complete)
