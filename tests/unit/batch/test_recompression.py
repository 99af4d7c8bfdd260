from __future__ import annotations

import pytest

from barnabas.batch.compression import Compression
from barnabas.batch.header import HEADER_SIZE, BatchHeader, crc_is_valid
from barnabas.batch.reader import RecordReader
from barnabas.batch.recompression import recompress
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
    recompressed, header = recompress(batch, BatchHeader(batch), target, None)
    assert header.compression == target
    assert header.size == len(recompressed)
    assert crc_is_valid(recompressed, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    assert list(records(recompressed)) == RECORDS


def recompressed_deltas(batch: bytes, count: int) -> list[int]:
    header = BatchHeader(batch)
    header.count, header.last_offset_delta = count, count - 1
    recompressed, _ = recompress(memoryview(batch), header, Compression.NONE, None)
    reader = RecordReader(bytes(recompressed[HEADER_SIZE:]))
    deltas = []
    for _ in range(count):
        reader.read_next()
        deltas.append(reader.offset_delta)
    reader.require_end(count)
    return deltas


def test_wrong_offset_deltas_are_renumbered() -> None:
    odd = [record._replace(offset=record.offset * 3) for record in RECORDS]
    assert recompressed_deltas(build_batch(odd, compression=Compression.LZ4), 50) == list(range(50))


def test_wrong_record_count_is_not_recompressed() -> None:
    batch = build_batch(RECORDS, compression=Compression.LZ4)
    with pytest.raises(RemoteWireError):
        recompressed_deltas(batch, 51)
    with pytest.raises(RemoteWireError):
        recompressed_deltas(batch, 49)
