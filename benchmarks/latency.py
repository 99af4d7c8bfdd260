"""Latency of single records at a fixed rate: from the time a record is due to its acknowledgement and to a consumer.

Records are due at a fixed rate, whether or not the broker keeps up. If the broker stalls, the latency of every delayed
record includes the stall. The consumer long-polls on its own connection.
"""

from __future__ import annotations

import gc
import select
import statistics
import time
from dataclasses import dataclass
from uuid import UUID

from barnabas.batch.header import batch_headers
from barnabas.client.blocking import BlockingConnection
from barnabas.client.core import raise_if
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.messages.produce import ProduceResponse
from benchmarks.broker import BenchmarkBroker
from benchmarks.frames import build_exact_batch, produce_request, require_data, use_kernel_timeouts
from benchmarks.loads import KB, MB, TOPIC

WARM_UP_RECORDS = 200
STALLED_S = 30.0
BATCH_OVERHEAD = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    p50_ms: float
    p99_ms: float


def measure(
    broker: BenchmarkBroker, *, acks: int, rate: int, seconds: float, record_bytes: int = KB
) -> tuple[Latency, Latency]:
    """Return the latencies of acknowledgement and of consumption."""
    topic_id = broker.create_topic(TOPIC, 1)
    _, batch = build_exact_batch(record_bytes + BATCH_OVERHEAD, 2 * record_bytes)
    producer = RecordProducer(broker, batch, acks)
    consumer = RecordConsumer(broker, topic_id)
    gc.disable()
    try:
        run_at_rate(producer, consumer, WARM_UP_RECORDS + int(rate * seconds), 1 / rate)
    finally:
        gc.enable()
        producer.connection.close()
        consumer.connection.close()
    return percentiles(producer.acknowledged_s), percentiles(consumer.consumed_s)


def run_at_rate(
    producer: RecordProducer, consumer: RecordConsumer, count: int, interval_s: float
) -> None:
    sockets = [producer.socket, consumer.socket]
    due: list[float] = []
    consumer.send_fetch()
    next_due = time.perf_counter()
    while len(producer.acknowledged_s) < count or len(consumer.consumed_s) < count:
        while len(due) < count and time.perf_counter() >= next_due:
            due.append(next_due)
            producer.send()
            next_due += interval_s
        wait_s = max(0.0, next_due - time.perf_counter()) if len(due) < count else STALLED_S
        ready, _, _ = select.select(sockets, [], [], wait_s)
        now = time.perf_counter()
        if producer.socket in ready:
            producer.read(due, now)
        if consumer.socket in ready:
            consumer.read(due, now)
        if now - due[min(len(producer.acknowledged_s), len(consumer.consumed_s)) - 1] > STALLED_S:
            raise RuntimeError(f"a record was in flight for more than {STALLED_S} s")


class RecordProducer:
    """Producer that sends one record per request. All responses have the same size, so they are counted by bytes."""

    def __init__(self, broker: BenchmarkBroker, batch: bytes, acks: int) -> None:
        self.connection = BlockingConnection.open(*broker.address, client_id="benchmark")
        self.socket = use_kernel_timeouts(self.connection.stream)
        self.frame = self.connection.protocol.encode_request(
            produce_request(0, batch, acks), ProduceResponse
        ).data
        self.buffer = memoryview(bytearray(MB))
        self.acknowledged_s: list[float] = []
        self.response_bytes = 0
        self.received_bytes = 0

    def send(self) -> None:
        self.socket.sendall(self.frame)

    def read(self, due: list[float], now: float) -> None:
        self.received_bytes += require_data(self.socket.recv_into(self.buffer))
        self.response_bytes = self.response_bytes or 4 + int.from_bytes(self.buffer[:4], "big")
        while len(self.acknowledged_s) < self.received_bytes // self.response_bytes:
            self.acknowledged_s.append(now - due[len(self.acknowledged_s)])


class RecordConsumer:
    """Consumer at the end of the log, always with one fetch in flight."""

    def __init__(self, broker: BenchmarkBroker, topic_id: UUID) -> None:
        self.connection = BlockingConnection.open(*broker.address, client_id="benchmark")
        self.socket = use_kernel_timeouts(self.connection.stream)
        self.topic_id = topic_id
        self.buffer = memoryview(bytearray(MB))
        self.pending = bytearray()
        self.consumed_s: list[float] = []

    def send_fetch(self) -> None:
        partition = FetchPartition(0, fetch_offset=len(self.consumed_s), partition_max_bytes=MB)
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            topics=(FetchTopic(topic_id=self.topic_id, partitions=(partition,)),),
        )
        self.socket.sendall(self.connection.protocol.encode_request(request, FetchResponse).data)

    def read(self, due: list[float], now: float) -> None:
        pending = self.pending
        pending += self.buffer[: require_data(self.socket.recv_into(self.buffer))]
        size = 4 + int.from_bytes(pending[:4], "big")
        if len(pending) < max(8, size):
            return
        response = self.connection.protocol.decode_response(memoryview(bytes(pending[4:]))).message
        pending.clear()
        assert isinstance(response, FetchResponse)
        partition = response.responses[0].partitions[0]
        raise_if(response.error_code or partition.error_code)
        for _, header in batch_headers(partition.records or b""):
            while len(self.consumed_s) < header.next_offset:
                self.consumed_s.append(now - due[len(self.consumed_s)])
        self.send_fetch()


def percentiles(all_s: list[float]) -> Latency:
    hundredths = statistics.quantiles(all_s[WARM_UP_RECORDS:], n=100)
    return Latency(p50_ms=hundredths[49] * 1e3, p99_ms=hundredths[98] * 1e3)
