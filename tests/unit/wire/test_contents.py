from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import RemoteWireError
from barnabas.wire.contents import FEW, Endless, ends_as_announced, walk
from barnabas.wire.records import (
    HEADER_SIZE,
    Record,
    build_batch,
    read_header,
    records,
    varint,
)

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


def plain(count: int, value: bytes = b"some value", *, step: int = 1) -> bytes:
    return build_batch([Record(n, NOW + n * step, b"key", value) for n in range(count)])


def looks_right(batch: bytes, count: int) -> bool:
    """With another count in its header."""
    return ends_as_announced(batch, HEADER_SIZE, read_header(batch)._replace(count=count))


@given(record_lists)
@settings(max_examples=300)
def test_whatever_a_producer_sends_is_taken(sent: list[Record]) -> None:
    batch = build_batch(sent)
    header = read_header(batch)
    ends_as_announced(batch, HEADER_SIZE, header)  # it may not know, but it does not fail
    for by_fields in (False, True):
        found = list(walk(memoryview(batch)[HEADER_SIZE:], header.count, by_fields=by_fields))
        assert [record.offset_delta for record in found] == list(range(len(sent)))
        assert [record.has_key for record in found] == [record.key is not None for record in sent]
        assert [header.base_timestamp + record.timestamp_delta for record in found] == [
            record.timestamp for record in sent
        ]


@pytest.mark.parametrize("count", [5, 17, 63, 64, 65, 66, 511, 513, 1_000, 9_000])
@pytest.mark.parametrize("value", [b"", b"bdln " * 9, bytes(60), b"\xff" * 60])
def test_a_glance_is_enough_where_times_go_up(count: int, value: bytes) -> None:
    for step in (0, 1, 70, 10_000):
        batch = plain(count, value, step=step)
        assert looks_right(batch, count)
        assert not looks_right(batch, count + 1)
        assert not looks_right(batch, count - 1)
        assert not looks_right(batch[:-1], count)
        assert not looks_right(batch + b"\0", count)


@pytest.mark.parametrize("count", [5, 17, 50, 64, 65, 1_000])
@pytest.mark.parametrize("value", [b"", b"bdln " * 9, b"\xff" * 60])
def test_and_where_they_do_not(count: int, value: bytes) -> None:
    sent = [Record(n, NOW + n * 7_919 % 100_003, None, value) for n in range(count)]
    sent[count // 2] = sent[count // 2]._replace(timestamp=NOW + 1_000_000)
    batch = build_batch(sent)
    assert looks_right(batch, count)
    assert not looks_right(batch, count + 1)
    assert not looks_right(batch[:-1], count)


@pytest.mark.parametrize("size", [1_000, 10_000, 300_000])
def test_the_last_may_be_larger_than_the_others(size: int) -> None:
    sent = [Record(n, NOW, None, b"small") for n in range(200)]
    batch = build_batch([*sent, Record(200, NOW, None, b"x" * size)])
    assert looks_right(batch, 201)
    assert not looks_right(batch, 200)


def test_the_last_may_end_in_anything() -> None:
    sent = [Record(n, NOW, None, b"v", (("h", b"\xff" * n),)) for n in range(9)]
    assert looks_right(build_batch(sent), 9)


def test_a_batch_of_few_is_not_judged_at_a_glance() -> None:
    assert not looks_right(plain(FEW), FEW)
    assert looks_right(plain(FEW + 1), FEW + 1)


def test_batches_of_another_library_look_right() -> None:
    theirs = aiokafka_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for n in range(300):
        theirs.append(n, NOW + n // 3, b"k%d" % n, b"v" * (n % 50), [("h", b"1")])
    batch = bytes(theirs.build())
    assert looks_right(batch, 300)
    assert len(list(walk(batch[HEADER_SIZE:], 300))) == len(list(records(memoryview(batch))))


@given(st.data())
@settings(max_examples=300)
def test_what_is_damaged_is_refused_or_read_but_never_breaks_the_reader(
    data: st.DataObject,
) -> None:
    batch = bytearray(plain(data.draw(st.integers(1, 12)), b"bd\0" * 5))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    header = read_header(batch)
    ends_as_announced(batch, HEADER_SIZE, header)
    for by_fields in (False, True):
        try:
            found = list(walk(bytes(batch[HEADER_SIZE:]), header.count, by_fields=by_fields))
        except RemoteWireError:
            continue
        assert len(found) == header.count


def test_a_length_is_held_against_the_fields_unless_told_otherwise() -> None:
    fields = b"\0\0\0" + varint(-1) + varint(1) + b"v" + varint(0)
    body = varint(len(fields) + 3) + fields
    with pytest.raises(RemoteWireError, match="bytes in"):
        list(walk(body, 1))
    assert len(list(walk(body, 1, by_fields=True))) == 1
    with pytest.raises(RemoteWireError, match="ends at"):
        list(walk(body + bytes(3), 1))
    with pytest.raises(RemoteWireError, match="behind"):
        list(walk(body + bytes(3), 1, by_fields=True))


def test_a_length_that_does_not_end_is_told_from_the_rest() -> None:
    with pytest.raises(Endless):
        list(walk(b"\xff" * 5 + b"\1", 1))
    with pytest.raises(RemoteWireError, match="32 bits"):
        list(walk(varint(20) + b"\0\0" + b"\xff" * 5 + b"\1" + bytes(20), 1))


@pytest.mark.parametrize("count", [5, 101, 9_000])
def test_no_run_of_bytes_is_gone_through_one_by_one(count: int) -> None:
    number = varint(count - 1)
    for filling in (b"\x80", b"\xff", b"\0", number, b"\0" + number):
        run = filling * (200_000 // len(filling))
        length = varint(len(run) + len(number) + 2)
        for body in (run + number, length + b"\0" + run + b"\1" + number, run + b"\1" + number):
            header = read_header(plain(1))._replace(count=count)
            with Steps(100_000):
                ends_as_announced(body, 0, header)


class Steps:
    """Fails if Python takes more steps than that, whatever the time is."""

    def __init__(self, most: int) -> None:
        self.left = most

    def __enter__(self) -> None:
        sys.settrace(self.trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def trace(self, *_: object) -> Callable[..., Any]:
        self.left -= 1
        assert self.left > 0
        return self.trace
