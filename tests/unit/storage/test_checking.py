"""A flipped bit in a closed segment is found before its batch is sent to a client."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.batch.header import batch_headers
from barnabas.errors import CorruptBatch
from barnabas.storage import checking
from barnabas.storage.log import Log
from simulator.disk import ForgetfulDisk
from tests.unit.storage.builders import (
    append,
    contents,
    forgetful_disk,
    new_log,
    reopen,
    settings,
)

CONFIG = settings(segment_bytes=2000, index_interval_bytes=200)
RECORDS = 60


def stopped_log(disk: ForgetfulDisk) -> Log:
    log = new_log(disk, CONFIG)
    for number in range(RECORDS):
        append(log, b"%d" % number * 20)
    log.close(clean=True)
    return log


def reopen_checked(log: Log) -> Log:
    again = reopen(log, clean=True, recovery_point=log.log_end_offset)
    again.high_watermark = again.log_end_offset
    return again


def read_checked(log: Log, offset: int) -> bytes:
    """Read as a fetch does: unchecked data is checked first."""
    while True:
        read = log.read(offset, 700, log.log_end_offset)
        if read.unchecked_segment is None:
            return b"".join(part.file.read(part.position, part.size) for part in read.slices)
        segment = read.unchecked_segment
        at = log.segments.index(segment)
        end_offset = (
            log.segments.bases[at + 1] if segment is not log.segments.active else log.log_end_offset
        )
        found = checking.verify_batches(
            log.disk, segment, read.slices[0].position, end_offset=end_offset, size=500
        )
        checking.record_check(segment, found)


def read_everything(log: Log) -> dict[int, bytes]:
    """Read every readable batch by offset. Corrupt batches are skipped."""
    found: dict[int, bytes] = {}
    offset = 0
    while offset < log.log_end_offset:
        try:
            data = read_checked(log, offset)
        except CorruptBatch:
            offset += 1
            continue
        following = offset + 1
        for position, header in batch_headers(data):
            found[header.base_offset] = data[position : position + header.size]
            following = max(following, header.next_offset)
        offset = following
    return found


def test_segments_are_checked_once_after_clean_start() -> None:
    log = reopen_checked(stopped_log(forgetful_disk()))
    assert all(segment.unchecked_to == segment.size for segment in log.segments)
    assert len(read_everything(log)) == RECORDS
    assert all(segment.unchecked_to == 0 for segment in log.segments)
    assert log.read(0, 700, RECORDS).unchecked_segment is None


def test_data_written_or_recovered_by_this_process_is_trusted() -> None:
    disk = forgetful_disk()
    log = new_log(disk, CONFIG)
    for number in range(RECORDS):
        append(log, b"%d" % number * 20)
    assert [log.read(offset, 700, RECORDS).unchecked_segment for offset in range(RECORDS)] == (
        [None] * RECORDS
    )
    again = reopen(log)
    assert all(segment.unchecked_to == 0 for segment in again.segments)
    later = reopen_checked(stopped_log(forgetful_disk()))
    append(later, b"new")
    assert later.read(RECORDS, 700, RECORDS + 1).unchecked_segment is None
    assert later.read(RECORDS - 1, 700, RECORDS + 1).unchecked_segment is later.segments.active


@pytest.mark.parametrize("seed", range(200))
def test_flipped_bit_is_never_sent(seed: int) -> None:
    random = Random(seed)
    disk = forgetful_disk()
    stopped = stopped_log(disk)
    before = read_everything(reopen_checked(stopped))
    segment = random.choice(stopped.segments[:-1])
    data = disk.file(segment.path + ".log").data
    bit = random.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    damaged = next(
        (position, header)
        for position, header in batch_headers(bytes(original_bytes(before, stopped, segment)))
        if position <= bit // 8 < position + header.size
    )
    found = read_everything(reopen_checked(stopped))
    for offset, batch in found.items():
        if offset == damaged[1].base_offset and bit // 8 - damaged[0] in range(12, 16):
            continue  # the checksum does not cover the leader epoch
        assert before.get(offset) == batch, f"bit {bit} of {segment.path}"
    missing = before.keys() - found.keys()
    assert len(missing) <= segment_batches(before, stopped, segment)
    others = {offset for offset in before if not in_segment(stopped, segment, offset)}
    assert others <= found.keys(), "the other segments are complete"


def in_segment(log: Log, segment: object, offset: int) -> bool:
    at = log.segments.index(segment)
    return log.segments.bases[at] <= offset < log.segments.bases[at + 1]


def original_bytes(before: dict[int, bytes], log: Log, segment: object) -> bytes:
    return b"".join(batch for o, batch in sorted(before.items()) if in_segment(log, segment, o))


def segment_batches(before: dict[int, bytes], log: Log, segment: object) -> int:
    return sum(in_segment(log, segment, offset) for offset in before)


def test_batches_around_a_corrupt_one_are_served() -> None:
    disk = forgetful_disk()
    stopped = stopped_log(disk)
    data = disk.file(stopped.segments[1].path + ".log").data
    position, header = list(batch_headers(bytes(data)))[3]
    data[position + 70] ^= 4
    log = reopen_checked(stopped)
    found = read_everything(log)
    assert found.keys() == set(range(RECORDS)) - {header.base_offset}
    with pytest.raises(CorruptBatch, match=f"at {position}"):
        read_checked(log, header.base_offset)


def test_truncation_forgets_known_faults() -> None:
    disk = forgetful_disk()
    stopped = stopped_log(disk)
    data = disk.file(stopped.segments[1].path + ".log").data
    position, header = list(batch_headers(bytes(data)))[3]
    data[position + 70] ^= 4
    log = reopen_checked(stopped)
    read_everything(log)
    assert log.segments[1].faults == (position,)
    log.truncate_to(header.base_offset)
    assert log.segments.active.faults == ()
    append(log, b"better")
    assert contents(log)[header.base_offset] == b"better"
    assert len(read_everything(log)) == header.base_offset + 1
