from __future__ import annotations

import contextlib
import struct
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.batch.compression import Compression
from barnabas.batch.header import (
    HEADER_SIZE,
    BatchHeader,
    batch_headers,
    crc_is_valid,
    stamp,
    stamp_log_append_time,
)
from barnabas.batch.records import Record, TimestampType, build_batch, records
from barnabas.batch.validation import BatchValidator
from barnabas.config import TopicConfig
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from tests.unit.batch import aiokafka_batches

NOW = 1_700_000_000_000
SAMPLE = (
    Record(0, NOW, b"a", b"first", ()),
    Record(1, NOW + 5, None, b"second", (("trace", b"1"), ("empty", None))),
    Record(2, NOW - 70_000, b"a", None, ()),
    Record(3, NOW + 9_000_000_000, b"", b"\0" * 70_000, (("é", b""),)),
)
ALL_CODECS = list(Compression)
VALIDATOR = BatchValidator(TopicConfig())

record_values = st.one_of(st.none(), st.binary(max_size=300))
record_headers = st.lists(st.tuples(st.text(max_size=8), record_values), max_size=3).map(tuple)
record_lists = st.lists(
    st.tuples(st.integers(0, 2**45), record_values, record_values, record_headers),
    min_size=1,
    max_size=8,
).map(lambda rows: [Record(offset, *row) for offset, row in enumerate(rows)])


def patch(
    batch: bytes | memoryview, position: int, form: str, value: int, *, fix_crc: bool = True
) -> memoryview:
    """Return the batch with one field overwritten and, by default, a correct checksum."""
    data = bytearray(batch)
    struct.pack_into(form, data, position, value)
    if fix_crc:
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return memoryview(data)


def validate(batch: memoryview, version: int) -> BatchHeader:
    return VALIDATOR.validate(batch, NOW, produce_version=version)[1]


@given(record_lists, st.sampled_from(ALL_CODECS), st.integers(0, 2**60))
@settings(max_examples=60)
def test_built_batch_is_read_back(rows: list[Record], codec: Compression, base: int) -> None:
    moved = [row._replace(offset=base + row.offset) for row in rows]
    batch = memoryview(build_batch(moved, base_offset=base, compression=codec))
    header = BatchHeader(batch)
    assert crc_is_valid(batch, 0, header)
    assert header.size == len(batch)
    assert header.next_offset == base + len(rows)
    assert list(records(batch)) == moved


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_aiokafka_reads_our_batches(codec: Compression) -> None:
    batch = build_batch(
        SAMPLE,
        compression=codec,
        producer_id=7,
        producer_epoch=2,
        base_sequence=11,
        is_transactional=True,
    )
    theirs: Any = aiokafka_records.DefaultRecordBatch(batch)
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (7, 2, 11)
    assert theirs.is_transactional
    assert as_ours(theirs) == list(SAMPLE)


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_our_reader_reads_aiokafka_batches(codec: Compression) -> None:
    check_foreign_builder(aiokafka_records.DefaultRecordBatchBuilder, codec)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_our_reader_reads_kafka_python_batches(codec: Compression) -> None:
    check_foreign_builder(kafka_python_records.DefaultRecordBatchBuilder, codec)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_kafka_python_reads_our_batches(codec: Compression) -> None:
    theirs: Any = kafka_python_records.DefaultRecordBatch(build_batch(SAMPLE, compression=codec))
    assert theirs.validate_crc()
    assert as_ours(theirs) == list(SAMPLE)


def check_foreign_builder(builder: Any, codec: Compression) -> None:
    theirs = builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for record in SAMPLE:
        theirs.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    batch = memoryview(bytes(theirs.build()))
    assert validate(batch, 9).compression == codec
    assert list(records(batch)) == list(SAMPLE)


def as_ours(theirs: Any) -> list[Record]:
    return [
        Record(row.offset, row.timestamp, row.key, row.value, tuple(row.headers)) for row in theirs
    ]


def test_uncompressed_batch_equals_aiokafka_bytes() -> None:
    theirs = aiokafka_batches.uncompressed_builder()
    for record in SAMPLE:
        theirs.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    assert bytes(theirs.build()) == build_batch(SAMPLE)


def test_stamped_batch_stays_valid() -> None:
    data = memoryview(bytearray(b"xxx" + build_batch(SAMPLE)))
    stamp(data, 3, 1_000, len(data) - 15, 12)
    header = BatchHeader(data, 3)
    assert (header.base_offset, header.partition_leader_epoch) == (1_000, 12)
    assert (header.last_offset, header.next_offset) == (1_003, 1_004)
    assert crc_is_valid(data, 3, header)
    assert [record.offset for record in records(data[3:])] == [1_000, 1_001, 1_002, 1_003]


def test_log_append_time_replaces_timestamps_and_crc() -> None:
    data = memoryview(bytearray(b"xxx" + build_batch(SAMPLE, compression=Compression.ZSTD)))
    stamp_log_append_time(data, 3, NOW + 1)
    header = BatchHeader(data, 3)
    assert header.is_log_append_time
    assert header.max_timestamp == NOW + 1
    assert header.compression == Compression.ZSTD
    assert crc_is_valid(data, 3, header)
    assert {record.timestamp for record in records(data[3:])} == {NOW + 1}


def test_headers_of_whole_batches_are_found() -> None:
    one, two = build_batch(SAMPLE[:1]), build_batch(SAMPLE[:2], base_offset=0)
    data = one + two + build_batch(SAMPLE)[:-1]
    found = list(batch_headers(data))
    assert [position for position, _ in found] == [0, len(one)]
    assert [header.count for _, header in found] == [1, 2]
    assert next(batch_headers(data, len(one)))[0] == len(one)
    assert [position for position, _ in batch_headers((one + two)[: len(one) + 30])] == [0]


def test_invalid_batch_bytes_are_rejected() -> None:
    with pytest.raises(RemoteWireError):
        list(batch_headers(bytes(200)))
    with pytest.raises(RemoteWireError):
        BatchHeader(bytes(HEADER_SIZE - 1))


def test_emptied_batch_keeps_its_offset_range() -> None:
    batch = memoryview(
        build_batch([], base_offset=10, last_offset=14, producer_id=3, delete_horizon_ms=NOW)
    )
    header = BatchHeader(batch)
    assert (header.base_offset, header.last_offset, header.count) == (10, 14, 0)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW
    assert list(records(batch)) == []


def test_delete_horizon_does_not_change_timestamps() -> None:
    batch = memoryview(build_batch(SAMPLE, delete_horizon_ms=NOW + 123_456))
    assert list(records(batch)) == list(SAMPLE)


def test_valid_batch_is_accepted_from_its_header() -> None:
    batch = memoryview(build_batch(SAMPLE, producer_id=4, producer_epoch=0, base_sequence=0))
    header = validate(batch, 3)
    assert (header.count, header.producer_id, header.size) == (4, 4, len(batch))
    zstd = memoryview(build_batch(SAMPLE, compression=Compression.ZSTD))
    assert validate(zstd, 7).compression == Compression.ZSTD


GOOD = build_batch(SAMPLE)


@pytest.mark.parametrize(
    ("data", "version", "code"),
    [
        (memoryview(b""), 9, ErrorCode.INVALID_RECORD),
        (memoryview(GOOD[:60]), 9, ErrorCode.INVALID_RECORD),
        (memoryview(GOOD[:-1]), 9, ErrorCode.INVALID_RECORD),
        (memoryview(GOOD + GOOD), 9, ErrorCode.INVALID_RECORD),
        (patch(GOOD, 16, "b", 1), 9, ErrorCode.INVALID_RECORD),
        (patch(GOOD, 16, "b", 1), 2, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (memoryview(bytes(26)), 0, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (patch(GOOD, 16, "b", 3), 9, ErrorCode.CORRUPT_MESSAGE),
        (patch(GOOD, 8, ">i", 48), 9, ErrorCode.CORRUPT_MESSAGE),
        (patch(GOOD, 100, "b", 1, fix_crc=False), 9, ErrorCode.CORRUPT_MESSAGE),
        (patch(GOOD, 0, ">q", 1), 9, ErrorCode.INVALID_RECORD),
        (patch(GOOD, 23, ">i", 4), 9, ErrorCode.INVALID_RECORD),
        (patch(GOOD, 57, ">i", 3), 9, ErrorCode.INVALID_RECORD),
        (patch(patch(GOOD, 57, ">i", 0), 23, ">i", -1), 9, ErrorCode.INVALID_RECORD),
        (patch(GOOD, 43, ">q", 5), 9, ErrorCode.INVALID_RECORD),
        (patch(GOOD, 21, ">h", 0x20), 9, ErrorCode.INVALID_RECORD),
        (patch(GOOD, 21, ">h", 4), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (patch(GOOD, 21, ">h", 5), 9, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_invalid_produced_batch_gets_kafka_error(
    data: memoryview, version: int, code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as caught:
        validate(data, version)
    assert caught.value.code == code


@given(st.data())
@settings(max_examples=300)
def test_corrupt_batch_is_rejected_or_read(
    data: st.DataObject,
) -> None:
    codec = data.draw(st.sampled_from(ALL_CODECS))
    batch = bytearray(build_batch(SAMPLE[:3], compression=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_SIZE, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RemoteWireError):
        assert len(list(records(memoryview(batch)))) == 3


@pytest.mark.parametrize(
    ("position", "form", "value"),
    [
        (57, ">i", 5),
        (57, ">i", 3),
        (57, ">i", 2**31 - 1),
        (23, ">i", 2),
        (8, ">i", 10**6),
        (21, ">h", 7),
    ],
)
def test_header_contradicting_records_is_rejected(position: int, form: str, value: int) -> None:
    with pytest.raises(RemoteWireError):
        list(records(patch(GOOD, position, form, value)))


def test_log_append_time_batch_can_be_built() -> None:
    batch = memoryview(build_batch(SAMPLE, timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert BatchHeader(batch).is_log_append_time
    assert {record.timestamp for record in records(batch)} == {NOW + 9_000_000_000}


def test_control_batch_is_marked() -> None:
    marker = Record(0, NOW, b"\0\0\0\1", b"\0\0\0\0\0\0", ())
    batch = memoryview(build_batch([marker], is_control=True, is_transactional=True, producer_id=9))
    header = BatchHeader(batch)
    assert header.is_control
    assert header.is_transactional
    assert list(records(batch)) == [marker]
