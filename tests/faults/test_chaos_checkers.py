"""The checks of the chaos tests detect the faults they look for."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from barnabas.batch.records import Record, build_batch
from tests.faults.chaos.forgetful_disk import ForgetfulDisk, lose_power
from tests.faults.chaos.ledger import UNKNOWN_OFFSET, Ledger
from tests.faults.chaos.replicas import differences, read_copy


@pytest.fixture
def ledger() -> Ledger:
    """A ledger with two values in one partition, acknowledged and read."""
    made = Ledger()
    made.begin("w", 1)
    for number in range(2):
        made.acknowledge("w", 0, number, offset=number, sent_at=number, acked_at=number + 0.5)
        made.see("reader", 0, number, b"w-0-%d" % number)
    return made


def test_correct_run_has_no_faults(ledger: Ledger) -> None:
    assert ledger.faults({0: [b"w-0-0", b"w-0-1"]}) == []


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        ([b"w-0-0"], "lost"),
        ([b"w-0-0", b"w-0-1", b"w-0-1"], "twice"),
        ([b"w-0-1", b"w-0-0"], "out of order"),
        ([b"w-0-0", b"w-0-1", b"w-0-2"], "never acknowledged"),
        ([b"x", b"w-0-0", b"w-0-1"], "acknowledged at 0@0, is at 1"),
    ],
)
def test_wrong_log_is_detected(ledger: Ledger, log: list[bytes], fault: str) -> None:
    assert any(fault in found for found in ledger.faults({0: log}))


def test_two_values_at_one_offset_are_detected(ledger: Ledger) -> None:
    ledger.see("reader", 0, 1, b"another")
    assert any("another" in found for found in ledger.faults({0: [b"w-0-0", b"w-0-1"]}))


def test_vanished_record_is_detected(ledger: Ledger) -> None:
    ledger.see("reader", 0, 2, b"taken back")
    assert any("missing" in found for found in ledger.faults({0: [b"w-0-0", b"w-0-1"]}))


def test_duplicate_batch_may_have_unknown_offset(ledger: Ledger) -> None:
    ledger.acknowledge("w", 0, 2, offset=UNKNOWN_OFFSET, sent_at=2, acked_at=3)
    assert ledger.faults({0: [b"w-0-0", b"w-0-1", b"w-0-2"]}) == []


def test_record_of_unknown_outcome_may_be_stored_once(ledger: Ledger) -> None:
    ledger.unknown.add(("w", 0, 2))
    both = [b"w-0-0", b"w-0-1"]
    assert ledger.faults({0: both}) == []
    assert ledger.faults({0: [*both, b"w-0-2"]}) == []
    assert any("twice" in found for found in ledger.faults({0: [*both, b"w-0-2", b"w-0-2"]}))


def test_recovery_time_counts_only_records_sent_later(ledger: Ledger) -> None:
    assert (
        ledger.seconds_until_writing_again("w", 0.25) == 1.25
    )  # the ack at 0.5 is for an older record
    assert ledger.seconds_until_writing_again("w", 2.0) is None
    assert ledger.longest_silence(0, 0.0, 4.0) == 2.5


def batch(offset: int, value: bytes, *, epoch: int) -> bytes:
    return build_batch(
        [Record(offset, 0, None, value)], base_offset=offset, partition_leader_epoch=epoch
    )


def write(directory: Path, *batches: bytes) -> Path:
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(b"".join(batches))
    return directory


def test_replicas_are_compared_up_to_high_watermark(
    tmp_path: Path,
) -> None:
    first, second = batch(0, b"a", epoch=1), batch(1, b"b", epoch=2)
    one = write(tmp_path / "one", first, second, batch(2, b"more", epoch=2))
    other = write(tmp_path / "other", first)
    (other / "00000000000000000001.log").write_bytes(second)
    copies = {1: read_copy(one, 2), 2: read_copy(other, 2)}
    assert differences(copies) == []
    assert copies[1].values == [b"a", b"b"]
    assert copies[1].epochs == [1, 2]
    assert differences({1: read_copy(one, 3), 2: read_copy(other, 3)})


def test_differing_bytes_and_decreasing_epochs_are_detected(tmp_path: Path) -> None:
    one = read_copy(write(tmp_path / "one", batch(0, b"a", epoch=1)), 1)
    other = write(tmp_path / "other", batch(0, b"a", epoch=2))
    assert differences({1: one, 2: read_copy(other, 1)}) == [
        "brokers 1 and 2 differ from byte 15 on"
    ]
    back = write(tmp_path / "back", batch(0, b"a", epoch=2), batch(1, b"b", epoch=1))
    assert any("go back" in fault for fault in read_copy(back, 2).faults)


def test_forgetful_disk_keeps_synced_data(
    tmp_path: Path,
) -> None:
    durable, unsynced = b"durable", b", and not"
    found = set()
    for seed in range(20):
        log_dir = tmp_path / f"{seed}"
        disk = ForgetfulDisk(log_dir)
        disk.make_directory(f"{log_dir}/t-0")
        file = disk.open(f"{log_dir}/t-0/0.log", create=True)
        file.append([durable])
        disk.sync_now([file], [str(log_dir), f"{log_dir}/t-0"])
        file.append([unsynced])
        disk.open(f"{log_dir}/t-0/1.log", create=True).append([b"not even by name"])
        disk.replace_bytes(f"{log_dir}/old", b"synced")
        disk.replace_bytes(f"{log_dir}/old", b"unsynced", sync=False)
        disk.close()
        lost = lose_power(log_dir, Random(seed))
        assert sorted(path.name for path in log_dir.rglob("*")) == ["0.log", "old", "t-0"]
        assert (log_dir / "old").read_bytes() == b"synced"
        kept = (log_dir / "t-0" / "0.log").read_bytes()
        assert lost == len(durable + unsynced + b"not even by name") - len(kept)
        found.add(kept)
    assert durable in found
    assert any(kept.startswith(durable + b",") for kept in found)
    assert all(kept.startswith(durable) for kept in found)
