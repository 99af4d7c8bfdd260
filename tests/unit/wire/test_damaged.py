"""Records before the damage in a compressed batch. Expected results are Kafka 3.9's;
`interop/scenarios` compares them.
"""

from __future__ import annotations

import random
from functools import cache

import cramjam
import lz4.frame
import pytest

from barnabas.errors import RemoteWireError
from barnabas.wire.compression import XERIAL_HEAD, Compression, DecompressionError, compress
from barnabas.wire.damaged import PIECES_MAX, lz4_checksum, salvage, unpack
from barnabas.wire.records import varint

LIMIT = 16 << 20
COMPRESSED = [codec for codec in Compression if codec]
COUNT = 4_000


@cache
def record(number: int, headers: int = 0) -> bytes:
    text = bytes(random.Random(number).choices(b"abcdefgh ", k=90))
    fields = b"\0\0" + varint(number) + varint(-1) + varint(len(text)) + text + varint(headers)
    return varint(len(fields)) + fields


def body(invalid: int | None = None) -> bytes:
    """Build 400 KB of records: several blocks for every codec."""
    return b"".join(record(number, -1 if number == invalid else 0) for number in range(COUNT))


def position(number: int) -> int:
    return sum(len(record(each)) for each in range(number))


def is_record_error(codec: Compression, compressed: bytes, count: int = COUNT) -> bool:
    """Return whether the error is in a record, rather than in the compression."""
    with pytest.raises(RemoteWireError) as found:
        unpack(codec, memoryview(compressed), count, limit=LIMIT)
    return not isinstance(found.value, DecompressionError)


def garble(compressed: bytes, at: float) -> bytes:
    """Invert 40 bytes, more than any codec can tolerate."""
    place = int(len(compressed) * at)
    return (
        compressed[:place]
        + bytes(byte ^ 0xFF for byte in compressed[place : place + 40])
        + compressed[place + 40 :]
    )


@pytest.mark.parametrize("codec", COMPRESSED)
def test_intact_batch_is_unpacked(codec: Compression) -> None:
    plain = body()
    assert unpack(codec, memoryview(compress(codec, plain)), COUNT, limit=LIMIT) == plain


@pytest.mark.parametrize("codec", COMPRESSED)
def test_invalid_record_before_damage_is_reported(codec: Compression) -> None:
    for invalid, expected in ((None, False), (0, True), (700, True), (COUNT - 1, False)):
        compressed = compress(codec, body(invalid))
        assert is_record_error(codec, compressed[: len(compressed) * 6 // 10]) is expected
    assert is_record_error(codec, compress(codec, body(COUNT - 1))[:-2]) is (codec in HAS_TRAILER)


HAS_TRAILER = (Compression.GZIP, Compression.LZ4)
"""Codecs whose frames end with a trailer after the data."""


@pytest.mark.parametrize("codec", COMPRESSED)
def test_records_that_cannot_be_decompressed_are_not_reported(codec: Compression) -> None:
    assert not is_record_error(codec, b"not compressed")
    assert not is_record_error(codec, compress(codec, body(0))[:7])


@pytest.mark.parametrize(
    ("codec", "at", "seen"),
    [
        # The next block is decoded with the last step of this one.
        (Compression.ZSTD, 0.45, 7 * 16_384),
        (Compression.LZ4, 0.45, 131_072),
        (Compression.SNAPPY, 0.45, 163_840),
    ],
)
def test_blocks_are_decompressed_in_steps(codec: Compression, at: float, seen: int) -> None:
    last_seen = next(n for n in range(COUNT) if position(n + 1) > seen) - 1
    for invalid, expected in ((last_seen, True), (last_seen + 1, False)):
        compressed = compress(codec, body(invalid))
        assert len(salvage(codec, memoryview(garble(compressed, at)), LIMIT).plain) == seen
        assert is_record_error(codec, garble(compressed, at)) is expected


def test_failing_gzip_step_is_lost() -> None:
    compressed = compress(Compression.GZIP, record(0, -1))
    assert not is_record_error(Compression.GZIP, compressed[:20] + b"\xff" * 20, 1)
    wrong_checksum = compressed[:-8] + bytes(8)
    assert is_record_error(Compression.GZIP, wrong_checksum, 1)


def test_last_snappy_chunk_needs_the_next_one() -> None:
    compressed = compress(Compression.SNAPPY, body())
    found = salvage(Compression.SNAPPY, memoryview(compressed + b"rubbish"), LIMIT)
    assert len(found.plain) == len(body()) // 2048 * 2048


def checked_lz4(plain: bytes) -> bytes:
    frame = cramjam.lz4.Compressor(block_linked=False, content_checksum=True)
    frame.compress(plain)
    return bytes(frame.finish())


def test_lz4_content_checksum_is_ignored() -> None:
    wrong = checked_lz4(body())[:-4] + b"else"
    assert unpack(Compression.LZ4, memoryview(wrong), COUNT, limit=LIMIT) == body()
    assert is_record_error(Compression.LZ4, checked_lz4(body())[:-1], COUNT) is False
    # The missing record starts at the end of the data: no error in a record.
    assert is_record_error(Compression.LZ4, checked_lz4(body())[:-1], COUNT + 1) is False
    # The last record ends inside: an error in a record.
    assert is_record_error(Compression.LZ4, checked_lz4(body()[:-1])[:-1], COUNT) is True


def test_lz4_header_checksum_is_checked() -> None:
    frame = checked_lz4(body())
    assert frame[6] == lz4_checksum(frame[4:6])
    for size in (1, 300, 70_000):
        theirs = lz4.frame.compress(bytes(size), store_size=True, block_linked=False)
        assert theirs[14] == lz4_checksum(theirs[4:14])
    for at in (1, 4, 5, 6):
        wrong = bytearray(checked_lz4(body(0)))
        wrong[at] ^= 0x80
        assert not is_record_error(Compression.LZ4, bytes(wrong))


def test_truncated_second_zstd_frame_is_ignored() -> None:
    one = compress(Compression.ZSTD, record(0))
    for rest in (4, 5, 9, len(one) - 1):
        truncated = memoryview(one + one[:rest])
        assert unpack(Compression.ZSTD, truncated, 1, limit=LIMIT).startswith(record(0))
    assert not is_record_error(Compression.ZSTD, one[:-1], 1)
    large = compress(Compression.ZSTD, bytes(range(256)) * 4) * 9 + one[:-1]
    assert unpack(Compression.ZSTD, memoryview(large), 1, limit=LIMIT)


def test_damaged_second_zstd_frame_is_read_in_its_own_steps() -> None:
    first = body()[: position(100)]
    second = compress(Compression.ZSTD, body()[position(100) :])
    compressed = compress(Compression.ZSTD, first) + garble(second, 0.45)
    found = salvage(Compression.ZSTD, memoryview(compressed), LIMIT)
    assert (len(found.plain) - len(first)) % 16_384 == 0
    assert body().startswith(found.plain)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_record_that_crosses_the_damage_is_not_invalid(codec: Compression) -> None:
    value = random.Random(1).randbytes(300_000)
    fields = b"\0\0\0" + varint(-1) + varint(-1) + varint(1) + varint(1) + b"h"
    fields += varint(len(value)) + value
    compressed = compress(codec, varint(len(fields)) + fields)
    assert not is_record_error(codec, compressed[:150_000], 1)


def test_skippable_zstd_frame_is_skipped() -> None:
    skippable = b"\x53\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    one = compress(Compression.ZSTD, record(0))
    compressed = memoryview(skippable + one + skippable + one[:-1])
    assert unpack(Compression.ZSTD, compressed, 1, limit=LIMIT).startswith(record(0))
    assert not is_record_error(Compression.ZSTD, skippable[:-1], 1)


@pytest.mark.parametrize(
    ("codec", "piece"),
    [
        (Compression.GZIP, compress(Compression.GZIP, b"x")),
        (Compression.SNAPPY, b"\0\0\0\3\1\0x"),
        (Compression.LZ4, b"\1\0\0\x80x"),
    ],
)
def test_only_first_of_very_many_pieces_are_read(codec: Compression, piece: bytes) -> None:
    head = {Compression.SNAPPY: XERIAL_HEAD, Compression.LZ4: lz4.frame.compress(b"")[:7]}
    frame = head.get(codec, b"") + piece * 9_000 + b"\x7f\xff\xff\xff\xff\xff\xff\xff"
    assert len(salvage(codec, memoryview(frame), LIMIT).plain) <= 2 * PIECES_MAX


def test_very_many_zstd_frames_are_decompressed_at_once() -> None:
    compressed = compress(Compression.ZSTD, b"x") * 9_000 + b"something else"
    assert salvage(Compression.ZSTD, memoryview(compressed), LIMIT).plain == b"x" * 9_000


def test_announced_count_before_damage_is_not_trusted() -> None:
    plain = b"".join(record(number) for number in range(30))
    compressed = compress(Compression.GZIP, plain)[:-8] + bytes(8)
    assert not is_record_error(Compression.GZIP, compressed, 1 << 30)
