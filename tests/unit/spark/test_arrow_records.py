from __future__ import annotations

import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import assume, given
from hypothesis import strategies as st

from barnabas.batch.compression import Compression
from barnabas.batch.header import CRC, CRC_START, HEADER_SIZE, batch_headers, stamp_log_append_time
from barnabas.batch.records import Record, TimestampType, build_batch, records
from barnabas.errors import ConfigError, RemoteWireError
from barnabas.spark.arrow_records import arrow_schema, decode_batches
from barnabas.spark.ranges import COLUMNS
from barnabas.wire.messages.fetch import AbortedTransaction

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = 1_700_000_000_000
NO_END = 1 << 62

contents = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=200)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=70)), max_size=4)


@st.composite
def batches(draw: st.DrawFn, base_offset: int = 0) -> bytes:
    """A batch as a producer, a compacting broker, or a broker with log append time leaves it."""
    fields = draw(st.lists(st.tuples(contents, contents, headers), max_size=12))
    gaps = draw(st.lists(st.integers(0, 200), min_size=len(fields) + 1, max_size=len(fields) + 1))
    deltas = draw(st.lists(st.integers(-(1 << 40), 1 << 40), min_size=12, max_size=12))
    offset = base_offset
    made = []
    for index, (key, value, found) in enumerate(fields):
        offset += gaps[index]
        made.append(Record(offset, NOW + deltas[index], key, value, tuple(found)))
        offset += 1
    is_control = draw(st.sampled_from([False, False, False, True]))
    batch = bytearray(
        build_batch(
            made,
            base_offset=base_offset,
            last_offset=offset + gaps[-1],
            compression=draw(st.sampled_from(Compression)),
            is_control=is_control,
            is_transactional=is_control,
            delete_horizon_ms=draw(st.none() | st.just(NOW + 77)),
        )
    )
    if draw(st.booleans()):
        stamp_log_append_time(memoryview(batch), 0, NOW + 5)
    return bytes(batch)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    data, offset = b"", draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(0, 4))):
        batch = draw(batches(offset))
        offset = next(batch_headers(batch))[1].next_offset
        data += batch
    return data


def expected_rows(data: bytes, start: int, end: int) -> list[dict[str, Any]]:
    """Decode with the plain reader, one record at a time."""
    rows = []
    for at, header in batch_headers(data):
        if header.is_control:
            continue
        for record in records(memoryview(data)[at : at + header.size]):
            if start <= record.offset < end:
                found = [{"key": name, "value": value} for name, value in record.headers]
                rows.append({
                    "key": record.key,
                    "value": record.value,
                    "topic": "orders",
                    "partition": 3,
                    "offset": record.offset,
                    "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
                    "timestampType": int(header.is_log_append_time),
                    "headers": found or None,
                })  # fmt: skip
    return rows


def decode(
    data: bytes | memoryview,
    start: int = 0,
    end: int = NO_END,
    columns: Sequence[str] = COLUMNS,
    aborted: Sequence[AbortedTransaction] = (),
) -> tuple[list[dict[str, Any]], int]:
    found, next_offset = decode_batches(
        data, topic="orders", partition=3, start=start, end=end, columns=columns, aborted=aborted
    )
    for batch in found:
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(columns))
    return [row for batch in found for row in batch.to_pylist()], next_offset


def batch_of_values(*values: bytes | None, base_offset: int = 0, **rest: Any) -> bytes:
    made = [
        Record(base_offset + index, NOW + index, None, value) for index, value in enumerate(values)
    ]
    return build_batch(made, base_offset=base_offset, **rest)


def with_crc(batch: bytearray) -> bytes:
    CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


@given(logs())
def test_columns_match_plain_reader(data: bytes) -> None:
    rows, next_offset = decode(data)
    assert rows == expected_rows(data, 0, NO_END)
    assert next_offset == max((header.next_offset for _, header in batch_headers(data)), default=0)


@given(logs(), st.data())
def test_only_requested_offsets_are_returned(data: bytes, choice: st.DataObject) -> None:
    found = [header for _, header in batch_headers(data)]
    assume(found)
    offsets = st.integers(found[0].base_offset - 2, found[-1].next_offset + 2)
    start, end = sorted((choice.draw(offsets), choice.draw(offsets)))
    assert decode(data, start, end)[0] == expected_rows(data, start, end)


@given(logs(), st.sets(st.sampled_from(COLUMNS), min_size=1))
def test_only_requested_columns_are_built(data: bytes, chosen: set[str]) -> None:
    columns = [name for name in COLUMNS if name in chosen]
    expected = [{name: row[name] for name in columns} for row in expected_rows(data, 0, NO_END)]
    assert decode(data, columns=columns)[0] == expected


@given(logs(), st.data())
def test_partial_batch_is_left_for_next_fetch(data: bytes, choice: st.DataObject) -> None:
    partial = data[: choice.draw(st.integers(0, len(data)))]
    rows, next_offset = decode(partial)
    assert rows == expected_rows(partial, 0, NO_END)
    assert next_offset == max(
        (header.next_offset for _, header in batch_headers(partial)), default=0
    )


@pytest.mark.parametrize("sizes", [(100, 100), (1, 300), (5_000, 20_000), (100, 101), (0, 0)])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY])
def test_long_batches_with_equal_and_mixed_sizes(
    sizes: tuple[int, int], codec: Compression
) -> None:
    """Long enough for runs of equal sizes, for offset deltas of two and three bytes, and for equal
    and different batches.
    """
    chance = random.Random(7)
    data, offset = b"", 0
    for count in (1, 300, 300, 9_000 if sizes[1] < 5_000 else 400, 2):
        made = [
            Record(
                offset + index,
                NOW + index // 3,
                b"%d" % index if index % 7 else None,
                chance.randbytes(chance.randint(*sizes)),
            )
            for index in range(count)
        ]
        data += build_batch(made, base_offset=offset, compression=codec)
        offset += count
    assert decode(data)[0] == expected_rows(data, 0, NO_END)


def test_batches_of_equal_size_may_differ_in_records() -> None:
    first = batch_of_values(b"a" * 10, b"b" * 90, b"c" * 50)
    second = batch_of_values(b"d" * 50, b"e" * 10, b"f" * 90, base_offset=3)
    third = batch_of_values(b"g" * 10, b"h" * 90, b"i" * 50, base_offset=6)
    assert len(first) == len(second) == len(third)
    data = first + second + third
    assert decode(data)[0] == expected_rows(data, 0, NO_END)


def test_records_with_many_and_few_headers() -> None:
    made = [
        Record(index, NOW, b"k", b"v", (("name", b"x" * index), ("empty", None)) * (index % 3))
        for index in range(200)
    ]
    made.append(Record(200, NOW, None, None, (("many", b"1"),) * 5_000))
    data = build_batch(made)
    assert decode(data)[0] == expected_rows(data, 0, NO_END)


def test_invalid_utf8_in_header_name_is_replaced() -> None:
    batch = bytearray(build_batch([Record(0, NOW, None, b"v", (("name", b"x"),))]))
    at = batch.index(b"name")
    batch[at] = 0xFF
    rows, _ = decode(with_crc(batch))
    assert rows[0]["headers"] == [{"key": "\N{REPLACEMENT CHARACTER}ame", "value": b"x"}]


def test_large_decompressed_batches_are_split() -> None:
    data = b"".join(
        batch_of_values(b"\0" * (12 << 20), base_offset=offset, compression=Compression.ZSTD)
        for offset in range(4)
    )
    found, next_offset = decode_batches(
        data, topic="t", partition=0, start=0, end=9, columns=["value", "offset"]
    )
    assert [batch.column("offset").to_pylist() for batch in found] == [[0, 1], [2, 3]]
    assert next_offset == 4


def test_log_append_time_is_marked() -> None:
    data = batch_of_values(b"a", timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert decode(data, columns=["timestampType"])[0] == [{"timestampType": 1}]


def test_aborted_transactions_are_hidden_up_to_their_marker() -> None:
    def transactional(offset: int, value: bytes, producer: int) -> bytes:
        return batch_of_values(
            value, base_offset=offset, producer_id=producer, is_transactional=True
        )

    def marker(offset: int, producer: int, kind: int) -> bytes:
        record = Record(offset, NOW, bytes((0, 0, 0, kind)), b"\0" * 6)
        return build_batch(
            [record],
            base_offset=offset,
            producer_id=producer,
            is_transactional=True,
            is_control=True,
        )

    data = b"".join(
        [
            transactional(0, b"aborted", 1),
            transactional(1, b"committed", 2),
            marker(2, 1, 0),
            transactional(3, b"later", 1),
            marker(4, 2, 1),
            transactional(5, b"aborted again", 1),
            batch_of_values(b"outside", base_offset=6, producer_id=1),
            marker(7, 1, 0),
        ]
    )
    aborted = [AbortedTransaction(1, 0), AbortedTransaction(1, 5)]
    rows, next_offset = decode(data, columns=["value"], aborted=aborted)
    assert [row["value"] for row in rows] == [b"committed", b"later", b"outside"]
    assert next_offset == 8
    assert len(decode(data, columns=["value"])[0]) == 5


def test_wrong_checksum_names_the_batch() -> None:
    data = bytearray(batch_of_values(b"good") + batch_of_values(b"corrupt", base_offset=1))
    data[-3] ^= 1
    with pytest.raises(
        RemoteWireError, match=r"orders-3: the batch at offset 1 is corrupt: .*checksum"
    ):
        decode(bytes(data))


def test_wrong_checksum_is_ignored_without_check() -> None:
    data = bytearray(batch_of_values(b"corrupt"))
    data[-3] ^= 1
    found, _ = decode_batches(
        data, topic="t", partition=0, start=0, end=9, columns=["value"], check_crcs=False
    )
    assert found[0].num_rows == 1


def test_inconsistent_batch_is_named() -> None:
    bad = bytearray(batch_of_values(b"value", base_offset=1))
    bad[HEADER_SIZE] += 2
    data = batch_of_values(b"good") + with_crc(bad) + batch_of_values(b"good", base_offset=2)
    with pytest.raises(RemoteWireError, match="the batch at offset 1 is corrupt"):
        decode(data)


@given(logs(), st.data())
def test_hostile_bytes_are_rejected_or_match_plain_reader(
    data: bytes, choice: st.DataObject
) -> None:
    """The checksum is valid: a batch with a wrong one is not parsed at all."""
    assume(data)
    corrupt = bytearray(data[: next(batch_headers(data))[1].size])
    for _ in range(choice.draw(st.integers(1, 4))):
        at = choice.draw(st.integers(CRC_START, len(corrupt) - 1))
        corrupt[at] = choice.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFE, 0xFF]))
    batch = with_crc(corrupt)
    try:
        expected = expected_rows(batch, -NO_END, NO_END)
    except (RemoteWireError, OverflowError):
        expected = None
    try:
        found, _ = decode_batches(
            batch, topic="orders", partition=3, start=-NO_END, end=NO_END, columns=COLUMNS
        )
    except RemoteWireError:
        assert expected is None
        return
    for made in found:
        made.validate(full=True)
    if expected is not None:
        assert [row for made in found for row in made.to_pylist()] == expected


@pytest.mark.parametrize("count", [-1, 0, 2, 1 << 30, 0x7FFF_FFFF])
def test_wrong_record_count_is_rejected_quickly(count: int) -> None:
    batch = bytearray(batch_of_values(b"x" * 100_000))
    batch[57:61] = count.to_bytes(4, signed=True)
    began = time.process_time()
    with pytest.raises(RemoteWireError):
        decode(with_crc(batch))
    assert time.process_time() - began < 1


def test_empty_input_returns_nothing() -> None:
    assert decode_batches(b"", topic="t", partition=0, start=5, end=9, columns=["key"]) == ([], 5)


def test_schema_matches_spark() -> None:
    assert arrow_schema(COLUMNS).equals(
        pa.schema([
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ])
    )  # fmt: skip


def test_timestamp_out_of_sparks_range_is_reported() -> None:
    """Producers that send nanoseconds in place of milliseconds are a common mistake."""
    nanoseconds = NOW * 1_000_000
    data = build_batch([Record(7, NOW, None, b"a", ()), Record(8, nanoseconds, None, b"b", ())])
    with pytest.raises(ConfigError, match=f"{nanoseconds} ms at offset 8 of orders-3, too large"):
        decode(data)
    assert decode(data, columns=["value"])[0] == [{"value": b"a"}, {"value": b"b"}]
