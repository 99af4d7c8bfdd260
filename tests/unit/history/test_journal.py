from __future__ import annotations

import logging

import pytest

from barnabas.errors import StorageError
from barnabas.history import journal as journals
from barnabas.history.journal import DAY_MS, KEPT_MS, PREFIX, PUBLISHED_SUFFIX, Journal
from barnabas.history.recorder import EventLine
from barnabas.model import ControllerEpoch
from simulator.disk import ForgetfulDisk

PUBLISHED = PREFIX + PUBLISHED_SUFFIX

CHUNK = 1 << 20


class FakeClock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def disk(clock: FakeClock) -> ForgetfulDisk:
    disk = ForgetfulDisk(now_ms=clock.now_ms)
    disk.make_directory("/data")
    return disk


def open_journal(disk: ForgetfulDisk, clock: FakeClock) -> Journal:
    journal = Journal(disk, "/data", clock)
    journal.open()
    return journal


def change(epoch: int, sequence: int, size: int = 0) -> EventLine:
    line = f'{{"epoch":{epoch},"sequence":{sequence},"pad":"{"x" * size}"}}'
    return EventLine(ControllerEpoch(epoch), sequence, line)


def files(disk: ForgetfulDisk) -> list[str]:
    return [name for name in disk.list("/data") if name != PUBLISHED]


def publish_all(journal: Journal, chunk_bytes: int = CHUNK) -> list[str]:
    """Publish everything that is not published yet, and return it."""
    lines = []
    while (chunk := journal.next_chunk(chunk_bytes)) is not None:
        lines += [line.decode() for line in chunk.lines]
        journal.advance(chunk.end)
    return lines


def test_line_is_in_the_file_when_append_returns(disk: ForgetfulDisk, clock: FakeClock) -> None:
    journal = open_journal(disk, clock)
    assert files(disk) == []
    journal.append([change(7, 1), change(7, 2)])
    (name,) = files(disk)
    assert name == "state-changes-0000000007-000000000001.jsonl"
    whole = f"{change(7, 1).line}\n{change(7, 2).line}\n"
    assert disk.read_bytes(f"/data/{name}").decode() == whole
    journal.append([change(8, 1)])
    assert files(disk) == [name]


def test_unpublished_lines_are_read_in_order_and_once(
    disk: ForgetfulDisk, clock: FakeClock
) -> None:
    journal = open_journal(disk, clock)
    journal.append([change(7, number) for number in range(1, 100)])
    journal.append([change(8, 1)])
    expected = [*(change(7, number).line for number in range(1, 100)), change(8, 1).line]
    assert publish_all(journal, chunk_bytes=200) == expected
    assert journal.next_chunk(CHUNK) is None
    journal.append([change(8, 2)])
    assert publish_all(journal) == [change(8, 2).line]


def test_next_run_resumes_at_the_published_position(disk: ForgetfulDisk, clock: FakeClock) -> None:
    first = open_journal(disk, clock)
    first.append([change(7, 1)])
    publish_all(first)
    first.append([change(7, 2)])
    first.close()
    second = open_journal(disk, clock)
    second.append([change(9, 1)])
    assert publish_all(second) == [change(7, 2).line, change(9, 1).line]
    assert publish_all(open_journal(disk, clock)) == []


def test_lost_position_publishes_everything_again(disk: ForgetfulDisk, clock: FakeClock) -> None:
    journal = open_journal(disk, clock)
    journal.append([change(7, 1)])
    publish_all(journal)
    disk.replace_bytes(f"/data/{PUBLISHED}", b"{")
    assert publish_all(open_journal(disk, clock)) == [change(7, 1).line]


def test_incomplete_line_is_not_published(disk: ForgetfulDisk, clock: FakeClock) -> None:
    journal = open_journal(disk, clock)
    journal.append([change(7, 1), change(7, 2)])
    (name,) = files(disk)
    file = disk.open(f"/data/{name}")
    file.truncate(file.size() - 5)
    later = open_journal(disk, clock)
    later.append([change(8, 1)])
    assert publish_all(later) == [change(7, 1).line, change(8, 1).line]


def test_line_longer_than_a_chunk_is_read_completely(disk: ForgetfulDisk, clock: FakeClock) -> None:
    journal = open_journal(disk, clock)
    journal.append([change(7, 1, size=1_000), change(7, 2)])
    assert publish_all(journal, chunk_bytes=100) == [
        change(7, 1, size=1_000).line,
        change(7, 2).line,
    ]


def test_new_file_starts_when_last_is_full_or_a_day_old(
    disk: ForgetfulDisk, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "FILE_BYTES", 1_000)
    journal = open_journal(disk, clock)
    journal.append([change(7, 1, size=1_000)])
    journal.append([change(7, 2)])
    assert len(files(disk)) == 2
    clock.ms += DAY_MS
    journal.append([change(7, 3)])
    assert len(files(disk)) == 3
    assert len(publish_all(journal)) == 3


def test_files_are_deleted_after_a_week(disk: ForgetfulDisk, clock: FakeClock) -> None:
    journal = open_journal(disk, clock)
    journal.append([change(7, 1)])
    clock.ms += KEPT_MS - 1
    journal.append([change(7, 2)])
    assert len(files(disk)) == 2
    clock.ms += DAY_MS
    journal.append([change(7, 3)])
    assert files(disk) == [
        "state-changes-0000000007-000000000002.jsonl",
        "state-changes-0000000007-000000000003.jsonl",
    ]
    assert publish_all(journal) == [change(7, 2).line, change(7, 3).line]


def test_oldest_files_are_deleted_beyond_the_limit(
    disk: ForgetfulDisk, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "FILE_BYTES", 1_000)
    journal = open_journal(disk, clock)
    journal.bytes_max = 5_000
    for number in range(1, 50):
        journal.append([change(7, number, size=1_000)])
    assert sum(disk.size(f"/data/{name}") for name in files(disk)) < 7_000
    assert publish_all(journal)[-1] == change(7, 49, size=1_000).line


def test_full_disk_is_logged_once_and_raises_nothing(
    disk: ForgetfulDisk, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    journal = open_journal(disk, clock)
    journal.append([change(7, 1)])
    disk.fails = "/data/state-changes"
    for number in range(2, 50):
        journal.append([change(7, number)])
    assert len(caplog.records) == 1
    assert "cannot write" in caplog.text
    disk.fails = None
    journal.append([change(7, 50)])
    assert "lost=48" in caplog.text
    assert publish_all(journal) == [change(7, 1).line, change(7, 50).line]


def test_unreadable_directory_raises_nothing(
    disk: ForgetfulDisk, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk.fails = "/data"
    journal = open_journal(disk, clock)
    assert caplog.records[0].levelno == logging.ERROR
    journal.append([change(7, 1)])
    disk.fails = None
    journal.append([change(7, 2)])
    assert publish_all(journal) == [change(7, 2).line]


def test_removed_file_is_skipped(disk: ForgetfulDisk, clock: FakeClock) -> None:
    journal = open_journal(disk, clock)
    journal.append([change(7, 1)])
    journal.close()
    later = open_journal(disk, clock)
    later.append([change(8, 1)])
    disk.remove(f"/data/{files(disk)[0]}")
    assert publish_all(later) == [change(8, 1).line]


def test_advance_raises_if_position_cannot_be_saved(disk: ForgetfulDisk, clock: FakeClock) -> None:
    journal = open_journal(disk, clock)
    journal.append([change(7, 1)])
    chunk = journal.next_chunk(CHUNK)
    assert chunk is not None
    disk.fails = f"/data/{PUBLISHED}"
    with pytest.raises(StorageError):
        journal.advance(chunk.end)
    assert journal.next_chunk(CHUNK) is None
