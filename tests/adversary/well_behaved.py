"""A well-behaved application that measures how long it waits for the broker.

    python -m tests.adversary.well_behaved <bootstrap server> <topic> <seconds>

A producer and a consumer of confluent-kafka send one record every 20 ms. Their latencies count from the time at which
a record was due, so that a long stall counts for every record. A raw prober sends three small requests in turn, at
most every 20 ms; its latencies are round trips. The latencies are printed as JSON, in milliseconds, at the end.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.faults.raw_client import RawClient

PERIOD_SECONDS = 0.02
FLUSH_SECONDS = 30.0
STAMP = struct.Struct(">d")


class Latencies:
    """Milliseconds by kind of operation; each list has one writer."""

    def __init__(self) -> None:
        self.found: dict[str, list[float]] = {}
        self.failures: list[str] = []

    def add(self, kind: str, began: float) -> None:
        self.found.setdefault(kind, []).append((time.monotonic() - began) * 1000)


def produce(servers: str, topic: str, until: float, latencies: Latencies) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "acks": "all"})

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            latencies.failures.append(str(error))
        else:
            latencies.add("confluent produce", STAMP.unpack(message.value())[0])

    due = time.monotonic()
    while due < until:
        producer.produce(topic, STAMP.pack(due), on_delivery=delivered)
        due += PERIOD_SECONDS
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)
    producer.flush(FLUSH_SECONDS)


def consume(servers: str, topic: str, until: float, latencies: Latencies) -> None:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    while time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error():
            latencies.failures.append(str(message.error()))
        elif len(message.value()) == STAMP.size:
            latencies.add("confluent end to end", STAMP.unpack(message.value())[0])
    consumer.close()


def probe(servers: str, topic: str, until: float, latencies: Latencies) -> None:
    host, _, port = servers.rpartition(":")
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    while time.monotonic() < until:
        try:
            with RawClient((host, int(port))) as client:
                while (began := time.monotonic()) < until:
                    client.exchange(request, 9, MetadataResponse)
                    offset = client.produce(topic, 0, b"probe").base_offset
                    client.fetch(topic, 0, offset)
                    latencies.add("raw metadata, produce, fetch", began)
                    time.sleep(max(began + PERIOD_SECONDS - time.monotonic(), 0))
        except OSError as error:
            latencies.failures.append(f"prober: {error}")


def main() -> None:
    servers, topic, seconds = sys.argv[1:]
    latencies = Latencies()
    until = time.monotonic() + float(seconds)
    threads = [
        threading.Thread(target=work, args=(servers, topic, until, latencies), daemon=True)
        for work in (produce, consume, probe)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(float(seconds) + FLUSH_SECONDS)
    print(json.dumps({"latencies": latencies.found, "failures": latencies.failures}))


if __name__ == "__main__":
    main()
