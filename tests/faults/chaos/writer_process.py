"""One idempotent producer that writes until its input ends, and says what it is told.

python -m tests.faults.chaos.writer_process rdkafka|kafka-python|barnabas <servers> <topic> <partitions> <seconds>

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
from typing import TYPE_CHECKING, Protocol

from tests.faults.chaos.ledger import UNKNOWN_OFFSET, value_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

WRITTEN_EVERY_S = 0.02
REQUEST_MS = 1500
"""How long a broker that stands still can keep a request: a client has to lose patience to go on elsewhere."""
DELIVERY_S = 120.0
ENDING_S = 60.0
POLL_S = 0.05
FATAL_S = 1.0
"""Within this time after a failure, the producer says whether it was fatal."""
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
    """After a fatal error it goes on with a new producer id.

    A broker that restarts remembers the last batch of a producer only, as in Kafka. An earlier one that is retried is
    then out of order, which librdkafka takes for fatal.
    """

    def __init__(self, servers: str, topic: str, delivery_s: float) -> None:
        self.topic = topic
        self.settings = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "batch.size": BATCH_BYTES,
            "socket.timeout.ms": REQUEST_MS,
            "request.timeout.ms": REQUEST_MS,
            "socket.connection.setup.timeout.ms": REQUEST_MS,
            "message.timeout.ms": int(delivery_s * 1000),
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            "topic.metadata.refresh.fast.interval.ms": 100,
            "error_cb": self.note_error,
        }
        self.connect()

    def connect(self) -> None:
        from confluent_kafka import Producer

        self.fatal: object | None = None
        self.outstanding: dict[tuple[int, int], object] = {}
        """What was sent and is not acknowledged, with the error it failed with, if it did."""
        self.first_failure_at: float | None = None
        self.producer = Producer(self.settings)

    def note_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.fatal = error

    def write(self, partition: int, number: int, value: bytes, sent_at: float) -> None:
        from confluent_kafka import KafkaException

        told = partial(self.told, partition, number, sent_at)
        self.outstanding[partition, number] = None
        try:
            self.producer.produce(self.topic, value, partition=partition, on_delivery=told)
        except KafkaException as error:
            self.told(partition, number, sent_at, error.args[0], None)

    def told(
        self, partition: int, number: int, sent_at: float, error: object, message: object
    ) -> None:
        if error is not None:
            self.outstanding[partition, number] = error
            self.first_failure_at = self.first_failure_at or time.monotonic()
        else:
            del self.outstanding[partition, number]
            acknowledged(partition, number, message.offset(), sent_at)  # type: ignore[attr-defined]

    def wait(self, stopping: threading.Event) -> None:
        """Deliveries are told in here."""
        self.poll(WRITTEN_EVERY_S)
        if self.fatal is not None or self.first_failure_at is not None:
            self.poll(FATAL_S)
            self.give_up()
            self.connect()

    def poll(self, seconds: float) -> None:
        from confluent_kafka import KafkaException

        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                self.producer.poll(left)
            except KafkaException as error:
                self.note_error(error.args[0])
                time.sleep(POLL_S)

    def give_up(self) -> None:
        """Without a fatal error of the producer, a record that failed has failed."""
        for (partition, number), error in self.outstanding.items():
            if self.fatal is not None:
                unknown(partition, number, self.fatal)
            elif error is not None:
                failed(partition, number, error)

    def finish(self) -> None:
        until = time.monotonic() + ENDING_S
        while self.outstanding and self.fatal is None and time.monotonic() < until:
            self.poll(POLL_S)
        if self.fatal is not None or self.first_failure_at is not None:
            self.give_up()
        else:
            assert not self.outstanding, "not all was acknowledged in time"


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
