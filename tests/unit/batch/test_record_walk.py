from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.batch.compression import LimitExceeded
from barnabas.batch.header import HEADER_SIZE, read_header
from barnabas.batch.record_walk import walk_records
from barnabas.batch.records import Record, build_batch, varint
from barnabas.batch.skim import SkimResult
from barnabas.errors import RemoteWireError

NOW = 1_700_000_000_000
times = st.integers(NOW - 1_000_000, NOW + 1_000_000)
values = st.one_of(
    st.none(),
    st.binary(max_size=80),
    st.integers(0, 200).map(bytes),
    st.text("bdln ", max_size=300).map(str.encode),
)
headers = st.lists(st.tuples(st.text(max_size=4), values), max_size=2).map(tuple)
record_lists = st.lists(st.tuples(times, values, values, headers), min_size=1, max_size=90).map(
    lambda rows: [Record(offset, *row) for offset, row in enumerate(rows)]
)


def plain_batch(count: int, value: bytes = b"some value", *, step: int = 1) -> bytes:
    return build_batch([Record(n, NOW + n * step, b"key", value) for n in range(count)])


@given(record_lists)
@settings(max_examples=300)
def test_records_of_any_producer_are_accepted(sent: list[Record]) -> None:
    batch = build_batch(sent)
    header = read_header(batch)
    for ignore_lengths in (False, True):
        found = list(
            walk_records(
                memoryview(batch)[HEADER_SIZE:], header.count, ignore_lengths=ignore_lengths
            )
        )
        assert [record.offset_delta for record in found] == list(range(len(sent)))
        assert [record.has_key for record in found] == [record.key is not None for record in sent]
        assert [header.base_timestamp + record.timestamp_delta for record in found] == [
            record.timestamp for record in sent
        ]


@given(st.data())
@settings(max_examples=300)
def test_corrupt_records_are_rejected_or_read(
    data: st.DataObject,
) -> None:
    batch = bytearray(plain_batch(data.draw(st.integers(1, 12)), b"bd\0" * 5))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    header = read_header(batch)
    for ignore_lengths in (False, True):
        try:
            found = list(
                walk_records(
                    bytes(batch[HEADER_SIZE:]), header.count, ignore_lengths=ignore_lengths
                )
            )
        except RemoteWireError:
            continue
        assert len(found) == header.count


def test_record_length_is_checked_against_fields_by_default() -> None:
    fields = b"\0\0\0" + varint(-1) + varint(1) + b"v" + varint(0)
    body = varint(len(fields) + 3) + fields
    with pytest.raises(RemoteWireError, match="are left"):
        list(walk_records(body, 1))
    assert len(list(walk_records(body, 1, ignore_lengths=True))) == 1
    with pytest.raises(RemoteWireError, match="ends at"):
        list(walk_records(body + bytes(3), 1))
    with pytest.raises(RemoteWireError, match="trailing"):
        list(walk_records(body + bytes(3), 1, ignore_lengths=True))


def test_endless_varint_is_rejected() -> None:
    with pytest.raises(RemoteWireError, match="32 bits"):
        list(walk_records(b"\xff" * 5 + b"\1", 1))
    with pytest.raises(RemoteWireError, match="32 bits"):
        list(walk_records(varint(20) + b"\0\0" + b"\xff" * 5 + b"\1" + bytes(20), 1))


def test_walk_continues_after_skimmed_records() -> None:
    body = plain_batch(20)[HEADER_SIZE:]
    all_records = list(walk_records(body, 20))
    assert list(walk_records(body, 20, start=SkimResult(7, all_records[6].end))) == all_records[7:]
    assert list(walk_records(body, 20, start=SkimResult(20, len(body)))) == []
    with pytest.raises(RemoteWireError, match="trailing"):
        list(walk_records(body + b"\0", 20, start=SkimResult(20, len(body))))


def test_walk_stops_at_its_limit() -> None:
    body = plain_batch(20)[HEADER_SIZE:]
    assert len(list(walk_records(body, 20, limit=20))) == 20
    with pytest.raises(LimitExceeded):
        list(walk_records(body, 20, limit=19))
    broken = body[:-40] + bytes(40)
    with pytest.raises(RemoteWireError, match="record ends at") as found:
        list(walk_records(broken, 20, limit=19))
    assert not isinstance(found.value, LimitExceeded)
