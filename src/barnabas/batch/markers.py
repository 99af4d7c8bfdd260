"""Transaction markers: control batches with one record, by which a transaction coordinator ends a transaction.

key     int16 version 0, int16 type: 0 abort, 1 commit
value   int16 version 0, int32 coordinator epoch
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from barnabas.batch.records import Record, build_batch, records

KEY: Final = Struct(">hh")
VALUE: Final = Struct(">hi")
VERSION: Final = 0
ABORT: Final = 0
COMMIT: Final = 1


class Marker(NamedTuple):
    is_commit: bool
    coordinator_epoch: int


def build_marker(
    *, producer_id: int, producer_epoch: int, marker: Marker, timestamp: int
) -> bytearray:
    """Return a batch with this marker. The leader assigns its offset."""
    key = KEY.pack(VERSION, COMMIT if marker.is_commit else ABORT)
    value = VALUE.pack(VERSION, marker.coordinator_epoch)
    return bytearray(
        build_batch(
            [Record(0, timestamp, key, value)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=True,
            is_control=True,
        )
    )


def read_marker(batch: memoryview) -> Marker | None:
    """Return the marker in a control batch. None if compaction removed it, or if it is another control record."""
    for record in records(batch):
        key, value = record.key or b"", record.value or b""
        if len(key) >= KEY.size and len(value) >= VALUE.size:
            kind = KEY.unpack_from(key)[1]
            if kind in (ABORT, COMMIT):
                return Marker(kind == COMMIT, VALUE.unpack_from(value)[1])
    return None
