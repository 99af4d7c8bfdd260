"""Java's String.hashCode, by which Kafka maps groups to partitions of __consumer_offsets and partitions to fetchers."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

UTF_16_UNIT = Struct(">H")
CACHED_HASHES = 10_000


@lru_cache(CACHED_HASHES)
def java_string_hash(text: str) -> int:
    """Return the hash as a signed 32-bit integer."""
    value = 0
    for (unit,) in UTF_16_UNIT.iter_unpack(text.encode("utf-16-be", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value - 2**32 if value >= 2**31 else value
