"""Records that every client must carry. Each has a property that a careless broker or client would lose."""

from typing import NamedTuple

TIMESTAMP = 1_700_000_000_123

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Sample(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int = TIMESTAMP


SAMPLES = (
    Sample(b"key", b"value"),
    Sample(None, b"without a key"),
    Sample(b"a tombstone", None),
    Sample(b"", b""),
    Sample("schlüssel".encode(), bytes(range(256))),
    Sample(b"headers", b"v", (("trace", b"1"), ("trace", b"2"), ("empty", b""))),
    Sample(b"old", b"v", timestamp=1_000),
    Sample(b"compresses well", b"barnabas " * 500),
)

BIG_VALUE = (
    bytes(range(256)) * 4000
)  # 1 024 000 bytes; with its batch it stays below max.message.bytes
TOO_BIG_VALUE = bytes(1_100_000)
