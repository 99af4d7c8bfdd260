"""What is expected here is what Kafka 3.9 answered; `interop/scenarios` asks it again and again."""

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
PACKED = [codec for codec in Compression if codec]
COUNT = 4_000


@cache
def record(number: int, headers: int = 0) -> bytes:
    text = bytes(random.Random(number).choices(b"abcdefgh ", k=90))
    fields = b"\0\0" + varint(number) + varint(-1) + varint(len(text)) + text + varint(headers)
    return varint(len(fields)) + fields


def body(broken: int | None = None) -> bytes:
    """400 KB: several blocks for every codec."""
    return b"".join(record(number, -1 if number == broken else 0) for number in range(COUNT))


def position(number: int) -> int:
    return sum(len(record(each)) for each in range(number))


def is_broken(codec: Compression, packed: bytes, count: int = COUNT) -> bool:
    """Whether a record is found to be, and not the packing."""
    with pytest.raises(RemoteWireError) as found:
        unpack(codec, memoryview(packed), count, limit=LIMIT)
    return not isinstance(found.value, DecompressionError)


def garbled(packed: bytes, at: float) -> bytes:
    """For longer than any code can make sense of."""
    place = int(len(packed) * at)
    return (
        packed[:place]
        + bytes(byte ^ 0xFF for byte in packed[place : place + 40])
        + packed[place + 40 :]
    )


@pytest.mark.parametrize("codec", PACKED)
def test_what_is_whole_is_unpacked(codec: Compression) -> None:
    plain = body()
    assert unpack(codec, memoryview(compress(codec, plain)), COUNT, limit=LIMIT) == plain


@pytest.mark.parametrize("codec", PACKED)
def test_a_record_that_is_broken_before_the_damage_is_what_is_told(codec: Compression) -> None:
    for broken, expected in ((None, False), (0, True), (700, True), (COUNT - 1, False)):
        packed = compress(codec, body(broken))
        assert is_broken(codec, packed[: len(packed) * 6 // 10]) is expected
    assert is_broken(codec, compress(codec, body(COUNT - 1))[:-2]) is (codec in AT_THE_END)


AT_THE_END = (Compression.GZIP, Compression.LZ4)
"""What ends with something that is not data."""


@pytest.mark.parametrize("codec", PACKED)
def test_nothing_is_told_of_what_was_never_unpacked(codec: Compression) -> None:
    assert not is_broken(codec, b"not packed at all")
    assert not is_broken(codec, compress(codec, body(0))[:7])


@pytest.mark.parametrize(
    ("codec", "at", "seen"),
    [
        (
            Compression.ZSTD,
            0.45,
            7 * 16_384,
        ),  # the next block is opened with the last step of this one
        (Compression.LZ4, 0.45, 131_072),
        (Compression.SNAPPY, 0.45, 163_840),
    ],
)
def test_blocks_are_handed_out_in_steps(codec: Compression, at: float, seen: int) -> None:
    last_seen = next(n for n in range(COUNT) if position(n + 1) > seen) - 1
    for broken, expected in ((last_seen, True), (last_seen + 1, False)):
        packed = compress(codec, body(broken))
        assert len(salvage(codec, memoryview(garbled(packed, at)), LIMIT).plain) == seen
        assert is_broken(codec, garbled(packed, at)) is expected


def test_the_step_of_gzip_in_which_it_fails_is_lost() -> None:
    packed = compress(Compression.GZIP, record(0, -1))
    assert not is_broken(Compression.GZIP, packed[:20] + b"\xff" * 20, 1)
    wrong_checksum = packed[:-8] + bytes(8)
    assert is_broken(Compression.GZIP, wrong_checksum, 1)


def test_the_last_part_of_snappy_comes_with_what_is_behind_it() -> None:
    packed = compress(Compression.SNAPPY, body())
    found = salvage(Compression.SNAPPY, memoryview(packed + b"rubbish"), LIMIT)
    assert len(found.plain) == len(body()) // 2048 * 2048


def checked_lz4(plain: bytes) -> bytes:
    frame = cramjam.lz4.Compressor(block_linked=False, content_checksum=True)
    frame.compress(plain)
    return bytes(frame.finish())


def test_the_checksum_of_all_blocks_of_lz4_is_not_looked_at() -> None:
    wrong = checked_lz4(body())[:-4] + b"else"
    assert unpack(Compression.LZ4, memoryview(wrong), COUNT, limit=LIMIT) == body()
    assert is_broken(Compression.LZ4, checked_lz4(body())[:-1], COUNT) is False
    assert (
        is_broken(Compression.LZ4, checked_lz4(body())[:-1], COUNT + 1) is False
    )  # between two records
    assert is_broken(Compression.LZ4, checked_lz4(body()[:-1])[:-1], COUNT) is True  # and in one


def test_the_head_of_lz4_is() -> None:
    frame = checked_lz4(body())
    assert frame[6] == lz4_checksum(frame[4:6])
    for size in (1, 300, 70_000):
        theirs = lz4.frame.compress(bytes(size), store_size=True, block_linked=False)
        assert theirs[14] == lz4_checksum(theirs[4:14])
    for at in (1, 4, 5, 6):
        wrong = bytearray(checked_lz4(body(0)))
        wrong[at] ^= 0x80
        assert not is_broken(Compression.LZ4, bytes(wrong))


def test_a_second_frame_of_zstd_that_is_cut_short_is_nothing() -> None:
    one = compress(Compression.ZSTD, record(0))
    for rest in (4, 5, 9, len(one) - 1):
        cut = memoryview(one + one[:rest])
        assert unpack(Compression.ZSTD, cut, 1, limit=LIMIT).startswith(record(0))
    assert not is_broken(Compression.ZSTD, one[:-1], 1)
    large = compress(Compression.ZSTD, bytes(range(256)) * 4) * 9 + one[:-1]
    assert unpack(Compression.ZSTD, memoryview(large), 1, limit=LIMIT)


def test_a_second_frame_of_zstd_that_is_damaged_is_seen_by_its_own_steps() -> None:
    first = body()[: position(100)]
    second = compress(Compression.ZSTD, body()[position(100) :])
    packed = compress(Compression.ZSTD, first) + garbled(second, 0.45)
    found = salvage(Compression.ZSTD, memoryview(packed), LIMIT)
    assert (len(found.plain) - len(first)) % 16_384 == 0
    assert body().startswith(found.plain)


@pytest.mark.parametrize("codec", PACKED)
def test_a_header_that_goes_on_behind_the_damage_is_not_broken(codec: Compression) -> None:
    value = random.Random(1).randbytes(300_000)
    fields = b"\0\0\0" + varint(-1) + varint(-1) + varint(1) + varint(1) + b"h"
    fields += varint(len(value)) + value
    packed = compress(codec, varint(len(fields)) + fields)
    assert not is_broken(codec, packed[:150_000], 1)


def test_a_frame_of_zstd_that_holds_nothing_is_skipped() -> None:
    nothing = b"\x53\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    one = compress(Compression.ZSTD, record(0))
    packed = memoryview(nothing + one + nothing + one[:-1])
    assert unpack(Compression.ZSTD, packed, 1, limit=LIMIT).startswith(record(0))
    assert not is_broken(Compression.ZSTD, nothing[:-1], 1)


@pytest.mark.parametrize(
    ("codec", "piece"),
    [
        (Compression.GZIP, compress(Compression.GZIP, b"x")),
        (Compression.SNAPPY, b"\0\0\0\3\1\0x"),
        (Compression.LZ4, b"\1\0\0\x80x"),
    ],
)
def test_of_very_many_pieces_the_first_are_looked_at(codec: Compression, piece: bytes) -> None:
    head = {Compression.SNAPPY: XERIAL_HEAD, Compression.LZ4: lz4.frame.compress(b"")[:7]}
    frame = head.get(codec, b"") + piece * 9_000 + b"\x7f\xff\xff\xff\xff\xff\xff\xff"
    assert len(salvage(codec, memoryview(frame), LIMIT).plain) <= 2 * PIECES_MAX


def test_very_many_frames_of_zstd_are_opened_at_once() -> None:
    packed = compress(Compression.ZSTD, b"x") * 9_000 + b"something else"
    assert salvage(Compression.ZSTD, memoryview(packed), LIMIT).plain == b"x" * 9_000


def test_what_is_announced_before_the_damage_is_not_believed() -> None:
    plain = b"".join(record(number) for number in range(30))
    packed = compress(Compression.GZIP, plain)[:-8] + bytes(8)
    assert not is_broken(Compression.GZIP, packed, 1 << 30)
