"""Model test of a move between log directories.

Appends, truncations, new epochs, DeleteRecords, retention and restarts change the log while the mover copies it.
Whenever the copy has caught up, both logs have the same records.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.replication.log_dir_moves import (
    CaughtUp,
    Copy,
    MoveStep,
    StartOver,
    Truncate,
    next_step,
)
from barnabas.storage.future_logs import follow_offsets, take_over
from barnabas.storage.log import Log
from tests.unit.storage import builders
from tests.unit.storage.builders import NOW_MS, append, contents, forgetful_disk, new_log, reopen

CONFIG = builders.settings(
    segment_bytes=700, index_interval_bytes=120, retention_bytes=1500, file_delete_delay_ms=0
)
STEPS_MAX = 500
sizes = st.lists(st.integers(0, 120), min_size=1, max_size=4)


class MoveModel(RuleBasedStateMachine):
    log: Log
    future: Log

    @initialize()
    def create(self) -> None:
        disk = forgetful_disk()
        self.log = new_log(disk, CONFIG, "/data/orders-0")
        self.future = new_log(disk, CONFIG, "/data/orders-0.0-future")
        self.moves = 0
        self.batches = 0
        self.epoch = 0
        self.ends = [0]

    # ---- changes of the log

    @rule(batch=sizes)
    def append(self, batch: list[int]) -> None:
        """No two records are equal, so that each record in a wrong place is noticed."""
        self.batches += 1
        append(self.log, *(b"%d " % self.batches + b"x" * size for size in batch), epoch=self.epoch)
        self.ends.append(self.log.log_end_offset)

    @rule(is_leader=st.booleans())
    def begin_epoch(self, is_leader: bool) -> None:
        """Another leader is elected. A follower learns of its epoch with its first batch."""
        self.epoch += 1
        if is_leader:
            self.log.begin_epoch(self.epoch)

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        """Follow a new leader that lacks the last batches. Its next batches are in a new epoch."""
        kept = [end for end in self.ends if self.log.watermark <= end <= self.log.log_end_offset]
        if kept:
            self.log.truncate_to(kept[int(part * (len(kept) - 1))], NOW_MS)
            self.epoch += 1

    @rule(part=st.floats(0, 1), batches=st.lists(sizes, min_size=1, max_size=6))
    def truncate_and_append(self, part: float, batches: list[list[int]]) -> None:
        """Truncate and write again before the mover notices: only the epochs show the difference."""
        self.truncate(part)
        for batch in batches:
            self.append(batch)

    @rule(ahead=st.integers(0, 50))
    def start_over(self, ahead: int) -> None:
        """Follow a leader whose log starts after the end of this one."""
        self.log.truncate_fully_and_start_at(self.log.log_end_offset + ahead, now_ms=NOW_MS)
        self.epoch += 1
        self.ends = [self.log.log_end_offset]

    @rule(part=st.floats(0, 1))
    def commit(self, part: float) -> None:
        ends = [end for end in self.ends if self.log.watermark <= end <= self.log.log_end_offset]
        if ends:
            self.log.high_watermark = ends[int(part * (len(ends) - 1))]

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        start = self.log.log_start_offset
        self.log.advance_log_start(start + int(part * (self.log.watermark - start)))

    @rule()
    def retain(self) -> None:
        self.log.delete_old_segments(NOW_MS)
        self.log.purge(NOW_MS)

    # ---- the mover

    @rule(count=st.integers(1, 5), max_bytes=st.integers(1, 2000))
    def move(self, count: int, max_bytes: int) -> None:
        for _ in range(count):
            self.do_step(max_bytes)

    def do_step(self, max_bytes: int) -> MoveStep:
        log, future = self.log, self.future
        step = next_step(log, future)
        match step:
            case Truncate(offset):
                assert offset < future.log_end_offset
                future.truncate_to(offset, NOW_MS)
            case StartOver(offset):
                future.truncate_fully_and_start_at(offset, now_ms=NOW_MS)
            case Copy(offset):
                (part,) = log.read(offset, max_bytes, log.log_end_offset).slices
                data = part.file.read(part.position, part.size)
                assert future.append_as_follower(memoryview(data), NOW_MS).size
                follow_offsets(future, log, NOW_MS)
            case CaughtUp():
                pass
        return step

    @rule()
    def restart(self) -> None:
        """Restart after a crash of the process. The log start offset is checkpointed from time to time."""
        self.future = reopen(self.future)
        self.future.high_watermark = self.log.watermark

    @rule()
    def restart_with_old_log_start(self) -> None:
        self.future = reopen(self.future, log_start_offset=self.future.segments.bases[0])

    @rule()
    def purge(self) -> None:
        self.future.purge(NOW_MS)

    @rule()
    def catch_up(self) -> None:
        for _ in range(STEPS_MAX):
            if self.do_step(1000) == CaughtUp():
                break
        else:
            raise AssertionError("the move does not end")
        assert self.future.log_end_offset == self.log.log_end_offset
        start = self.log.log_start_offset
        assert self.future.log_start_offset <= start
        assert contents(self.future, start) == contents(self.log)

    @rule()
    def replace(self) -> None:
        """The future log replaces the log, and the next move begins."""
        self.catch_up()
        expected = contents(self.log)
        old = self.log
        take_over(self.future, self.log)
        assert contents(self.future) == expected
        assert self.future.epochs.entries == old.epochs.entries
        self.log = self.future
        self.moves += 1
        self.future = new_log(old.disk, CONFIG, f"/data/orders-0.{self.moves}-future")

    @invariant()
    def offsets_are_ordered(self) -> None:
        future = self.future
        assert future.log_start_offset <= future.watermark <= future.log_end_offset


TestMoveModel = MoveModel.TestCase
TestMoveModel.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)
