"""Validation of a batch beyond its header, with Kafka's error codes."""

from __future__ import annotations

import gzip
from random import Random

import cramjam
import pytest

from barnabas.batch.compression import PRODUCED_BYTES_MAX, Compression, compress
from barnabas.batch.header import HEADER_SIZE
from barnabas.batch.reader import HEADERS_MAX
from barnabas.batch.records import Record, build_batch, seal_batch, varint
from barnabas.batch.validation import SMALL_RECORDS, BatchValidator, LargeBatch
from barnabas.config import TopicConfig
from barnabas.errors import ApiError, ErrorCode
from support.mutated_batches import with_codec

NOW = 1_700_000_000_000
MESSAGE_BYTES_MAX = 2**31 - 1
UNLIMITED = BatchValidator(TopicConfig(max_message_bytes=MESSAGE_BYTES_MAX))
COMPRESSED = [codec for codec in Compression if codec]


def body_of(count: int, value: bytes = b"value") -> bytes:
    return build_batch([Record(n, NOW, b"key", value) for n in range(count)])[HEADER_SIZE:]


def batch_of(body: bytes, count: int, codec: int = 0, *, raw: bool = False) -> memoryview:
    """Build a batch that announces `count` records. With `raw` the body is not compressed,
    only marked so.
    """
    batch = bytearray(
        seal_batch(
            body,
            count=count,
            last_offset_delta=count - 1,
            base_timestamp=NOW,
            max_timestamp=NOW,
            attributes=0 if raw else codec,
        )
    )
    return memoryview(bytearray(with_codec(batch, codec)))


def code_of(body: bytes, count: int, codec: int = 0, *, raw: bool = False) -> ErrorCode:
    try:
        UNLIMITED.validate(batch_of(body, count, codec, raw=raw), NOW)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("count", [1, 3, 100])
def test_record_count_must_match(codec: Compression, count: int) -> None:
    assert code_of(body_of(count), count, codec) is ErrorCode.NONE
    assert code_of(body_of(count), count + 1, codec) is ErrorCode.INVALID_RECORD
    assert code_of(body_of(count + 2), count, codec) is ErrorCode.INVALID_RECORD
    assert code_of(body_of(count)[:-1], count, codec) is ErrorCode.INVALID_RECORD


def test_size_is_checked_first_and_before_compression() -> None:
    zipped = BatchValidator(TopicConfig(max_message_bytes=500, compression_type="gzip"))
    large = batch_of(body_of(1, b"x" * 1000), 1)
    for batch in (large, memoryview(bytes(large[:-1]) + b"?")):
        with pytest.raises(ApiError) as raised:
            zipped.validate(batch, NOW)
        assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", COMPRESSED)
def test_undecompressible_body_is_rejected(codec: Compression) -> None:
    whole = compress(codec, body_of(3))
    for data in (b"not compressed", whole[:-1], whole[: len(whole) // 2], whole[:8]):
        assert code_of(data, 3, codec, raw=True) is ErrorCode.INVALID_RECORD
    assert code_of(b"", 3, codec, raw=True) is ErrorCode.INVALID_RECORD


def test_offset_deltas_out_of_order_are_rejected_only_if_compressed() -> None:
    fields = varint(-1) + varint(1) + b"v" + varint(0)
    twice = (varint(3 + len(fields)) + b"\0\0\0" + fields) * 2
    assert code_of(twice, 2) is ErrorCode.NONE
    assert code_of(twice, 2, Compression.LZ4) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_endless_length_is_rejected() -> None:
    endless = b"\xff" * 5 + b"\1" + body_of(1)
    assert code_of(endless, 2) is ErrorCode.INVALID_RECORD
    assert code_of(endless[:6], 2) is ErrorCode.INVALID_RECORD
    assert code_of(endless, 2, Compression.GZIP) is ErrorCode.INVALID_RECORD


def test_linked_lz4_blocks_are_rejected() -> None:
    linked = cramjam.lz4.Compressor(block_linked=True)
    linked.compress(body_of(9))
    frame = bytes(linked.finish())
    assert code_of(frame, 9, Compression.LZ4, raw=True) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_large_decompressed_body_is_checked(codec: Compression) -> None:
    much = Random(0).randbytes(1 << 20) * 17
    assert code_of(body_of(1, much), 1, codec) is ErrorCode.NONE
    assert code_of(body_of(1, much), 2, codec) is ErrorCode.INVALID_RECORD


def test_body_that_decompresses_above_the_limit_is_rejected() -> None:
    much = bytes(PRODUCED_BYTES_MAX)
    assert code_of(body_of(1, much), 1, Compression.GZIP) is ErrorCode.MESSAGE_TOO_LARGE


def test_body_of_very_many_gzip_members_is_checked() -> None:
    members = gzip.compress(b"") * 3_000
    assert code_of(members, 3, Compression.GZIP, raw=True) is ErrorCode.INVALID_RECORD
    members += gzip.compress(body_of(3))
    assert code_of(members, 3, Compression.GZIP, raw=True) is ErrorCode.NONE
    assert code_of(members, 4, Compression.GZIP, raw=True) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("many", [40_000, 200_001])
def test_any_number_of_records_is_checked(many: int) -> None:
    body = body_of(many, b"")
    assert code_of(body, many) is ErrorCode.NONE
    assert code_of(body, many + 1) is ErrorCode.INVALID_RECORD
    assert code_of(body, many - 1) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", Compression)
def test_corrupt_record_is_found_anywhere(codec: Compression) -> None:
    one = body_of(1, b"x" * 20)
    for at in (0, 1, 5, 63, 64, 65, 150, 299):
        body = bytearray(body_of(300, b"x" * 20))
        place = body.index(b"x" * 20, min(at, 64) * len(one) + max(0, at - 64) * (len(one) + 1)) - 1
        body[place] ^= 2  # the size of its value
        assert code_of(bytes(body), 300, codec) is ErrorCode.INVALID_RECORD


def test_impossible_record_count_is_rejected() -> None:
    for codec in Compression:
        assert code_of(body_of(3), 2**31 - 1, codec) is ErrorCode.INVALID_RECORD


def with_headers(count: int) -> bytes:
    """Build one record with `count` headers without a name."""
    fields = b"\0\0\0" + varint(-1) + varint(-1) + varint(count) + b"\0\1" * count
    return varint(len(fields)) + fields


@pytest.mark.parametrize("codec", Compression)
def test_many_headers_are_checked(codec: Compression) -> None:
    for count in (100, 40_000):
        assert code_of(with_headers(count), 1, codec) is ErrorCode.NONE
        assert code_of(with_headers(count) + b"\0", 1, codec) is ErrorCode.INVALID_RECORD
    absurd = b"\0\0\0" + varint(-1) + varint(-1) + varint(1 << 30)
    assert code_of(varint(len(absurd)) + absurd, 1, codec) is ErrorCode.INVALID_RECORD


def test_more_headers_than_the_limit_are_rejected() -> None:
    assert code_of(with_headers(HEADERS_MAX + 1), 1) is ErrorCode.INVALID_RECORD


def test_all_records_of_a_compacted_topic_are_checked() -> None:
    compacted = BatchValidator(
        TopicConfig(cleanup_policy=("compact",), max_message_bytes=MESSAGE_BYTES_MAX)
    )
    many = 200_001
    body = body_of(many, b"")
    compacted.validate(batch_of(body, many), NOW)
    keyless = with_headers(0)
    with pytest.raises(ApiError, match="requires a key") as caught:
        compacted.validate(batch_of(body + keyless, many + 1), NOW)
    assert caught.value.record_indexes == (many,)


@pytest.mark.parametrize(
    ("body", "count", "codec"),
    [
        (body_of(SMALL_RECORDS + 1, b""), SMALL_RECORDS + 1, Compression.NONE),
        (body_of(1, bytes(2 << 20)), 1, Compression.ZSTD),
        (body_of(1, bytes(5 << 20)), 1, Compression.NONE),
        (gzip.compress(b"") * 300 + gzip.compress(body_of(1)), 1, None),
    ],
)
def test_batch_that_takes_long_is_left_to_a_thread(
    body: bytes, count: int, codec: Compression | None
) -> None:
    is_raw = codec is None
    batch = batch_of(body, count, Compression.GZIP if is_raw else codec or 0, raw=is_raw)
    with pytest.raises(LargeBatch):
        UNLIMITED.validate(batch, NOW, if_small=True)
    assert UNLIMITED.validate(batch, NOW)[1].count == count
