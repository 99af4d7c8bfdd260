"""The power goes at any moment: what was flushed is there, nothing is there that was never written."""

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
    reopened,
    settings,
)

CONFIG = settings(
    segment_bytes=600, index_interval_bytes=100, flush_messages=1, file_delete_delay_ms=0
)


class Acknowledged:
    """What a producer was told, and what it may find after a crash."""

    def __init__(self) -> None:
        self.written: dict[int, bytes | None] = {}
        self.safe_below = 0
        self.start = 0

    def check(self, log: Log, seed: object) -> None:
        found = contents(log)
        for offset, value in self.written.items():
            if self.start <= offset < self.safe_below and offset >= log.log_start_offset:
                assert found.get(offset) == value, f"seed {seed}: acknowledged {offset} is lost"
        assert log.log_end_offset >= self.safe_below, f"seed {seed}"
        assert log.log_start_offset <= self.start, f"seed {seed}"
        for offset, value in found.items():
            assert self.written[offset] == value, f"seed {seed}: {offset} was never written"
        assert list(found) == list(range(log.log_start_offset, log.log_end_offset)), (
            f"seed {seed}: no holes"
        )


@pytest.mark.parametrize("seed", range(40))
def test_nothing_flushed_is_lost_at_any_point_of_a_random_workload(seed: int) -> None:
    random = Random(seed)
    disk = forgetful_disk()
    log = new_log(disk, CONFIG)
    told = Acknowledged()
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
            told.written[info.first_offset] = value
        elif action < 0.8:
            log.roll(NOW_MS)
        elif action < 0.85:
            log.assign_epoch(log.epochs.latest + 1, log.log_end_offset)
        elif action < 0.9 and log.log_end_offset:
            target = random.randint(told.safe_below, log.log_end_offset)
            log.truncate_to(target)
            sequence = 0
            log.producers.clear()
            told.written = {o: v for o, v in told.written.items() if o < log.log_end_offset}
        elif action < 0.93:
            log.high_watermark = told.safe_below
            if told.safe_below > told.start:
                log.advance_log_start(random.randint(told.start, told.safe_below))
                log.delete_old_segments(NOW_MS)
                told.start = log.log_start_offset
                log.purge(NOW_MS)
        if log.flush_due(NOW_MS) and random.random() < 0.7:
            flush(log)
            told.safe_below = log.log_end_offset
        checkpointed = random.choice([0, log.recovery_point])
        for torn in (None, Random(random.getrandbits(32))):
            after = disk.crash(torn)
            again = reopened(
                log, disk=after, recovery_point=checkpointed, log_start_offset=told.start
            )
            told.check(again, seed)
            assert again.epochs.entries == sorted(again.epochs.entries)
        if random.random() < 0.1:
            disk = disk.crash(Random(random.getrandbits(32)))
            log = reopened(log, disk=disk, recovery_point=checkpointed, log_start_offset=told.start)
            told.written = {o: v for o, v in told.written.items() if o < log.log_end_offset}
            told.safe_below = min(told.safe_below, log.log_end_offset)
            producer, sequence = producer + 1, 0


@pytest.mark.parametrize("seed", range(10))
def test_a_flushed_retry_is_recognised_after_the_power_went(seed: int) -> None:
    random = Random(seed)
    disk = forgetful_disk()
    log = new_log(disk, CONFIG)
    offsets = {}
    for sequence in range(30):
        offsets[sequence] = produce(log, sequence, b"%d" % sequence * 10).first_offset
        if random.random() < 0.5:
            flush(log)
            after = reopened(log, disk=disk.crash(Random(seed)), recovery_point=log.recovery_point)
            again = produce(after, sequence, b"%d" % sequence * 10)
            assert (again.duplicate, again.first_offset) == (True, offsets[sequence])


@pytest.mark.parametrize("seed", range(20))
def test_segments_that_were_deleted_come_back_without_a_hole_or_not_at_all(seed: int) -> None:
    disk = forgetful_disk()
    log = new_log(disk, CONFIG)
    written = {append(log, b"%d" % at * 50).first_offset: b"%d" % at * 50 for at in range(40)}
    flush(log)
    log.high_watermark = 40
    log.advance_log_start(30)
    assert log.delete_old_segments(NOW_MS) > 3
    log.purge(NOW_MS)
    again = reopened(log, disk=disk.crash(Random(seed)), log_start_offset=0)
    assert again.log_end_offset == 40, "what is flushed is not taken for what stands behind a hole"
    assert contents(again) == {o: v for o, v in written.items() if o >= again.log_start_offset}


@pytest.mark.parametrize("capacity", range(600, 4000, 113))
def test_a_disk_that_fills_up_anywhere_and_then_loses_power(capacity: int) -> None:
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
    assert contents(reopened(log, disk=unlimited(disk.crash()))) == safe
    info = append(log, b"space again")
    assert info.first_offset == len(safe)
    log.close(clean=True)
    after = reopened(log, clean=True, disk=unlimited(disk.crash()))
    assert contents(after) == {**safe, info.first_offset: b"space again"}


def unlimited(disk: ForgetfulDisk) -> ForgetfulDisk:
    disk.capacity_bytes = None
    return disk
