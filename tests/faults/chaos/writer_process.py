"""One idempotent producer that writes until its standard input ends, and prints the result of each record.

python -m tests.faults.chaos.writer_process <kind> <servers> <topic> <partitions> <seconds>

A record that is not acknowledged within <seconds> counts as failed.

ack <partition> <number> <offset> <sent at> <acked at>
failed <partition> <number> <why>
unknown <partition> <number> <why>                       the record may have been stored, at most once
finished                                                 all records have been acknowledged
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from functools import partial
from typing import Protocol

from tests.faults.chaos.ledger import UNKNOWN_OFFSET, value_of

WRITE_INTERVAL_S = 0.02
REQUEST_MS = 1500
"""Request timeout: how long a paused broker can hold a request before the client retries elsewhere."""
DELIVERY_S = 120.0
ENDING_S = 60.0
BATCH_BYTES = 8000
"""Records collected while there was no leader must fit the small segments of the tests."""


class ProducerAdapter(Protocol):
    def write(self, partition: int, number: int, value: bytes, sent_at: float) -> None: ...

    def wait(self, stopping: threading.Event) -> None: ...

    def finish(self) -> None: ...


def print_ack(partition: int, number: int, offset: int | None, sent_at: float) -> None:
    offset = UNKNOWN_OFFSET if offset is None else offset
    print_line(f"ack {partition} {number} {offset} {sent_at:.6f} {time.monotonic():.6f}")


def print_failure(partition: int, number: int, why: object) -> None:
    print_line(f"failed {partition} {number} {why}".replace("\n", " "))


def print_unknown(partition: int, number: int, why: object) -> None:
    print_line(f"unknown {partition} {number} {why}".replace("\n", " "))


def print_line(line: str) -> None:
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
        on_delivery = partial(self.on_delivery, partition, number, sent_at)
        self.producer.produce(self.topic, value, partition=partition, on_delivery=on_delivery)

    def on_delivery(
        self, partition: int, number: int, sent_at: float, error: object, message: object
    ) -> None:
        if error is not None:
            print_failure(partition, number, error)
        else:
            print_ack(partition, number, message.offset(), sent_at)  # type: ignore[attr-defined]

    def wait(self, stopping: threading.Event) -> None:
        """Poll; delivery callbacks run here."""
        until = time.monotonic() + WRITE_INTERVAL_S
        while (left := until - time.monotonic()) > 0:
            self.producer.poll(left)

    def finish(self) -> None:
        assert self.producer.flush(ENDING_S) == 0, "not all records were acknowledged in time"


class RdkafkaInOrder(Rdkafka):
    """Sends one request at a time, for overlapping faults.

    With several requests in flight, librdkafka is not exactly-once when a broker has too few in-sync replicas or
    restarts. If one request is rejected and the next is out of order, it raises its epoch and resends records that may
    have been written. A restarted broker remembers only the last batch of a producer, as in Kafka. An earlier batch
    that is resent is out of order, which is fatal.
    """

    in_flight_max = 1


class KafkaPython:
    """Sends one record at a time per partition: kafka-python requeues failed batches in the wrong order."""

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
        future.add_callback(partial(self.on_delivery, partition, number, sent_at))
        future.add_errback(partial(print_failure, partition, number))

    def on_delivery(self, partition: int, number: int, sent_at: float, metadata: object) -> None:
        print_ack(partition, number, metadata.offset, sent_at)  # type: ignore[attr-defined]

    def wait(self, stopping: threading.Event) -> None:
        self.producer.flush(timeout=self.delivery_s)
        stopping.wait(WRITE_INTERVAL_S)

    def finish(self) -> None:
        self.producer.close(timeout=ENDING_S)


class Barnabas:
    """Blocks until all pending records are acknowledged. After an error it continues with a new producer id."""

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
                print_ack(sent.partition.partition, number, sent.base_offset, sent_at)
        except ApiError as error:
            self.give_up(error)
        stopping.wait(WRITE_INTERVAL_S)

    def give_up(self, why: object) -> None:
        for partition, (number, _, _) in self.gathered.items():
            print_unknown(partition, number, why)
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
    writing: ProducerAdapter = KINDS[kind](servers, topic, float(delivery_s))
    number = 0
    while not stopping.is_set():
        for partition in range(int(partitions)):
            writing.write(partition, number, value_of(kind, partition, number), time.monotonic())
        number += 1
        writing.wait(stopping)
    writing.finish()
    print_line("finished")


if __name__ == "__main__":
    main()
