"""Model test of a log against a dictionary of records.

After appends, rolls, truncations, retention and restarts, a reader sees exactly the records of the
dictionary.
"""

from __future__ import annotations

from contextlib import suppress

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.batch.header import batch_headers
from barnabas.errors import OutOfSpace
from barnabas.storage.log import Log
from tests.unit.storage import builders
from tests.unit.storage.builders import NOW_MS, append, contents, flush, forgetful_disk, new_log

CONFIG = builders.settings(
    segment_bytes=700, index_interval_bytes=120, retention_bytes=1500, file_delete_delay_ms=0
)
values = st.lists(st.binary(max_size=120), min_size=1, max_size=4)


class LogModel(RuleBasedStateMachine):
    log: Log

    @initialize()
    def create(self) -> None:
        self.disk = forgetful_disk()
        self.log = new_log(self.disk, CONFIG)
        self.records: dict[int, bytes] = {}
        self.batches: list[tuple[int, int]] = []
        self.times: dict[int, int] = {}
        self.clock = NOW_MS
        self.start = 0
        self.end = 0
        self.watermark = 0
        self.producer = 1
        self.sequence = 0
        self.last_produced: tuple[int, list[bytes], int] | None = None

    def record_batch(self, first: int, batch: list[bytes], timestamp: int) -> None:
        for at, value in enumerate(batch):
            self.records[first + at] = value
            self.times[first + at] = timestamp
        self.batches.append((first, first + len(batch)))
        self.end = first + len(batch)

    @rule(batch=values, step=st.integers(-50, 100))
    def append(self, batch: list[bytes], step: int) -> None:
        self.clock += step
        stamps = [self.clock] * len(batch)
        info = append(self.log, *batch, timestamps=stamps, epoch=max(0, self.log.epochs.latest))
        assert info.first_offset == self.end
        self.record_batch(self.end, batch, self.clock)

    @rule(batch=values)
    def produce(self, batch: list[bytes]) -> None:
        info = builders.produce(self.log, self.sequence, *batch, producer=self.producer)
        assert (info.is_duplicate, info.first_offset) == (False, self.end)
        self.last_produced = self.sequence, batch, info.first_offset
        self.sequence += len(batch)
        self.record_batch(self.end, batch, NOW_MS)

    @rule()
    def retry(self) -> None:
        """Send the last batch of the producer again. It is recognised while it is in the log."""
        if self.last_produced is not None and self.last_produced[2] >= self.start:
            sequence, batch, offset = self.last_produced
            info = builders.produce(self.log, sequence, *batch, producer=self.producer)
            assert (info.is_duplicate, info.first_offset) == (True, offset)

    @rule()
    def begin_epoch(self) -> None:
        self.log.assign_epoch(self.log.epochs.latest + 1, self.log.log_end_offset)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def flush(self) -> None:
        flush(self.log)
        assert self.log.recovery_point == self.end

    @rule(part=st.floats(0, 1))
    def advance_watermark(self, part: float) -> None:
        target = self.watermark + int(part * (self.end - self.watermark))
        # A high watermark is the end of a follower, so it lies between batches.
        target = max((e for _, e in self.batches if e <= target), default=self.watermark)
        self.watermark = max(self.watermark, target)
        self.log.high_watermark = self.watermark

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        target = self.start + int(part * (self.watermark - self.start))
        self.log.advance_log_start(target)
        self.forget_below(target)

    @rule()
    def retain(self) -> None:
        self.log.delete_old_segments(NOW_MS)
        assert self.log.log_start_offset >= self.start
        assert self.log.log_start_offset <= max(self.watermark, self.start)
        self.forget_below(self.log.log_start_offset)
        self.log.purge(NOW_MS)

    def forget_below(self, offset: int) -> None:
        self.start = max(self.start, offset)
        self.records = {o: v for o, v in self.records.items() if o >= self.start}
        self.times = {o: t for o, t in self.times.items() if o >= self.start}

    @rule(part=st.floats(0, 1), is_full=st.booleans())
    def truncate(self, part: float, is_full: bool) -> None:
        target = self.watermark + int(part * (self.end - self.watermark))
        target = max((e for _, e in self.batches if e <= target), default=self.watermark)
        target = max(target, self.start)
        self.disk.capacity_bytes = 0 if is_full else None
        with suppress(OutOfSpace):
            self.log.truncate_to(target)
        self.disk.capacity_bytes = None
        self.end = min(self.end, target)
        self.batches = [(first, end) for first, end in self.batches if end <= self.end]
        self.records = {o: v for o, v in self.records.items() if o < self.end}
        self.times = {o: t for o, t in self.times.items() if o < self.end}
        if self.last_produced is not None and self.last_produced[2] >= self.end:
            # The producer does not know the fate of its batch; a new producer continues.
            self.producer += 1
            self.last_produced, self.sequence = None, 0

    @rule(clean=st.booleans(), known=st.booleans())
    def restart(self, clean: bool, known: bool) -> None:
        self.log.close(clean=clean)
        point = self.log.recovery_point if known else 0
        self.log = builders.reopen(self.log, clean=clean, recovery_point=point)
        self.log.high_watermark = self.watermark

    @rule(offset=st.integers(0, 200), size=st.integers(0, 2000), whole=st.booleans())
    def read(self, offset: int, size: int, whole: bool) -> None:
        if not self.start <= offset <= self.end:
            return
        read = self.log.read(offset, size, self.watermark, whole)
        data = memoryview(b"".join(s.file.read(s.position, s.size) for s in read.slices))
        assert len(data) == read.size
        found = [header for _, header in batch_headers(data)]
        assert all(header.last_offset < self.watermark for header in found)
        if offset < self.watermark and whole:
            assert found, "at least one batch"
            assert found[0].base_offset <= offset <= found[0].last_offset
        if not whole:
            assert read.size <= size

    @invariant()
    def reader_sees_the_model(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.high_watermark == max(self.start, min(self.watermark, self.end))
        assert contents(log) == self.records
        assert log.size_bytes == sum(segment.size for segment in log.segments)
        assert log.segments.bases == sorted(log.segments.bases)
        epochs = log.epochs.entries
        assert epochs == sorted(epochs)

    @invariant()
    def producer_state_has_no_removed_batch(self) -> None:
        for producer in self.log.producers.by_id.values():
            assert all(batch.last_offset < self.end for batch in producer.batches)

    @invariant()
    def timestamps_are_found(self) -> None:
        for timestamp in {self.clock, NOW_MS, NOW_MS + 40}:
            expected = min((o for o, t in self.times.items() if t >= timestamp), default=None)
            found = self.log.offset_for_timestamp(timestamp)
            assert (found.offset if found else None) == expected


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow],
)
