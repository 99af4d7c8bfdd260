"""Messages of magic 0 and 1; kafka-python, which still has them, is the judge."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.compression import Compression
from barnabas.wire.old_messages import as_batch, as_messages, messages, opened
from barnabas.wire.records import Record, build_batch, read_header, records

THEN = 1_700_000_000_000
CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
# In magic 0 the checksum in an lz4 frame was computed wrongly on purpose, and kafka-python sticks to it.
FORMATS = [(1, codec) for codec in CODECS] + [(0, codec) for codec in CODECS[:-1]]
PAIRS: list[tuple[bytes | None, bytes | None]] = [(b"k", b"v" * 50), (None, b""), (b"", None)]


def built(magic: int, codec: Compression) -> bytes:
    builder: Any = LegacyRecordBatchBuilder(magic, int(codec), 1 << 20)
    for number, (key, value) in enumerate(PAIRS):
        builder.append(number, THEN + number, key, value)
    return bytes(builder.build())


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_messages_become_one_batch_in_their_codec(magic: int, codec: Compression) -> None:
    batch = as_batch(memoryview(built(magic, codec)))
    assert batch is not None
    assert read_header(batch).compression == codec
    expected = [
        Record(number, THEN + number if magic else -1, key, value)
        for number, (key, value) in enumerate(PAIRS)
    ]
    assert list(records(batch)) == expected


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_a_batch_becomes_messages_that_kafka_python_reads(magic: int, codec: Compression) -> None:
    batch = build_batch(
        [Record(40 + n, THEN + n, key, value) for n, (key, value) in enumerate(PAIRS)],
        base_offset=40,
        compression=codec,
    )
    data = as_messages(memoryview(batch), magic, 40)
    reader: Any = MemoryRecords(data)
    found = []
    while (one := reader.next_batch()) is not None:
        assert isinstance(one, LegacyRecordBatch)
        assert one.validate_crc()
        found += [(record.offset, record.timestamp, record.key, record.value) for record in one]
    assert found == [
        (40 + n, THEN + n if magic else None, key, value) for n, (key, value) in enumerate(PAIRS)
    ]


def test_plain_records_ahead_of_the_offset_asked_for_are_left_out() -> None:
    for codec, expected in ((Compression.NONE, [1, 2]), (Compression.GZIP, [0, 1, 2])):
        batch = build_batch([Record(n, THEN, None, b"x") for n in range(3)], compression=codec)
        data = memoryview(as_messages(memoryview(batch), 1, 1))
        inner = [found for outer in messages(data) for found in opened(outer)]
        assert [message.offset for message in inner] == expected


def test_the_answer_is_as_long_as_the_batches_were_and_its_end_is_no_message() -> None:
    one = build_batch([Record(0, THEN, None, b"x")])
    two = build_batch([Record(1, THEN, None, b"y")], base_offset=1)
    data = as_messages(memoryview(one + two), 0, 0)
    assert len(data) == len(one + two)
    assert [message.value for message in messages(memoryview(data))] == [b"x", b"y"]


def test_zstd_ends_the_answer_and_alone_is_an_error() -> None:
    zstd = build_batch([Record(0, THEN, None, b"z")], compression=Compression.ZSTD)
    one = build_batch([Record(0, THEN, None, b"x")])
    data = memoryview(as_messages(memoryview(one + zstd), 1, 0))
    assert [message.value for message in messages(data)] == [b"x"]
    with pytest.raises(ApiError) as error:
        as_messages(memoryview(zstd), 1, 0)
    assert error.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@given(st.binary(max_size=200), st.sampled_from([0, 1]), st.integers(0, 199))
def test_broken_messages_are_an_error_and_nothing_else(rest: bytes, magic: int, at: int) -> None:
    data = bytearray(built(magic, Compression.GZIP))
    data[at % len(data) : at % len(data) + len(rest)] = rest
    try:
        as_batch(memoryview(data))
    except ApiError as error:
        assert error.code in (
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
