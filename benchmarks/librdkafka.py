"""The same loads with librdkafka, the most common client outside Java."""

from __future__ import annotations

import time
from typing import Protocol

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as AssignedPartition

from benchmarks.broker import MeasuredBroker
from benchmarks.loads import KB, MB, TOPIC, Cost, Load

BATCH_BYTES_MAX = 1_000_000
"""Slightly below the default message.max.bytes of brokers; the default of librdkafka."""
CONSUME_COUNT = 10_000
QUEUE_BYTES = 64 * MB
TIMEOUT_S = 60


def run_produce_and_fetch(broker: MeasuredBroker, load: Load) -> tuple[Cost, Cost]:
    """Measure both directions of one load. The broker must not have the topic yet."""
    broker.recycle_pages(load.total_bytes)
    broker.create_topic(TOPIC, load.partitions)
    return measure_produce(broker, load), measure_consume(broker, load)


def record_counts(load: Load) -> tuple[int, int]:
    """Return the number of records of the warm-up and of the run."""
    warm_up = load.warm_up_batches * load.batch_bytes // load.record_bytes
    return warm_up, load.batches * load.batch_bytes // load.record_bytes


class Brokers(Protocol):
    """One broker or several, and the CPU time of all of them."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def client_settings(self) -> dict[str, object]:
        """Further settings of clients: those of TLS."""
        ...

    def cpu_s(self) -> float: ...


def measure_produce(broker: Brokers, load: Load, acks: int = 1) -> Cost:
    warm_up, count = record_counts(load)
    producer = Producer(producer_settings(broker, load) | {"acks": acks})
    produce(producer, load, warm_up)
    cpu_s, began = broker.cpu_s(), time.perf_counter()
    produce(producer, load, count)
    return Cost(
        data_bytes=count * load.record_bytes,
        wall_s=time.perf_counter() - began,
        cpu_s=broker.cpu_s() - cpu_s,
    )


def acknowledgement_delays(
    broker: Brokers, *, rate: int, seconds: float, acks: int, topic: str = TOPIC
) -> list[float]:
    """Return the seconds from the time each record was due until its delivery report, with a producer's defaults."""
    producer = Producer(
        broker.client_settings
        | {"bootstrap.servers": broker.bootstrap_servers, "acks": acks, "error_cb": raise_error}
    )
    delays: list[float] = []
    value = bytes(KB)

    def on_delivery(due: float, error: object) -> None:
        if error is not None:
            raise RuntimeError(f"not delivered: {error}")
        delays.append(time.perf_counter() - due)

    count = int(rate * seconds)
    first = time.perf_counter()
    for number in range(count):
        due = first + number / rate
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _, due=due: on_delivery(due, error)
        )
        producer.poll(0)
    if left_over := producer.flush(TIMEOUT_S):
        raise RuntimeError(f"{left_over} records were not acknowledged in {TIMEOUT_S} s")
    return delays


def commits_per_second(
    broker: Brokers,
    *,
    transactions: int,
    warm_up: int,
    records: int,
    record_bytes: int,
    partitions: int,
) -> float:
    """Return the rate of one producer that commits transactions of `records` records, one after the other."""
    producer = Producer(
        broker.client_settings
        | {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": "benchmark",
            "error_cb": raise_error,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    value = bytes(record_bytes)

    def commit(count: int) -> None:
        for _ in range(count):
            producer.begin_transaction()
            for number in range(records):
                producer.produce(TOPIC, value, partition=number % partitions)
            producer.commit_transaction(TIMEOUT_S)

    commit(warm_up)
    began = time.perf_counter()
    commit(transactions)
    return transactions / (time.perf_counter() - began)


def producer_settings(broker: Brokers, load: Load) -> dict[str, object]:
    return broker.client_settings | {
        "bootstrap.servers": broker.bootstrap_servers,
        "acks": 1,
        "batch.size": min(load.batch_bytes, BATCH_BYTES_MAX),
        "batch.num.messages": 1_000_000,
        # Long enough that batches are sent only when they are full.
        "linger.ms": 500,
        "max.in.flight.requests.per.connection": load.in_flight,
        "queue.buffering.max.messages": queue_records(load),
        "queue.buffering.max.kbytes": 2 * QUEUE_BYTES // KB,
        "delivery.report.only.error": True,
        "error_cb": raise_error,
    }


def queue_records(load: Load) -> int:
    return QUEUE_BYTES // load.record_bytes


def produce(producer: Producer, load: Load, count: int) -> None:
    value = bytes(load.record_bytes)
    partitions, send, half = load.partitions, producer.produce, queue_records(load) // 2
    for number in range(count):
        while True:
            try:
                send(TOPIC, value, partition=number % partitions)
                break
            except BufferError:
                # Wait until the queue is half empty, instead of for every single record.
                while len(producer) > half:
                    producer.poll(0.001)
    if left := producer.flush(TIMEOUT_S):
        raise RuntimeError(f"{left} records were not acknowledged in {TIMEOUT_S} s")


def measure_consume(broker: Brokers, load: Load) -> Cost:
    """Consume all records. Those of the producer's warm-up are the warm-up of the consumer."""
    warm_up, count = record_counts(load)
    consumer = Consumer(
        broker.client_settings
        | {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "error_cb": raise_error,
        }
    )
    try:
        consumer.assign([AssignedPartition(TOPIC, number, 0) for number in range(load.partitions)])
        consume(consumer, warm_up)
        cpu_s, began = broker.cpu_s(), time.perf_counter()
        consume(consumer, count)
        return Cost(
            data_bytes=count * load.record_bytes,
            wall_s=time.perf_counter() - began,
            cpu_s=broker.cpu_s() - cpu_s,
        )
    finally:
        consumer.close()


def consume(consumer: Consumer, count: int) -> None:
    """Consume exactly `count` records. A call for more than there are would wait until its timeout."""
    left = count
    while left:
        messages = consumer.consume(min(left, CONSUME_COUNT), TIMEOUT_S)
        if not messages:
            raise RuntimeError(f"{left} records were not received in {TIMEOUT_S} s")
        if error := messages[-1].error():
            raise KafkaException(error)
        left -= len(messages)


def raise_error(error: object) -> None:
    raise KafkaException(error)
