from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.batch.header import HEADER_SIZE, BatchHeader
from barnabas.batch.reader import RecordReader
from barnabas.batch.records import Record, build_batch, varint
from barnabas.errors import RemoteWireError
from barnabas.wire.primitives import uvarint

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


def read_all(body: bytes, count: int, *, ignores_lengths: bool = False) -> list[Record]:
    """Read the records with their deltas in place of offset and timestamp."""
    reader = RecordReader(body, ignores_lengths=ignores_lengths)
    found = []
    for _ in range(count):
        reader.read_next()
        found.append(
            Record(
                reader.offset_delta,
                reader.timestamp_delta,
                reader.key(),
                reader.value(),
                reader.headers(),
            )
        )
    reader.require_end(count)
    return found


@given(record_lists, st.booleans())
@settings(max_examples=300)
def test_records_of_any_producer_are_read(sent: list[Record], ignores_lengths: bool) -> None:
    batch = build_batch(sent)
    base = BatchHeader(batch).base_timestamp
    found = read_all(batch[HEADER_SIZE:], len(sent), ignores_lengths=ignores_lengths)
    assert found == [record._replace(timestamp=record.timestamp - base) for record in sent]


@given(st.data())
@settings(max_examples=300)
def test_corrupt_records_are_rejected_or_read(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    sent = [Record(n, NOW, b"key", b"bd\0" * 5, (("a", b"b"),)) for n in range(count)]
    body = bytearray(build_batch(sent)[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    for ignores_lengths in (False, True):
        try:
            found = read_all(bytes(body), count, ignores_lengths=ignores_lengths)
        except RemoteWireError:
            continue
        assert len(found) == count


def test_every_incomplete_body_is_rejected() -> None:
    record = Record(0, NOW, b"key", b"v" * 100, (("name", b"value"), ("empty", None)))
    body = build_batch([record])[HEADER_SIZE:]
    for size in range(len(body)):
        for ignores_lengths in (False, True):
            with pytest.raises(RemoteWireError):
                read_all(body[:size], 1, ignores_lengths=ignores_lengths)


def test_record_length_is_checked_against_fields_by_default() -> None:
    fields = b"\0\0\0" + varint(-1) + varint(1) + b"v" + varint(0)
    body = varint(len(fields) + 3) + fields
    with pytest.raises(RemoteWireError, match="are left"):
        read_all(body, 1)
    assert len(read_all(body, 1, ignores_lengths=True)) == 1
    with pytest.raises(RemoteWireError, match="ends at"):
        read_all(body + bytes(3), 1)
    with pytest.raises(RemoteWireError, match="trailing"):
        read_all(body + bytes(3), 1, ignores_lengths=True)


def record_of(timestamp_delta: bytes, offset_delta: bytes, key_size: bytes = b"\1") -> bytes:
    fields = b"\0" + timestamp_delta + offset_delta + key_size + b"\1\0"
    return varint(len(fields)) + fields


@pytest.mark.parametrize("delta", [0, -1, 63, -64, 64, 2**31, -(2**31), 2**63 - 1, -(2**63)])
def test_timestamp_delta_has_64_bits(delta: int) -> None:
    encoded = varint(delta) if -(2**62) < delta < 2**62 else uvarint((delta << 1) ^ (delta >> 63))
    (found,) = read_all(record_of(encoded, b"\0"), 1)
    assert found.timestamp == delta


def test_excess_bits_of_a_varint_are_dropped() -> None:
    (found,) = read_all(record_of(b"\0", b"\x82\x80\x80\x80\x70"), 1)
    assert found.offset == 1
    (found,) = read_all(record_of(b"\x82" + b"\x80" * 8 + b"\x7e", b"\0"), 1)
    assert found.timestamp == 1


def test_too_long_varint_is_rejected() -> None:
    with pytest.raises(RemoteWireError, match="too long"):
        read_all(b"\xff" * 5 + b"\1", 1)
    with pytest.raises(RemoteWireError, match="too long"):
        read_all(record_of(b"\0", b"\xff" * 5 + b"\1"), 1)
    with pytest.raises(RemoteWireError, match="too long"):
        read_all(record_of(b"\xff" * 10 + b"\1", b"\0"), 1)


def test_negative_size_means_null() -> None:
    (found,) = read_all(record_of(b"\0", b"\0", key_size=varint(-5)), 1)
    assert found.key is None


@pytest.mark.parametrize(
    "tail",
    [
        varint(-1),
        varint(1) + varint(-1) + varint(0),
        varint(1) + varint(1) + b"\xff" + varint(0),
        varint(3) + b"\0\0",
    ],
)
def test_invalid_headers_are_rejected(tail: bytes) -> None:
    fields = b"\0\0\0\1\1" + tail
    with pytest.raises(RemoteWireError):
        read_all(varint(len(fields)) + fields, 1)
