"""Letters: the records of the demo, produced with librdkafka and consumed with kafka-python.

Each letter has a recipient and a time, so that a pipeline can count letters per person and minute. The acknowledged
letters are kept for a comparison: the topic must contain each of them exactly once.
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

from demo.silent_log import SILENT_LOGGER

PEOPLE = ("Klamm", "Frieda", "Olga")
MINUTES = 3
BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEADLINE_SECONDS = 120

Key = tuple[str, str]  # recipient and minute


class Letters:
    """Producer of letters. Keeps the acknowledged letters and the expected counts."""

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
                # New partitions are discovered with the next refresh.
                "topic.metadata.refresh.interval.ms": 1000,
            },
            logger=SILENT_LOGGER,
        )

    def produce(self, count: int, halfway: Callable[[], object] = lambda: None) -> None:
        """Produce letters and call `halfway` after half of them. Returns when all are acknowledged."""
        for number in range(count):
            if number == count // 2:
                halfway()
            self.produce_one()
        if left := self.producer.flush(DEADLINE_SECONDS):
            sys.exit(f"{left} letters were not acknowledged within {DEADLINE_SECONDS} s")

    def produce_one(self) -> None:
        to = self.choose.choices(PEOPLE, weights=(5, 3, 2))[0]
        at = BEGAN + timedelta(seconds=self.choose.randrange(60 * MINUTES))
        letter = {"number": self.written, "to": to, "at": at.isoformat()}
        self.written += 1
        self.counts[to, at.strftime("%H:%M")] += 1
        while True:
            try:
                self.producer.produce(self.topic, json.dumps(letter), on_delivery=self.on_delivery)
                break
            except BufferError:
                self.producer.poll(0.1)
        self.producer.poll(0)

    def close(self) -> None:
        """Destroy the producer: its metadata requests would create the topic again after it was deleted."""
        del self.producer

    def on_delivery(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(message.value().decode())  # type: ignore[attr-defined]


def read_all(servers: str, topic: str) -> list[str]:
    """Return the values of all records, from the beginning to the current end."""
    return [record.value.decode() for record in records(servers, topic)]


def records(servers: str, topic: str) -> Iterator[ConsumerRecord]:
    """Yield all records, from the beginning to the current end."""
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
                sys.exit(f"could not read {topic} within {DEADLINE_SECONDS} s")
            for batch in consumer.poll(timeout_ms=500).values():
                yield from batch
