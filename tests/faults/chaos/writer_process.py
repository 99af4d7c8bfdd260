"""One idempotent producer that writes until its input ends, and says what it is told.

python -m tests.faults.chaos.writer_process <kind> <servers> <topic> <partitions> <seconds>

A record that is not acknowledged within <seconds> has failed.

ack <partition> <number> <offset> <sent at> <told at>
failed <partition> <number> <why>
unknown <partition> <number> <why>                       it may have been written, once
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
DELIVERY_S = 120.0
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


def unknown(partition: int, number: int, why: object) -> None:
    say(f"unknown {partition} {number} {why}".replace("\n", " "))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Rdkafka:
    in_flight_max = 5

    def __init__(self, servers: str, topic: str, delivery_s: float) -> None:
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
                "message.timeout.ms": int(delivery_s * 1000),
                "max.in.flight.requests.per.connection": self.in_flight_max,
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


class RdkafkaInOrder(Rdkafka):
    """One request at a time, for faults that overlap.

    With several in flight librdkafka does not keep its promise when a broker has too few replicas in sync, or restarts.
    If one request is refused and the next one is out of order, it raises its epoch and sends again what may have been
    written. If a broker has restarted, it remembers the last batch of a producer only, as in Kafka: an earlier one that
    is sent again is out of order, which is fatal.
    """

    in_flight_max = 1


class KafkaPython:
    """One record at a time in each partition: it puts batches that failed together back in the wrong order."""

    def __init__(self, servers: str, topic: str, delivery_s: float) -> None:
        from kafka import KafkaProducer

        self.topic = topic
        self.delivery_s = delivery_s
        self.producer = KafkaProducer(
            bootstrap_servers=servers.split(","),
            enable_idempotence=True,
            acks="all",
            linger_ms=2,
            request_timeout_ms=REQUEST_MS,
            delivery_timeout_ms=int(delivery_s * 1000),
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
        self.producer.flush(timeout=self.delivery_s)
        stopping.wait(WRITTEN_EVERY_S)

    def finish(self) -> None:
        self.producer.close(timeout=ENDING_S)


class Barnabas:
    """Blocks until all that was gathered is acknowledged. After an error it goes on with a new producer id."""

    def __init__(self, servers: str, topic: str, delivery_s: float) -> None:
        self.servers = servers
        self.topic = topic
        self.gathered: dict[int, tuple[int, bytes, float]] = {}
        self.connect()

    def connect(self) -> None:
        from barnabas.client.cluster import Cluster
        from barnabas.client.producer import Producer

        self.producer = Producer(Cluster(self.servers), idempotent=True)

    def write(self, partition: int, number: int, value: bytes, sent_at: float) -> None:
        self.gathered[partition] = number, value, sent_at

    def wait(self, stopping: threading.Event) -> None:
        from barnabas.errors import ApiError

        try:
            for partition, (_, value, _) in self.gathered.items():
                self.producer.send(self.topic, value, partition=partition)
            for sent in self.producer.flush():
                number, _, sent_at = self.gathered.pop(sent.partition.partition)
                acknowledged(sent.partition.partition, number, sent.base_offset, sent_at)
        except ApiError as error:
            self.give_up(error)
        stopping.wait(WRITTEN_EVERY_S)

    def give_up(self, why: object) -> None:
        for partition, (number, _, _) in self.gathered.items():
            unknown(partition, number, why)
        self.gathered.clear()
        self.producer.cluster.close()
        self.connect()

    def finish(self) -> None:
        self.producer.cluster.close()


KINDS: dict[str, type[Rdkafka | KafkaPython | Barnabas]] = {
    "rdkafka": Rdkafka,
    "rdkafka-in-order": RdkafkaInOrder,
    "kafka-python": KafkaPython,
    "barnabas": Barnabas,
}


def main() -> None:
    kind, servers, topic, partitions, delivery_s = sys.argv[1:]
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    stopping = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=listen, daemon=True).start()
    writing: Writing = KINDS[kind](servers, topic, float(delivery_s))
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
