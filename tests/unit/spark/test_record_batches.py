from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.batch.compression import Compression
from barnabas.batch.header import BatchHeader, crc_is_valid
from barnabas.batch.records import Record, records
from barnabas.client.partitioner import murmur2, partition_of_key
from barnabas.errors import ConfigError
from barnabas.spark.record_batches import (
    Columns,
    encode_records,
    header_tails,
    murmur2_hashes,
    partitions_of_keys,
)

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

content = st.none() | st.binary(max_size=300)
headers = st.none() | st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3
)
rows = st.lists(st.tuples(content, content, headers), min_size=1, max_size=40)
times = st.integers(0, 2**63 - 1) | st.integers(1_700_000_000_000, 1_700_000_100_000)

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def batches_of(found: list[Row], bytes_max: int, compression: Compression) -> list[bytes]:
    tails = header_tails(
        pa.array(
            [
                None if some is None else [{"key": name, "value": value} for name, value in some]
                for _, _, some in found
            ],
            HEADERS,
        )
    )
    columns = Columns(
        pa.array([key for key, _, _ in found], pa.binary()),
        pa.array([value for _, value, _ in found], pa.binary()),
        tails,
        1700,
    )
    return [
        body.builder(compression)(producer_id=7, producer_epoch=1, base_sequence=3)
        for body in encode_records(columns, bytes_max)
    ]


@given(rows, st.integers(1, 4000), st.sampled_from(Compression))
def test_built_batches_read_back_row_by_row(
    found: list[Row], bytes_max: int, compression: Compression
) -> None:
    read: list[Row] = []
    for batch in batches_of(found, bytes_max, compression):
        header = BatchHeader(batch)
        assert crc_is_valid(memoryview(batch), 0, header)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
        opened = list(records(memoryview(batch)))
        assert [record.offset for record in opened] == list(range(header.count))
        assert header.last_offset_delta == header.count - 1
        assert {record.timestamp for record in opened} == {1700}
        assert header.count == 1 or compression or len(batch) <= bytes_max + 61
        read += [(record.key, record.value, list(record.headers)) for record in opened]
    assert read == [(key, value, some or []) for key, value, some in found]


@given(st.lists(times, min_size=1, max_size=40), st.integers(1, 4000))
def test_each_record_has_its_own_timestamp(found: list[int], bytes_max: int) -> None:
    values = pa.array([b"v" * (index % 90) for index in range(len(found))], pa.binary())
    read: list[int] = []
    for body in encode_records(Columns(None, values, None, np.array(found)), bytes_max):
        batch = body.builder(Compression.NONE)()
        header = BatchHeader(batch)
        stamps = [record.timestamp for record in records(memoryview(batch))]
        assert (header.base_timestamp, header.max_timestamp) == (stamps[0], max(stamps))
        assert header.count == 1 or len(batch) <= bytes_max + 61
        read += stamps
    assert read == found


def test_sliced_column_is_written_from_its_own_rows() -> None:
    values = pa.array([b"zero", b"one", None, b"three"])[1:]
    (body,) = encode_records(Columns(values[::1], values, None, 0), 1000)
    batch = body.builder(Compression.NONE)()
    assert list(records(memoryview(batch))) == [
        Record(0, 0, b"one", b"one"),
        Record(1, 0, None, None),
        Record(2, 0, b"three", b"three"),
    ]


def test_records_without_key_column_have_null_keys() -> None:
    (body,) = encode_records(Columns(None, pa.array([b"x", b"y" * 10_000]), None, 0), 100_000)
    opened = list(records(memoryview(body.builder(Compression.NONE)())))
    assert [(record.key, record.value) for record in opened] == [
        (None, b"x"),
        (None, b"y" * 10_000),
    ]


def test_header_without_name_is_rejected() -> None:
    with pytest.raises(ConfigError, match="column headers: a header has no key"):
        header_tails(pa.array([[{"key": None, "value": b"x"}]], HEADERS))


@given(
    st.lists(
        st.binary(max_size=40) | st.binary(min_size=250, max_size=270), min_size=1, max_size=30
    )
)
def test_vectorised_hash_matches_murmur2(keys: list[bytes]) -> None:
    assert murmur2_hashes(pa.array(keys, pa.binary())).tolist() == [murmur2(key) for key in keys]


@given(
    st.lists(st.none() | st.binary(max_size=12), min_size=1, max_size=30),
    st.integers(1, 50),
    st.integers(0, 3),
)
def test_vectorised_partitioner_matches_producer(
    keys: list[bytes | None], count: int, skipped: int
) -> None:
    column = pa.array([None] * skipped + keys, pa.binary())[skipped:]
    expected = [-1 if key is None else partition_of_key(key, count) for key in keys]
    assert np.asarray(partitions_of_keys(column, count)).tolist() == expected
