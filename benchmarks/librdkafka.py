"""The same loads through librdkafka, the client most applications outside Java use."""

from __future__ import annotations

import time
from typing import Protocol

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as AssignedPartition

from benchmarks.broker import BenchmarkBroker
from benchmarks.loads import KB, MB, TOPIC, Cost, Load

BATCH_BYTES_MAX = 1_000_000
"""A little below what a broker takes by default, as librdkafka has it too."""
CONSUME_COUNT = 10_000
QUEUE_BYTES = 64 * MB
STALLED_S = 60


def run_produce_and_fetch(broker: BenchmarkBroker, load: Load) -> tuple[Cost, Cost]:
    """Both directions of one load against a broker that has no topic of that name yet."""
    broker.recycle_pages(load.total_bytes)
    broker.create_topic(TOPIC, load.partitions)
    return measure_produce(broker, load), measure_consume(broker, load)


def record_counts(load: Load) -> tuple[int, int]:
    """Of the warm-up, and of the run."""
    warm_up = load.warm_up_batches * load.batch_bytes // load.record_bytes
    return warm_up, load.batches * load.batch_bytes // load.record_bytes


class Brokers(Protocol):
    """One broker or several, and the CPU time of all of them."""

    @property
    def bootstrap_servers(self) -> str: ...

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


def acknowledgement_delays(broker: Brokers, *, rate: int, seconds: float, acks: int) -> list[float]:
    """Seconds from the moment a record was due until its delivery was reported, of a producer with its defaults."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "acks": acks, "error_cb": raise_error}
    )
    delays: list[float] = []
    value = bytes(KB)

    def reported(due: float, error: object) -> None:
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
            TOPIC, value, partition=0, on_delivery=lambda error, _, due=due: reported(due, error)
        )
        producer.poll(0)
    if left_over := producer.flush(STALLED_S):
        raise RuntimeError(f"{left_over} records were not acknowledged in {STALLED_S} s")
    return delays


def producer_settings(broker: Brokers, load: Load) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "acks": 1,
        "batch.size": min(load.batch_bytes, BATCH_BYTES_MAX),
        "batch.num.messages": 1_000_000,
        # Long enough that a batch leaves because it is full.
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
                # Half the queue is let go before more is put in, rather than one record at a time.
                while len(producer) > half:
                    producer.poll(0.001)
    if left := producer.flush(STALLED_S):
        raise RuntimeError(f"{left} records were not acknowledged in {STALLED_S} s")


def measure_consume(broker: BenchmarkBroker, load: Load) -> Cost:
    """From the beginning to the end; what the warm-up wrote is read as the warm-up."""
    warm_up, count = record_counts(load)
    consumer = Consumer(
        {
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
    """Never asks for more than there is: the call would wait out its timeout for it."""
    left = count
    while left:
        messages = consumer.consume(min(left, CONSUME_COUNT), STALLED_S)
        if not messages:
            raise RuntimeError(f"{left} records did not come in {STALLED_S} s")
        if error := messages[-1].error():
            raise KafkaException(error)
        left -= len(messages)


def raise_error(error: object) -> None:
    raise KafkaException(error)
