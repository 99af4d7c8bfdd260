"""One idempotent producer that writes until its input ends, and says what it is told.

python -m tests.faults.chaos.writer_process rdkafka|kafka-python <servers> <topic> <partitions>

ack <partition> <number> <offset> <sent at> <told at>
failed <partition> <number> <why>
finished                                                 all that was sent has been acknowledged
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from functools import partial
from typing import Protocol

from tests.faults.chaos.ledger import UNKNOWN_OFFSET, value_of

WRITTEN_EVERY_S = 0.02
REQUEST_MS = 1500
"""How long a broker that stands still can keep a request: a client has to lose patience to go on elsewhere."""
DELIVERY_MS = 120_000
ENDING_S = 60.0
BATCH_BYTES = 8000
"""What came together while nobody led must fit the small segments of the tests."""


class Writing(Protocol):
    def write(self, partition: int, number: int, value: bytes, sent_at: float) -> None: ...

    def wait(self, stopping: threading.Event) -> None: ...

    def finish(self) -> None: ...


def acknowledged(partition: int, number: int, offset: int | None, sent_at: float) -> None:
    offset = UNKNOWN_OFFSET if offset is None else offset
    say(f"ack {partition} {number} {offset} {sent_at:.6f} {time.monotonic():.6f}")


def failed(partition: int, number: int, why: object) -> None:
    say(f"failed {partition} {number} {why}".replace("\n", " "))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Rdkafka:
    def __init__(self, servers: str, topic: str) -> None:
        from confluent_kafka import Producer

        self.topic = topic
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.size": BATCH_BYTES,
                "socket.timeout.ms": REQUEST_MS,
                "request.timeout.ms": REQUEST_MS,
                "socket.connection.setup.timeout.ms": REQUEST_MS,
                "message.timeout.ms": DELIVERY_MS,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 100,
            }
        )

    def write(self, partition: int, number: int, value: bytes, sent_at: float) -> None:
        told = partial(self.told, partition, number, sent_at)
        self.producer.produce(self.topic, value, partition=partition, on_delivery=told)

    def told(
        self, partition: int, number: int, sent_at: float, error: object, message: object
    ) -> None:
        if error is not None:
            failed(partition, number, error)
        else:
            acknowledged(partition, number, message.offset(), sent_at)  # type: ignore[attr-defined]

    def wait(self, stopping: threading.Event) -> None:
        """Deliveries are told in here."""
        until = time.monotonic() + WRITTEN_EVERY_S
        while (left := until - time.monotonic()) > 0:
            self.producer.poll(left)

    def finish(self) -> None:
        assert self.producer.flush(ENDING_S) == 0, "not all was acknowledged in time"


class KafkaPython:
    """One record at a time in each partition: it puts batches that failed together back in the wrong order."""

    def __init__(self, servers: str, topic: str) -> None:
        from kafka import KafkaProducer

        self.topic = topic
        self.producer = KafkaProducer(
            bootstrap_servers=servers.split(","),
            enable_idempotence=True,
            acks="all",
            linger_ms=2,
            request_timeout_ms=REQUEST_MS,
            delivery_timeout_ms=DELIVERY_MS,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            retry_backoff_ms=50,
        )

    def write(self, partition: int, number: int, value: bytes, sent_at: float) -> None:
        future = self.producer.send(self.topic, value, partition=partition)
        future.add_callback(partial(self.told, partition, number, sent_at))
        future.add_errback(partial(failed, partition, number))

    def told(self, partition: int, number: int, sent_at: float, metadata: object) -> None:
        acknowledged(partition, number, metadata.offset, sent_at)  # type: ignore[attr-defined]

    def wait(self, stopping: threading.Event) -> None:
        self.producer.flush(timeout=DELIVERY_MS / 1000)
        stopping.wait(WRITTEN_EVERY_S)

    def finish(self) -> None:
        self.producer.close(timeout=ENDING_S)


class Barnabas:
    """Blocks until all that was gathered is acknowledged; any error ends it."""

    def __init__(self, servers: str, topic: str) -> None:
        from barnabas.client.cluster import Cluster
        from barnabas.client.producer import Producer

        self.topic = topic
        self.producer = Producer(Cluster(servers), idempotent=True)
        self.gathered: dict[int, tuple[int, float]] = {}

    def write(self, partition: int, number: int, value: bytes, sent_at: float) -> None:
        self.producer.send(self.topic, value, partition=partition)
        self.gathered[partition] = number, sent_at

    def wait(self, stopping: threading.Event) -> None:
        for sent in self.producer.flush():
            number, sent_at = self.gathered[sent.partition.partition]
            acknowledged(sent.partition.partition, number, sent.base_offset, sent_at)
        stopping.wait(WRITTEN_EVERY_S)

    def finish(self) -> None:
        self.producer.cluster.close()


KINDS: dict[str, type[Rdkafka | KafkaPython | Barnabas]] = {
    "rdkafka": Rdkafka,
    "kafka-python": KafkaPython,
    "barnabas": Barnabas,
}


def main() -> None:
    kind, servers, topic, partitions = sys.argv[1:]
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    stopping = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=listen, daemon=True).start()
    writing: Writing = KINDS[kind](servers, topic)
    number = 0
    while not stopping.is_set():
        for partition in range(int(partitions)):
            writing.write(partition, number, value_of(kind, partition, number), time.monotonic())
        number += 1
        writing.wait(stopping)
    writing.finish()
    say("finished")


if __name__ == "__main__":
    main()
