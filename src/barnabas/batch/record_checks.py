"""Checks of every record in a batch against the header and the topic's settings.

The broker reads all records of a produced batch, as Kafka does, so that no consumer receives one that it cannot read.
"""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.batch.header import BatchHeader
from barnabas.batch.reader import RecordReader
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_TIMESTAMP

if TYPE_CHECKING:
    from mypy_extensions import i64

RECORDS_PER_STEP: Final = 10_000
"""After this many records the check lets other threads run. Compiled code holds the interpreter lock until then."""


class RecordRules(NamedTuple):
    """Requirements of a topic for each record. Timestamps in ms; a record without timestamp is always accepted."""

    needs_key: bool
    earliest_ms: int
    latest_ms: int


def check_order(body: bytes, count: int, *, ignores_lengths: bool) -> bool:
    """Return whether the offset deltas are 0, 1, 2, …. Raises RemoteWireError if `body` is not `count` records."""
    reader = RecordReader(body, ignores_lengths=ignores_lengths)
    is_ordered = True
    end: i64 = count
    index: i64 = 0
    while index < end:
        stop = min(index + RECORDS_PER_STEP, end)
        while index < stop:
            reader.read_next()
            if reader.offset_delta != index:
                is_ordered = False
            index += 1
        if index < end:
            sleep(0)
    reader.require_end(count)
    return is_ordered


def check_rules(
    body: bytes, header: BatchHeader, rules: RecordRules, *, ignores_lengths: bool
) -> bool:
    """Like check_order, but also raises ApiError for records that violate the rules of their topic."""
    reader = RecordReader(body, ignores_lengths=ignores_lengths)
    keyless: list[int] = []
    untimely: list[int] = []
    is_ordered = True
    for index in range(header.count):
        reader.read_next()
        timestamp = header.base_timestamp + int(reader.timestamp_delta)
        if rules.needs_key and reader.key_size < 0:
            keyless.append(index)
        elif timestamp != NO_TIMESTAMP and not rules.earliest_ms <= timestamp <= rules.latest_ms:
            untimely.append(index)
        elif reader.offset_delta != index:
            is_ordered = False
        if (index + 1) % RECORDS_PER_STEP == 0:
            sleep(0)
    reader.require_end(header.count)
    if untimely:
        why = f"a timestamp is not between {rules.earliest_ms} and {rules.latest_ms}"
        indexes = tuple(sorted((*untimely, *keyless)))
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, why, record_indexes=indexes)
    if keyless:
        why = "a compacted topic requires a key in each record"
        raise ApiError(ErrorCode.INVALID_RECORD, why, record_indexes=tuple(keyless))
    return is_ordered
