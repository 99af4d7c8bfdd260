"""Power loss at any moment: flushed records survive, and no record appears that was never written."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.errors import OutOfSpace
from barnabas.storage.log import Log
from simulator.disk import ForgetfulDisk
from tests.unit.storage.builders import (
    NOW_MS,
    append,
    contents,
    flush,
    forgetful_disk,
    new_log,
    produce,
    reopen,
    settings,
)

CONFIG = settings(
    segment_bytes=600, index_interval_bytes=100, flush_messages=1, file_delete_delay_ms=0
)


class AcknowledgedRecords:
    """Records acknowledged to a producer, and the checks after a crash."""

    def __init__(self) -> None:
        self.written: dict[int, bytes | None] = {}
        self.flushed_to = 0
        self.start = 0

    def check(self, log: Log, seed: object) -> None:
        found = contents(log)
        for offset, value in self.written.items():
            if self.start <= offset < self.flushed_to and offset >= log.log_start_offset:
                assert found.get(offset) == value, f"seed {seed}: acknowledged {offset} is lost"
        assert log.log_end_offset >= self.flushed_to, f"seed {seed}"
        assert log.log_start_offset <= self.start, f"seed {seed}"
        for offset, value in found.items():
            assert self.written[offset] == value, f"seed {seed}: {offset} was never appended"
        assert list(found) == list(range(log.log_start_offset, log.log_end_offset)), (
            f"seed {seed}: gap in offsets"
        )


@pytest.mark.parametrize("seed", range(40))
def test_flushed_records_survive_crash_of_random_workload(seed: int) -> None:
    random = Random(seed)
    disk = forgetful_disk()
    log = new_log(disk, CONFIG)
    acknowledged = AcknowledgedRecords()
    flush(log)
    producer, sequence = 1, 0
    for _ in range(60):
        action = random.random()
        if action < 0.7:
            value = b"%d" % random.getrandbits(64) * random.randint(1, 6)
            if random.random() < 0.5:
                info = produce(log, sequence, value, producer=producer)
                sequence += 1
            else:
                info = append(log, value, epoch=max(0, log.epochs.latest))
            acknowledged.written[info.first_offset] = value
        elif action < 0.8:
            log.roll(NOW_MS)
        elif action < 0.85:
            log.assign_epoch(log.epochs.latest + 1, log.log_end_offset)
        elif action < 0.9 and log.log_end_offset:
            target = random.randint(acknowledged.flushed_to, log.log_end_offset)
            log.truncate_to(target)
            sequence = 0
            log.producers.by_id.clear()
            acknowledged.written = {
                o: v for o, v in acknowledged.written.items() if o < log.log_end_offset
            }
        elif action < 0.93:
            log.high_watermark = acknowledged.flushed_to
            if acknowledged.flushed_to > acknowledged.start:
                log.advance_log_start(random.randint(acknowledged.start, acknowledged.flushed_to))
                log.delete_old_segments(NOW_MS)
                acknowledged.start = log.log_start_offset
                log.purge(NOW_MS)
        if log.is_flush_due(NOW_MS) and random.random() < 0.7:
            flush(log)
            acknowledged.flushed_to = log.log_end_offset
        checkpointed = random.choice([0, log.recovery_point])
        for randomness in (None, Random(random.getrandbits(32))):
            after = disk.crash(randomness)
            again = reopen(
                log, disk=after, recovery_point=checkpointed, log_start_offset=acknowledged.start
            )
            acknowledged.check(again, seed)
            assert again.epochs.entries == sorted(again.epochs.entries)
        if random.random() < 0.1:
            disk = disk.crash(Random(random.getrandbits(32)))
            log = reopen(
                log, disk=disk, recovery_point=checkpointed, log_start_offset=acknowledged.start
            )
            acknowledged.written = {
                o: v for o, v in acknowledged.written.items() if o < log.log_end_offset
            }
            acknowledged.flushed_to = min(acknowledged.flushed_to, log.log_end_offset)
            producer, sequence = producer + 1, 0


@pytest.mark.parametrize("seed", range(10))
def test_flushed_retry_is_recognised_after_power_loss(seed: int) -> None:
    random = Random(seed)
    disk = forgetful_disk()
    log = new_log(disk, CONFIG)
    offsets = {}
    for sequence in range(30):
        offsets[sequence] = produce(log, sequence, b"%d" % sequence * 10).first_offset
        if random.random() < 0.5:
            flush(log)
            after = reopen(log, disk=disk.crash(Random(seed)), recovery_point=log.recovery_point)
            again = produce(after, sequence, b"%d" % sequence * 10)
            assert (again.is_duplicate, again.first_offset) == (True, offsets[sequence])


@pytest.mark.parametrize("seed", range(20))
def test_deleted_segments_reappear_without_gap_or_not_at_all(seed: int) -> None:
    disk = forgetful_disk()
    log = new_log(disk, CONFIG)
    written = {append(log, b"%d" % at * 50).first_offset: b"%d" % at * 50 for at in range(40)}
    flush(log)
    log.high_watermark = 40
    log.advance_log_start(30)
    assert log.delete_old_segments(NOW_MS) > 3
    log.purge(NOW_MS)
    again = reopen(log, disk=disk.crash(Random(seed)), log_start_offset=0)
    assert again.log_end_offset == 40, "flushed records are not removed as if after a gap"
    assert contents(again) == {o: v for o, v in written.items() if o >= again.log_start_offset}


@pytest.mark.parametrize("capacity", range(600, 4000, 113))
def test_flushed_records_survive_full_disk_and_power_loss(capacity: int) -> None:
    disk = forgetful_disk()
    log = new_log(disk, CONFIG)
    disk.capacity_bytes = capacity
    safe: dict[int, bytes] = {}
    for at in range(60):
        value = b"%d" % at * 20
        try:
            info = append(log, value)
        except OutOfSpace:
            continue
        flush(log)
        safe[info.first_offset] = value
    assert contents(log) == safe
    disk.capacity_bytes = None
    assert contents(reopen(log, disk=without_limit(disk.crash()))) == safe
    info = append(log, b"space again")
    assert info.first_offset == len(safe)
    log.close(clean=True)
    after = reopen(log, clean=True, disk=without_limit(disk.crash()))
    assert contents(after) == {**safe, info.first_offset: b"space again"}


def without_limit(disk: ForgetfulDisk) -> ForgetfulDisk:
    disk.capacity_bytes = None
    return disk
