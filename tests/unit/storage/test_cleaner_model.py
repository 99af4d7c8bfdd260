"""Random histories with repeated compaction and a power loss at every step.

A reader of the whole log sees the same last value of each key as without compaction.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.batch.compression import Compression
from barnabas.batch.header import BatchHeader, batch_headers
from barnabas.batch.records import Record, build_batch, records
from barnabas.storage.cleaner import Cleaning, Limits, Replacement, collect_facts, put_in_place
from barnabas.storage.compaction import find_cleanable
from barnabas.storage.log import Log
from barnabas.storage.recovery import open_log
from barnabas.world.ports import Disk
from simulator.disk import ForgetfulDisk
from tests.unit.storage.builders import NOW_MS, flush, new_log
from tests.unit.storage.builders import settings as topic

RETENTION_MS = 1000
CONFIG = topic(
    cleanup_policy=("compact",),
    segment_bytes=700,
    index_interval_bytes=100,
    delete_retention_ms=RETENTION_MS,
    file_delete_delay_ms=0,
)
Row = tuple[bytes, bytes | None]


class WatchedDisk(ForgetfulDisk):
    """Disk that calls `on_change` after every rename, removal and replacement: a crash makes a
    difference there.
    """

    def __init__(self) -> None:
        super().__init__(now_ms=lambda: NOW_MS)
        self.on_change: Callable[[], None] | None = None

    def notify_change(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.notify_change()

    def remove(self, path: str) -> None:
        existed = self.exists(path)
        super().remove(path)
        if existed:
            self.notify_change()

    def replace_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:
        super().replace_bytes(path, data, sync=sync)
        self.notify_change()


class CleanedLog:
    """One log, every record written to it, and the time at which a cleaning first kept each
    tombstone.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = NOW_MS
        self.disk = WatchedDisk()
        self.disk.make_directory("/data")
        self.disk.sync_now([], [""])
        self.log = new_log(self.disk, CONFIG)
        self.written: dict[int, Row] = {}
        self.tombstones: dict[int, int] = {}
        self.sequence = 0
        flush(self.log)

    def append(self, rows: list[Row], codec: Compression, producer: int) -> None:
        found = [Record(at, self.now_ms, key, value) for at, (key, value) in enumerate(rows)]
        data = build_batch(
            found,
            compression=codec,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=self.sequence if producer >= 0 else -1,
        )
        view = memoryview(bytearray(data))
        info = self.log.append_as_leader(
            view, BatchHeader(view), leader_epoch=0, now_ms=self.now_ms
        )
        if producer >= 0:
            self.sequence += len(rows)
        for at, row in enumerate(rows):
            self.written[info.first_offset + at] = row
        self.log.high_watermark = self.log.log_end_offset

    def clean(self, keys_max: int) -> None:
        log = self.log
        flush(log)
        found = find_cleanable(collect_facts(log), CONFIG, self.now_ms)
        limits = Limits(map_bytes=160 * keys_max, buffer_bytes=256)
        cleaning = Cleaning(log, found, limits, now_ms=self.now_ms)
        kept = {offset for offset, (_, value) in read_all(log).items() if value is None}
        self.disk.on_change = self.check_crashes
        for step in cleaning.steps():
            if isinstance(step, Replacement):
                for offset in kept:
                    if offset < cleaning.cleaned_to:
                        self.tombstones.setdefault(offset, self.now_ms)
                assert put_in_place(log, step, self.now_ms)
                self.check(log)
        log.cleaned_to = cleaning.cleaned_to
        log.purge(self.now_ms)
        self.disk.on_change = None
        self.check(log)
        assert not [name for name in self.disk.list(log.directory) if name.endswith("cleaned")]
        self.check_keys_before(found.first_dirty, log)

    def check(self, log: Log) -> None:
        found = read_all(log)
        assert log.log_end_offset == len(self.written)
        for offset, row in found.items():
            assert row == self.written[offset], "the record of an offset never changes"
        for key, (offset, value) in last_by_key(self.written).items():
            if value is not None or offset in found:
                assert found.get(offset) == (key, value)
            else:
                assert self.now_ms - self.tombstones[offset] >= RETENTION_MS, (
                    "a tombstone was removed too early"
                )
                assert all(row[0] != key for row in found.values()), "a deleted key reappeared"

    def check_keys_before(self, first_dirty: int, log: Log) -> None:
        """Check that the part that was clean before this round has one record per key."""
        seen = [row[0] for offset, row in read_all(log).items() if offset < first_dirty]
        assert len(seen) == len(set(seen))

    def check_crashes(self) -> None:
        for random in (None, Random(self.random.getrandbits(32))):
            self.check(reopen(self.disk.crash(random), self.log))

    def crash(self) -> None:
        flush(self.log)
        after = self.disk.crash(Random(self.random.getrandbits(32)))
        self.disk.root = after.root
        self.log = reopen(self.disk, self.log)
        self.log.high_watermark = self.log.log_end_offset
        self.check(self.log)


def reopen(disk: Disk, log: Log) -> Log:
    return open_log(
        disk,
        log.directory,
        CONFIG,
        was_clean_shutdown=False,
        recovery_point=log.recovery_point,
        log_start_offset=log.log_start_offset,
        cleaned_to=log.cleaned_to,
        now_ms=NOW_MS,
    )


def read_all(log: Log) -> dict[int, Row]:
    """Read as a consumer does, one fetch after the other."""
    found: dict[int, Row] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 400, log.log_end_offset, True)
        data = memoryview(b"".join(s.file.read(s.position, s.size) for s in read.slices))
        if not data:
            break
        following = offset
        for position, header in batch_headers(data):
            for record in records(data[position : position + header.size]):
                if record.offset >= offset:
                    assert record.key is not None
                    found[record.offset] = (record.key, record.value)
            following = header.next_offset
        assert following > offset
        offset = following
    return found


def last_by_key(rows: dict[int, Row]) -> dict[bytes, tuple[int, bytes | None]]:
    return {key: (offset, value) for offset, (key, value) in sorted(rows.items())}


KEYS = st.sampled_from([b"a", b"b", b"c", b"d" * 40, b"e"])
ROWS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=40)), min_size=1, max_size=6)
ACTIONS = st.one_of(
    st.tuples(st.just("append"), ROWS, st.sampled_from(Compression), st.sampled_from([-1, 7])),
    st.tuples(st.just("append"), ROWS, st.just(Compression.NONE), st.just(-1)),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.sampled_from([2, 100])),
    st.tuples(st.just("wait"), st.sampled_from([1, 500, 1000])),
    st.tuples(st.just("crash")),
)


@settings(max_examples=30)
@given(st.lists(ACTIONS, min_size=5, max_size=25), st.integers(0, 2**32))
def test_compaction_and_crashes_keep_last_value_of_each_key(
    actions: list[tuple[object, ...]], seed: int
) -> None:
    model = CleanedLog(seed)
    for action in actions:
        match action:
            case ("append", rows, codec, producer):
                model.append(rows, codec, producer)  # type: ignore[arg-type]
            case ("roll",):
                model.log.roll(model.now_ms)
            case ("clean", keys_max):
                model.clean(keys_max)  # type: ignore[arg-type]
            case ("wait", time_ms):
                model.now_ms += time_ms  # type: ignore[operator]
            case _:
                model.crash()
    model.log.roll(model.now_ms)
    model.clean(100)
    model.crash()
