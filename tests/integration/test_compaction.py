"""A compacted topic on a real broker: it shrinks while running, and a kill keeps the last record of each key."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from barnabas.batch.header import batch_headers
from barnabas.batch.records import Record, records
from barnabas.errors import ErrorCode
from barnabas.wire.messages.fetch import FetchResponse
from support.broker import BrokerProcess
from support.waiting import eventually
from tests.compatibility.raw import Raw, fetch_request

TOPIC = "accounts"
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "0",
}
QUICK = {"log.cleaner.backoff.ms": "50"}
ACCOUNTS, ROUNDS = 50, 40


def read_all(raw: Raw) -> list[Record]:
    found: list[Record] = []
    offset = raw.list_offset(TOPIC, -2).offset
    while offset < raw.list_offset(TOPIC, -1).offset:
        answer = raw.ask(fetch_request(TOPIC, {0: offset}), FetchResponse, 12)
        (fetched,) = answer.responses[0].partitions
        assert fetched.error_code == ErrorCode.NONE
        data = memoryview(bytes(fetched.records or b""))
        for position, header in batch_headers(data):
            found += records(data[position : position + header.size])
            offset = header.next_offset
    return found


def test_compaction_keeps_last_record_of_each_key_after_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", QUICK) as broker:
        with Raw(broker.bootstrap_servers) as raw:
            raw.create_topic(TOPIC, configs=CONFIGS)
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            for number in range(ACCOUNTS * ROUNDS):
                key = f"account-{number % ACCOUNTS}"
                # Account 7 is deleted in the middle and not written again.
                is_closed = number % ACCOUNTS == 7 and number > ACCOUNTS * ROUNDS // 3
                if not is_closed or number < ACCOUNTS * ROUNDS // 3 + ACCOUNTS:
                    producer.produce(TOPIC, None if is_closed else f"{number}" * 20, key)
                if number % 20 == 0:
                    producer.flush()
            assert producer.flush(30) == 0
            eventually(lambda: len(read_all(raw)) < 6 * ACCOUNTS, "the log is compacted", 30)
            # Cleaning works segment by segment: the log is small before the cleaner logs its end.
            eventually(lambda: "cleaned partition=accounts-0" in broker.log(), "cleaned", 30)
            before = {record.key: record.value for record in read_all(raw)}
            assert len(before) >= ACCOUNTS - 1
            assert before.get(b"account-7") is None, "only a tombstone or nothing is left"
        broker.kill()
        broker.start()
        with Raw(broker.bootstrap_servers) as raw:
            after = {record.key: record.value for record in read_all(raw)}
            assert {k: v for k, v in after.items() if v} == {k: v for k, v in before.items() if v}
            offsets = [record.offset for record in read_all(raw)]
            assert offsets == sorted(set(offsets))
