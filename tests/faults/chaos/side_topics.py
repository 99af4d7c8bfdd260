"""Load besides the ledger's topic: a compacted topic, a topic with retention, and short-lived topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from barnabas.batch.header import batch_headers
from barnabas.batch.records import Record, records
from barnabas.client.admin import Admin, NewPartitions, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.errors import ApiError
from tests.faults.chaos.ledger import SHOWN_MAX
from tests.faults.chaos.readers import QUIET
from tests.faults.chaos.worker import Worker

COMPACTED, RETAINED = "compacted", "retained"
SETTINGS = {
    COMPACTED: {
        "cleanup.policy": "compact",
        "segment.bytes": "8192",
        "min.cleanable.dirty.ratio": "0.01",
        "min.insync.replicas": "2",
    },
    RETAINED: {
        "retention.bytes": "32768",
        "retention.ms": "-1",
        "segment.bytes": "8192",
        "min.insync.replicas": "2",
    },
}
KEYS = 20
WRITE_INTERVAL_S = 0.05
STORM_TOPICS = 12
STORM_PAUSE_S = 0.1


class SideWriter(Worker):
    """Writes to the compacted topic and to the one with retention, one partition each."""

    def __init__(self, servers: str, delivery_s: float) -> None:
        super().__init__("side-writer")
        self.offsets: dict[str, dict[int, int]] = {COMPACTED: {}, RETAINED: {}}
        """Offsets of a topic's acknowledged records, by number."""
        self.failed: list[str] = []
        self.number = 0
        """Number of the next record of each topic."""
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "acks": "all",
                # Default timeouts: a client that gave up early would hide a request that is never answered.
                "message.timeout.ms": int(delivery_s * 1000),
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
                "batch.size": 4000,
                # See writer_process.RdkafkaInOrder.
                "max.in.flight.requests.per.connection": 1,
                "error_cb": self.note_error,
            },
            logger=QUIET,
        )

    def note_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failed.append(f"fatal: {error}")

    def work(self) -> None:
        while not self.stopping.is_set():
            for topic in SETTINGS:
                self.write(topic, self.number)
            self.number += 1
            until = time.monotonic() + WRITE_INTERVAL_S
            while (left := until - time.monotonic()) > 0:
                self.producer.poll(left)
        left_over = self.producer.flush(60.0)
        if left_over:
            self.failed.append(f"{left_over} records were not acknowledged within 60 s")

    def has_written(self, number: int) -> bool:
        """Whether this record of both topics is acknowledged."""
        return all(number in offsets for offsets in self.offsets.values())

    def write(self, topic: str, number: int) -> None:
        def acknowledged(error: object, message: Message) -> None:
            if error is not None:
                self.failed.append(f"{topic} {number}: {error}")
            else:
                offset = message.offset()
                self.offsets[topic][number] = -1 if offset is None else offset

        with suppress(KafkaException):  # fatal errors are noted
            self.producer.produce(
                topic, b"%d" % number, key=key_of(number), partition=0, on_delivery=acknowledged
            )

    def faults(self, topic: str, directories: dict[int, Path], end: int) -> list[str]:
        """Faults in the copies of a topic, given its partition directory on each broker."""
        copies = {broker: read_records(path, end) for broker, path in directories.items()}
        check = compaction_faults if topic == COMPACTED else retention_faults
        found = [f"{topic}: {each}" for each in self.failed]
        for broker, copy in copies.items():
            found += [
                f"{topic} on broker {broker}: {each}" for each in check(self.offsets[topic], copy)
            ]
        return found[:SHOWN_MAX]


def key_of(number: int) -> bytes:
    return b"key-%d" % (number % KEYS)


def read_records(directory: Path, end: int) -> list[Record]:
    """Records below the high watermark, in log order."""
    return [each for each in records_in(directory) if each.offset < end]


def records_in(directory: Path) -> Iterator[Record]:
    for path in sorted(directory.glob("*.log")):
        data = memoryview(path.read_bytes())
        for at, header in batch_headers(data):
            yield from records(data[at : at + header.size])


def compaction_faults(offsets: dict[int, int], copy: list[Record]) -> list[str]:
    """The last acknowledged value of each key must be the last one in the log. Offsets must increase."""
    found = disorder(copy)
    latest = {bytes(each.key or b""): bytes(each.value or b"") for each in copy}
    wanted = {key_of(number): b"%d" % number for number in sorted(offsets)}
    return found + [
        f"the last value of {key!r} is {latest.get(key)!r}, acknowledged was {value!r}"
        for key, value in wanted.items()
        if latest.get(key) != value
    ]


def retention_faults(offsets: dict[int, int], copy: list[Record]) -> list[str]:
    """From its first record on, the log must hold each acknowledged record once, at its acknowledged offset."""
    found = disorder(copy)
    numbers = [int(bytes(each.value or b"")) for each in copy]
    if not numbers:
        return [*found, "the log is empty"] if offsets else found
    places = dict(zip(numbers, (each.offset for each in copy), strict=True))
    if len(places) != len(copy):
        found.append("duplicate records")
    if copy[-1].offset - copy[0].offset != len(copy) - 1:
        found.append(f"offsets between {copy[0].offset} and {copy[-1].offset} are missing")
    found += [
        f"lost: {number}, acknowledged at {offset}"
        for number, offset in offsets.items()
        if number > numbers[0] and number not in places
    ]
    return found + [
        f"acknowledged at {offset}, is at {places[number]}: {number}"
        for number, offset in offsets.items()
        if offset >= 0 and places.get(number, offset) != offset
    ]


def disorder(copy: list[Record]) -> list[str]:
    offsets = [each.offset for each in copy]
    return [] if offsets == sorted(set(offsets)) else ["offsets do not increase"]


class TopicStorm(Worker):
    """Creates, expands and deletes small topics all the time. Errors are expected while there are faults."""

    def __init__(self, servers: str, seed: int) -> None:
        super().__init__("topic-storm")
        self.servers = servers
        self.random = Random(f"{seed} topics")
        self.done = {"created": 0, "expanded": 0, "deleted": 0, "failed": 0}

    def work(self) -> None:
        while not self.stopping.wait(STORM_PAUSE_S):
            with suppress(ApiError), Cluster(self.servers, timeout_s=3.0) as client:
                while not self.stopping.wait(STORM_PAUSE_S):
                    self.change(Admin(client))

    def change(self, admin: Admin) -> None:
        name = f"storm-{self.random.randrange(STORM_TOPICS)}"
        what = self.random.choice(("created", "created", "expanded", "deleted"))
        count, replicas = self.random.randint(1, 3), self.random.randint(1, 3)
        try:
            if what == "created":
                topic = NewTopic(name=name, partitions=count, replication_factor=replicas)
                (outcome,) = admin.create_topics([topic])
            elif what == "expanded":
                (outcome,) = admin.create_partitions([NewPartitions(name=name, count=3 + count)])
            else:
                (outcome,) = admin.delete_topics([name])
        except ApiError:
            self.done["failed"] += 1
            raise
        self.done[what if outcome.error is None else "failed"] += 1
