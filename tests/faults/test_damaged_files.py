"""A broker restarts on damaged auxiliary files or with another clock: records stay, and produce works."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.batch.header import batch_headers
from barnabas.batch.records import Record, build_batch
from barnabas.errors import ErrorCode
from barnabas.storage.checkpoints import decode_partition_metadata, encode_partition_metadata
from support.broker import BrokerProcess
from tests.compatibility.raw import Raw
from tests.faults import shifted_clock

TOPIC = "letters"
BATCHES = 60
EIGHT_DAYS_MS = 8 * 86_400_000
PRODUCER_ID = 4711
FETCH_SECONDS = 10.0


def huge_numbers(path: Path) -> None:
    if path.name.endswith("checkpoint"):
        data = path.read_bytes()
        path.write_bytes(re.sub(rb"( 0) \d+$", rb"\1 90000000000", data, flags=re.MULTILINE))


def sparse(path: Path) -> None:
    os.truncate(path, 8 << 30)


def binary(path: Path) -> None:
    path.write_bytes(bytes(at % 251 for at in range(1000)))


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("damage", [huge_numbers, sparse, binary])
def test_broker_restarts_on_damaged_auxiliary_files(
    tmp_path: Path, damage: Callable[[Path], None], clean: bool
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        write(broker)
        broker.stop()
        if not clean:
            (broker.log_dir / ".kafka_cleanshutdown").unlink()
        log_start = broker.log_dir / "log-start-offset-checkpoint"
        log_start.write_bytes(b"0\n1\n%s 0 0\n" % TOPIC.encode())
        for path in auxiliary_files(broker.log_dir):
            damage(path)
        broker.start()
        with Raw(broker.bootstrap_servers) as raw:
            begun = time.monotonic()
            assert_all_records_are_readable(raw)
            assert time.monotonic() - begun < FETCH_SECONDS
            answer = raw.produce(TOPIC, idempotent(BATCHES - 1))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, BATCHES - 1)
            answer = raw.produce(TOPIC, idempotent(BATCHES))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, BATCHES)
        assert "WARNING" in broker.log()
        assert "Traceback" not in broker.log()


def auxiliary_files(directory: Path) -> list[Path]:
    """All files except the segments and the files that identify the owner of the directory and partition."""
    kept = {".lock", ".kafka_cleanshutdown", "meta.properties"}
    return [
        path
        for path in directory.rglob("*")
        if path.is_file() and path.suffix not in (".log", ".jsonl") and path.name not in kept
    ]


def test_damaged_topic_id_does_not_make_partition_stray(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        write(broker)
        broker.stop()
        path = broker.log_dir / f"{TOPIC}-0" / "partition.metadata"
        good = path.read_bytes()
        topic_id = decode_partition_metadata(good)
        assert topic_id is not None
        path.write_bytes(encode_partition_metadata(UUID(int=topic_id.int ^ 1 << 90)))
        broker.start()
        with Raw(broker.bootstrap_servers) as raw:
            assert_all_records_are_readable(raw)
        assert path.read_bytes() == good


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_retries_are_deduplicated_with_clock_eight_days_off(tmp_path: Path, clean: bool) -> None:
    with BrokerProcess(tmp_path / "data", {"log.retention.ms": "-1"}) as broker:
        twenty = build_batch(
            [Record(at, now_ms(), None, b"%d" % at) for at in range(20)],
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=0,
        )
        with Raw(broker.bootstrap_servers) as raw:
            raw.create_topic(TOPIC)
            assert raw.produce(TOPIC, twenty).base_offset == 0
        for shift_ms in (EIGHT_DAYS_MS, -EIGHT_DAYS_MS, 0):
            if clean:
                broker.stop()
            else:
                broker.kill()
            script = str(Path(shifted_clock.__file__))
            broker.command = [sys.executable, script, str(shift_ms)]
            broker.start()
            with Raw(broker.bootstrap_servers) as raw:
                answer = raw.produce(TOPIC, twenty)
                assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
                assert raw.list_offset(TOPIC, -1).offset == 20


# ---- records ----------------------------------------------------------------------------------------------------


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def idempotent(number: int) -> bytes:
    return build_batch(
        [Record(0, now_ms(), None, b"%d" % number * 200)],
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=number,
    )


def write(broker: BrokerProcess) -> None:
    with Raw(broker.bootstrap_servers) as raw:
        raw.create_topic(TOPIC, configs={"segment.bytes": "5000"})
        for number in range(BATCHES):
            assert raw.produce(TOPIC, idempotent(number)).base_offset == number


def assert_all_records_are_readable(raw: Raw) -> None:
    for offset in range(BATCHES):
        fetched = raw.fetch(TOPIC, offset)
        assert fetched.error_code == ErrorCode.NONE
        assert next(batch_headers(bytes(fetched.records or b"")))[1].base_offset == offset
