from __future__ import annotations

import contextlib
import gzip
import tracemalloc

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.batch.compression import Compression, LimitExceeded, compress, decompress
from barnabas.errors import RemoteWireError

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
TEXT = b"one line of a log, much like the next one\n" * 5_000


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", [b"", b"a", TEXT, bytes(range(256)) * 700])
def test_compressed_data_round_trips(codec: Compression, data: bytes) -> None:
    compressed = compress(codec, data)
    assert decompress(codec, compressed, limit=1 << 20) == data
    assert decompress(codec, memoryview(compressed), limit=1 << 20) == data


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_compression_level_is_used(codec: Compression) -> None:
    assert decompress(codec, compress(codec, TEXT, level=3), limit=1 << 20) == TEXT


def test_raw_snappy_of_librdkafka_is_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Compression.SNAPPY, raw, limit=1 << 20) == TEXT


def test_lz4_frames_of_linked_blocks_are_read() -> None:
    linked = bytes(cramjam.lz4.compress(TEXT))
    assert decompress(Compression.LZ4, linked, limit=1 << 20) == TEXT


def test_our_lz4_blocks_are_independent_as_java_requires() -> None:
    flags = compress(Compression.LZ4, TEXT)[4]
    assert flags & 0x20


def test_zstd_without_content_size_is_read() -> None:
    stream = cramjam.zstd.Compressor()
    stream.compress(TEXT)
    assert decompress(Compression.ZSTD, bytes(stream.finish()), limit=1 << 20) == TEXT


def test_gzip_of_several_members_is_read() -> None:
    compressed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(Compression.GZIP, compressed, limit=100) == b"one two"


@pytest.mark.parametrize("codec", list(Compression))
def test_size_limit_is_exact(codec: Compression) -> None:
    compressed = compress(codec, TEXT)
    assert decompress(codec, compressed, limit=len(TEXT)) == TEXT
    with pytest.raises(RemoteWireError, match="more than"):
        decompress(codec, compressed, limit=len(TEXT) - 1)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_decompression_bomb_is_rejected_before_allocation(codec: Compression) -> None:
    bomb = compress(codec, bytes(100 << 20), level=9)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteWireError, match="more than"):
            decompress(codec, bomb, limit=1 << 30 if codec is Compression.ZSTD else 60 << 20)
        assert tracemalloc.get_traced_memory()[1] < 150 << 20
    finally:
        tracemalloc.stop()


def test_snappy_block_with_false_size_is_rejected() -> None:
    with pytest.raises(RemoteWireError):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"abc", limit=1 << 40)
    with pytest.raises(RemoteWireError, match="claim"):
        decompress(Compression.SNAPPY, b"\x80\x80\x80\x04" + b"abc", limit=1 << 40)
    with pytest.raises(RemoteWireError, match="claim") as caught:
        decompress(Compression.SNAPPY, b"\x80\x80\x80\x04" + b"abc", limit=1_000)
    assert not isinstance(caught.value, LimitExceeded)  # a false size, not an oversized block


@pytest.mark.parametrize("codec", CODECS)
def test_truncated_block_is_rejected(codec: Compression) -> None:
    compressed = compress(codec, TEXT)
    with pytest.raises(RemoteWireError):
        decompress(codec, compressed[:-3], limit=1 << 20)


@given(st.sampled_from(CODECS), st.binary(max_size=200))
@settings(max_examples=200)
def test_random_bytes_are_rejected_or_decompressed(codec: Compression, data: bytes) -> None:
    with contextlib.suppress(RemoteWireError):
        assert len(decompress(codec, data, limit=1 << 20)) <= 1 << 20


def test_trailing_bytes_after_gzip_and_lz4_are_ignored() -> None:
    for codec in (Compression.GZIP, Compression.LZ4):
        compressed = compress(codec, TEXT)
        for rest in (b"\0", b"not compressed at all", b"\x1f\x8b"):
            assert decompress(codec, compressed + rest, limit=1 << 20) == TEXT
    twice = compress(Compression.LZ4, TEXT) + compress(Compression.LZ4, b"more")
    assert decompress(Compression.LZ4, twice, limit=1 << 20) == TEXT


@pytest.mark.parametrize("checksum", [False, True])
def test_end_of_lz4_frame_is_found(checksum: bool) -> None:
    data = bytes(range(256)) * 2_000 + TEXT
    stream = cramjam.lz4.Compressor(content_checksum=checksum, block_linked=False)
    stream.compress(data)
    frame = bytes(stream.finish())
    assert decompress(Compression.LZ4, frame + frame, limit=1 << 20) == data
    assert decompress(Compression.LZ4, frame + b"\xff", limit=1 << 20) == data


def test_snappy_may_repeat_its_header_between_blocks() -> None:
    compressed = compress(Compression.SNAPPY, TEXT)
    assert decompress(Compression.SNAPPY, compressed + compressed, limit=1 << 20) == TEXT + TEXT
    assert decompress(Compression.SNAPPY, compressed + b"\0\0\0", limit=1 << 20) == TEXT


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD, Compression.SNAPPY])
def test_output_buffer_grows_as_needed(codec: Compression) -> None:
    data = bytes(5 << 20)
    assert decompress(codec, compress(codec, data), limit=1 << 25) == data
    assert decompress(codec, compress(codec, TEXT), limit=1 << 25) == TEXT
