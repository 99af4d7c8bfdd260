"""The decoder alone: raw batches to Arrow in one thread. This is the upper limit for a Spark task on one core.

The benchmark measures CPU time, because wall-clock time includes other load. It reports the best of several runs,
because other load can only slow the decoder down.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.batch.compression import Compression
from barnabas.batch.records import Record, build_batch
from barnabas.spark.arrow_records import decode_batches
from barnabas.spark.ranges import COLUMNS
from benchmarks.loads import KB, MB, format_size

FETCH_BYTES = 4 * MB
NOW = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Shape of the data. With `varies`, record sizes range from half to one and a half of `record_bytes`."""

    record_bytes: int
    batch_bytes: int
    varies: bool = False
    has_headers: bool = False
    codec: Compression = Compression.NONE

    def __str__(self) -> str:
        extra = [
            "of varying size" if self.varies else "",
            "with headers" if self.has_headers else "",
            self.codec.name.lower() if self.codec else "",
        ]
        words = [f"{format_size(self.record_bytes)} in {format_size(self.batch_bytes)}", *extra]
        return ", ".join(word for word in words if word)


SHAPES = (
    *(Shape(record_bytes=size, batch_bytes=batch) for size in (100, KB) for batch in (16 * KB, MB)),
    *(Shape(record_bytes=size, batch_bytes=16 * KB, varies=True) for size in (100, KB)),
    Shape(record_bytes=100, batch_bytes=16 * KB, has_headers=True),
    *(
        Shape(record_bytes=100, batch_bytes=16 * KB, codec=codec)
        for codec in Compression
        if codec is not Compression.NONE
    ),
)


def build_fetch(shape: Shape) -> tuple[bytes, int]:
    """Return the data of one fetch and its number of records. Values are hex text, which codecs can compress."""
    chance = random.Random(1)
    headers = (("trace", b"0123456789abcdef"), ("retries", None)) if shape.has_headers else ()
    per_batch = max(1, shape.batch_bytes // (shape.record_bytes + 10))
    data, offset = bytearray(), 0
    plain_bytes = 0
    while plain_bytes < FETCH_BYTES:
        records = []
        for index in range(per_batch):
            half = shape.record_bytes // 2 if shape.varies else 0
            size = shape.record_bytes + chance.randint(-half, half)
            value = chance.randbytes(size // 2 + 1).hex().encode()[:size]
            records.append(
                Record(offset + index, NOW + offset // 50, b"%08d" % index, value, headers)
            )
            plain_bytes += size
        data += build_batch(records, base_offset=offset, compression=shape.codec)
        offset += per_batch
    return bytes(data), offset


def rate(shape: Shape, runs: int = 10) -> float:
    """Return records per CPU second."""
    data, count = build_fetch(shape)
    columns = COLUMNS if shape.has_headers else COLUMNS[:-1]
    best_s = float("inf")
    for _ in range(runs):
        began = time.process_time()
        decode_batches(data, topic="t", partition=0, start=0, end=count, columns=columns)
        best_s = min(best_s, time.process_time() - began)
    return count / best_s


def table() -> Iterator[str]:
    yield f"{'decoding alone, one core':40} million records/s"
    for shape in SHAPES:
        yield f"{shape!s:40} {rate(shape) / 1e6:8.2f}"
