from __future__ import annotations

import pytest

from barnabas.wire.compression import Compression
from barnabas.wire.recompress import recompress
from barnabas.wire.records import Record, build_batch, crc_is_valid, read_header, records

RECORDS = [
    Record(n, 1_700_000_000_000 + n, b"key", b"value %d" % n, (("a", b"b"),)) for n in range(50)
]


@pytest.mark.parametrize("source", Compression)
@pytest.mark.parametrize("target", Compression)
def test_a_batch_keeps_its_records_and_its_producer(
    source: Compression, target: Compression
) -> None:
    batch = memoryview(
        bytearray(
            build_batch(
                RECORDS, compression=source, producer_id=7, producer_epoch=1, base_sequence=3
            )
        )
    )
    packed, header = recompress(batch, read_header(batch), target, level=None, limit=1 << 20)
    assert header.compression == target
    assert header.size == len(packed)
    assert crc_is_valid(packed, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    assert list(records(packed)) == RECORDS
