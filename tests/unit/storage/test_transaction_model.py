"""Random histories of transactions, with compaction, truncation, deletion and restarts.

A read_committed consumer sees each committed record, unless compaction has removed it, and no aborted one.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from barnabas.batch.header import BatchHeader, batch_headers
from barnabas.batch.records import Record, build_batch, records
from barnabas.storage.aborted_transactions import AbortedSearch
from barnabas.storage.cleaner import Cleaning, Limits, Replacement, collect_facts, put_in_place
from barnabas.storage.compaction import find_cleanable
from barnabas.storage.log import Log
from barnabas.storage.read_committed import aborted_in_read, find_aborted
from barnabas.storage.recovery import open_log
from barnabas.storage.transaction_index import SUFFIX, AbortedEntry
from tests.unit.storage.builders import (
    NOW_MS,
    append,
    end_transaction,
    flush,
    forgetful_disk,
    new_log,
    produce_in_transaction,
)
from tests.unit.storage.builders import settings as topic

RETENTION_MS = 1000
CONFIG = topic(
    cleanup_policy=("compact",),
    segment_bytes=600,
    index_interval_bytes=150,
    delete_retention_ms=RETENTION_MS,
    file_delete_delay_ms=0,
)
PRODUCERS = (1, 2, 3)
Row = tuple[bytes, bytes]


class TransactionModel:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = NOW_MS
        self.log = new_log(forgetful_disk(), CONFIG)
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.open: dict[int, dict[int, Row]] = {}
        """Records of open transactions by producer."""
        self.committed: dict[int, Row] = {}
        self.aborted: dict[int, Row] = {}

    def run(self, steps: int) -> None:
        actions = (
            *[self.append] * 8,
            *[self.end] * 5,
            *(self.clean, self.roll, self.restart, self.truncate),
        )
        for _ in range(steps):
            self.random.choice(actions)()
            self.log.high_watermark = self.log.log_end_offset
            self.check()

    def append(self) -> None:
        producer = self.random.choice((-1, *PRODUCERS))
        count, end = self.random.randrange(1, 4), self.log.log_end_offset
        rows = [(b"k%d" % self.random.randrange(6), b"%d" % (end + at)) for at in range(count)]
        data = build_batch(
            [Record(at, self.now_ms, *row) for at, row in enumerate(rows)],
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=self.sequences.get(producer, -1),
            is_transactional=producer >= 0,
        )
        view = memoryview(bytearray(data))
        self.log.append_as_leader(view, BatchHeader(view), leader_epoch=0, now_ms=self.now_ms)
        written = {end + at: row for at, row in enumerate(rows)}
        if producer >= 0:
            self.sequences[producer] += count
            self.open.setdefault(producer, {}).update(written)
        else:
            self.committed.update(written)

    def end(self) -> None:
        if self.open:
            producer = self.random.choice(sorted(self.open))
            commit = self.random.random() < 0.5
            end_transaction(self.log, commit=commit, producer=producer)
            (self.committed if commit else self.aborted).update(self.open.pop(producer))

    def clean(self) -> None:
        self.now_ms += self.random.choice((1, RETENTION_MS))
        keys_max = self.random.choice((2, 100))
        clean_log(self.log, self.now_ms, keys_max, self.check)

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def restart(self) -> None:
        clean = self.random.random() < 0.5
        log = self.log
        flush(log)
        log.close(clean=clean)
        self.log = open_log(
            log.disk,
            log.directory,
            CONFIG,
            was_clean_shutdown=clean,
            recovery_point=self.random.choice((0, log.recovery_point)),
            log_start_offset=log.log_start_offset,
            cleaned_to=log.cleaned_to,
            now_ms=self.now_ms,
        )
        self.follow_lost_sequences()

    def truncate(self) -> None:
        """Remove the last batch, unless it is cleaned, or a marker: the model forgets how it ended a transaction."""
        log = self.log
        end = log.log_end_offset
        data = read(log, end - 1, end)[0] if end > log.log_start_offset else memoryview(b"")
        for _, header in batch_headers(data):
            offset = header.base_offset
            if header.is_control or offset <= log.cleaned_to:
                return
            log.truncate_to(offset)
            if header.producer_id >= 0:
                self.sequences[header.producer_id] -= end - offset
            for rows in (self.committed, *self.open.values()):
                for removed in range(offset, end):
                    rows.pop(removed, None)
            self.open = {producer: rows for producer, rows in self.open.items() if rows}
            self.follow_lost_sequences()

    def follow_lost_sequences(self) -> None:
        """Continue at sequence 0 if the log knows a producer only by its marker.

        A cleaning keeps the last batch of a producer. If that batch is truncated and the snapshots are lost too, the
        log has no batch of the producer. In Kafka too, its client then gets OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        for producer_id in PRODUCERS if self.log.cleaned_to > 0 else ():
            producer = self.log.producers.by_id.get(producer_id)
            if producer is not None and producer.next_sequence == 0:
                self.sequences[producer_id] = 0

    def check(self) -> None:
        log = self.log
        firsts = [min(rows) for rows in self.open.values()]
        assert log.last_stable_offset == min((log.high_watermark, *firsts))
        ongoing = sorted((min(rows), producer) for producer, rows in self.open.items())
        assert list(log.producers.ongoing.items()) == ongoing
        found = read_committed_rows(log)
        for offset, row in found.items():
            assert self.committed.get(offset) == row, offset
        latest: dict[bytes, int] = {}
        for offset, (key, _) in sorted(self.committed.items()):
            if offset < log.last_stable_offset:
                latest[key] = offset
        assert set(latest.values()) <= set(found), "the last record of a key is missing"


def clean_log(log: Log, now_ms: int, keys_max: int, on_step: Callable[[], None]) -> None:
    flush(log)
    found = find_cleanable(collect_facts(log), CONFIG, now_ms)
    limits = Limits(map_bytes=160 * keys_max, buffer_bytes=256)
    cleaning = Cleaning(log, found, limits, now_ms=now_ms)
    for step in cleaning.steps():
        if isinstance(step, Replacement):
            assert put_in_place(log, step, now_ms)
            on_step()
    log.cleaned_to = cleaning.cleaned_to
    log.purge(now_ms)


def read(log: Log, offset: int, bound: int) -> tuple[memoryview, set[tuple[int, int]]]:
    found = log.read(offset, 400, bound, True)
    data = b"".join(each.file.read(each.position, each.size) for each in found.slices)
    aborted = aborted_in_read(log, offset, found)
    return memoryview(data), {(entry.producer_id, entry.first_offset) for entry in aborted}


def read_committed_rows(log: Log) -> dict[int, Row]:
    """Read up to the last stable offset. Skip aborted records as consumers do."""
    rows: dict[int, Row] = {}
    offset, bound = log.log_start_offset, log.last_stable_offset
    while offset < bound:
        data, aborted = read(log, offset, bound)
        skipped: set[int] = set()
        before = offset
        for position, header in batch_headers(data):
            skipped |= {producer for producer, first in aborted if first <= header.last_offset}
            aborted = {each for each in aborted if each[1] > header.last_offset}
            batch = data[position : position + header.size]
            if header.is_control:
                for record in records(batch):
                    if record.key == b"\0\0\0\0":
                        skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                for record in records(batch):
                    assert record.key is not None and record.value is not None
                    rows[record.offset] = (record.key, record.value)
            offset = header.next_offset
        if offset == before:
            break
    return rows


def test_cleaned_index_has_transactions_whose_batches_were_read() -> None:
    log = new_log(forgetful_disk(), CONFIG)
    produce_in_transaction(log, 0, b"a")
    end_transaction(log, commit=False)
    produce_in_transaction(log, 1, b"b")
    end_transaction(log, commit=True)
    entry = AbortedEntry(7, first_offset=0, last_offset=1, last_stable_offset=2)
    for at, expected in enumerate(([entry], [entry], [])):
        log.roll(NOW_MS)
        append(log, b"plain")
        log.high_watermark = log.log_end_offset
        assert find_aborted(log, 0, 10) == expected, at
        clean_log(log, NOW_MS, 100, lambda: None)
    kept = [header.base_offset for _, header in log.segments[0].headers()]
    assert kept[:3] == [1, 2, 3], "the markers have a delete horizon"


@pytest.mark.parametrize("seed", range(40))
def test_consumer_sees_only_committed_records(seed: int) -> None:
    TransactionModel(seed).run(80)


def test_cleaning_rebuilds_a_broken_transaction_index() -> None:
    disk = forgetful_disk()
    log = new_log(disk, CONFIG)
    produce_in_transaction(log, 0, b"a")
    log.roll(NOW_MS)
    end_transaction(log, commit=False)
    log.roll(NOW_MS)
    append(log, b"plain")
    log.high_watermark = log.log_end_offset
    flush(log)
    with_marker = log.segments[1]
    disk.replace_bytes(with_marker.path + SUFFIX, b"broken", sync=False)
    with_marker.aborted = None
    search = AbortedSearch(log.segments, log.log_end_offset)
    entry = AbortedEntry(7, first_offset=0, last_offset=1, last_stable_offset=2)
    assert search.find(disk, log.directory, 0, 10) == [entry]
    assert search.find(disk, log.directory, 2, 10) == []
    clean_log(log, NOW_MS, 100, lambda: None)
    assert read_committed_rows(log).keys() == {2}
