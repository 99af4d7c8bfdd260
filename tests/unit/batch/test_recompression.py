from __future__ import annotations

import pytest

from barnabas.batch.compression import Compression
from barnabas.batch.header import HEADER_SIZE, crc_is_valid, read_header
from barnabas.batch.recompression import recompress
from barnabas.batch.record_walk import walk_records
from barnabas.batch.records import Record, build_batch, records
from barnabas.errors import RemoteWireError

RECORDS = [
    Record(n, 1_700_000_000_000 + n, b"key", b"value %d" % n, (("a", b"b"),)) for n in range(50)
]


@pytest.mark.parametrize("source", Compression)
@pytest.mark.parametrize("target", Compression)
def test_recompressed_batch_keeps_records_and_producer(
    source: Compression, target: Compression
) -> None:
    batch = memoryview(
        bytearray(
            build_batch(
                RECORDS, compression=source, producer_id=7, producer_epoch=1, base_sequence=3
            )
        )
    )
    recompressed, header = recompress(batch, read_header(batch), target, None)
    assert header.compression == target
    assert header.size == len(recompressed)
    assert crc_is_valid(recompressed, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    assert list(records(recompressed)) == RECORDS


def recompressed_deltas(batch: bytes, count: int) -> list[int]:
    header = read_header(batch)._replace(count=count, last_offset_delta=count - 1)
    recompressed, _ = recompress(memoryview(batch), header, Compression.NONE, None)
    outlines = walk_records(recompressed[HEADER_SIZE:], count)
    return [outline.offset_delta for outline in outlines]


def test_wrong_offset_deltas_are_renumbered() -> None:
    odd = [record._replace(offset=record.offset * 3) for record in RECORDS]
    assert recompressed_deltas(build_batch(odd, compression=Compression.LZ4), 50) == list(range(50))


def test_wrong_record_count_is_not_recompressed() -> None:
    batch = build_batch(RECORDS, compression=Compression.LZ4)
    with pytest.raises(RemoteWireError):
        recompressed_deltas(batch, 51)
    with pytest.raises(RemoteWireError):
        recompressed_deltas(batch, 49)
