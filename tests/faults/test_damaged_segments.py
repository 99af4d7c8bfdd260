"""A bit flips on the disk while the broker is down: that batch is never sent, but all others are."""

from __future__ import annotations

from pathlib import Path

from barnabas.batch.header import batch_headers, crc_is_valid
from barnabas.batch.records import Record, build_batch
from barnabas.errors import ErrorCode
from barnabas.wire.messages.fetch import FetchResponse
from support.broker import BrokerProcess
from tests.compatibility.raw import Raw, fetch_request

TOPIC = "letters"
BATCHES = 60


def test_batch_with_flipped_bit_is_not_sent_and_logged_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with Raw(broker.bootstrap_servers) as raw:
            raw.create_topic(TOPIC, configs={"segment.bytes": "5000"})
            for number in range(BATCHES):
                raw.produce(TOPIC, build_batch([Record(0, -1, None, b"%d" % number * 200)]))
        broker.stop()
        second = sorted((broker.log_dir / f"{TOPIC}-0").glob("*.log"))[1]
        data = bytearray(second.read_bytes())
        position, damaged = list(batch_headers(data))[3]
        data[position + 200] ^= 8
        second.write_bytes(data)
        broker.start()
        with Raw(broker.bootstrap_servers) as raw:
            for offset in range(BATCHES):
                code, records = fetch(raw, offset)
                if offset == damaged.base_offset:
                    assert (code, records) == (ErrorCode.CORRUPT_MESSAGE, b"")
                else:
                    assert code == ErrorCode.NONE
                    assert next(batch_headers(records))[1].base_offset == offset
        errors = [line for line in broker.log().splitlines() if "damaged batch" in line]
        assert len(errors) == 1
        assert f"{second} at {position}" in errors[0]


def fetch(raw: Raw, offset: int) -> tuple[int, bytes]:
    answer = raw.ask(fetch_request(TOPIC, {0: offset}), FetchResponse, 12)
    (fetched,) = answer.responses[0].partitions
    records = bytes(fetched.records or b"")
    for position, header in batch_headers(records):
        assert crc_is_valid(memoryview(records), position, header)
    return fetched.error_code, records
