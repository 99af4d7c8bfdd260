"""Letters for the castle, written with librdkafka and read with kafka-python: neither knows of Barnabas.

A letter says to whom it goes and when it was written, so that the letters to each person in each minute can be counted.
Which of them were acknowledged is remembered: those must be there in the end, each of them once.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from demo.quiet import QUIET

PEOPLE = ("Klamm", "Frieda", "Olga")
MINUTES = 3
BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEADLINE_SECONDS = 120

Key = tuple[str, str]  # to whom, in which minute


class Letters:
    """Those of one demo: what was sent, and what was acknowledged."""

    def __init__(self, servers: str, topic: str) -> None:
        self.topic = topic
        self.acknowledged: list[str] = []
        self.counts = Counter[Key]()
        self.choose = random.Random(1926)
        self.written = 0
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "reconnect.backoff.max.ms": 200,
                # New partitions are noticed at the next look.
                "topic.metadata.refresh.interval.ms": 1000,
            },
            logger=QUIET,
        )

    def write(self, count: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        """`meanwhile` is done when half of them are under way. Returns when all are acknowledged."""
        for number in range(count):
            if number == count // 2:
                meanwhile()
            self.write_one()
        if self.producer.flush(DEADLINE_SECONDS):
            sys.exit("letters were not acknowledged in time")

    def write_one(self) -> None:
        to = self.choose.choices(PEOPLE, weights=(5, 3, 2))[0]
        at = BEGAN + timedelta(seconds=self.choose.randrange(60 * MINUTES))
        letter = {"number": self.written, "to": to, "at": at.isoformat()}
        self.written += 1
        self.counts[to, at.strftime("%H:%M")] += 1
        while True:
            try:
                self.producer.produce(self.topic, json.dumps(letter), on_delivery=self.delivered)
                break
            except BufferError:
                self.producer.poll(0.1)
        self.producer.poll(0)

    def close(self) -> None:
        """A producer that lives asks for its topic by name now and then, and would bring back one that was deleted."""
        del self.producer

    def delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(message.value().decode())  # type: ignore[attr-defined]


def read_all(servers: str, topic: str) -> list[str]:
    """Every record of the topic, from its beginning to where it ends now."""
    return [record.value.decode() for record in records(servers, topic)]


def records(servers: str, topic: str) -> Iterator[ConsumerRecord]:
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    deadline = time.monotonic() + DEADLINE_SECONDS
    with contextlib.closing(consumer):
        partitions = [
            TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()
        ]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            if time.monotonic() > deadline:
                sys.exit(f"reading {topic} took too long")
            for batch in consumer.poll(timeout_ms=500).values():
                yield from batch
