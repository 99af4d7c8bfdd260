"""Load from prebuilt frames: the client costs little more than the kernel's work.

Batches are built once, with exactly the requested size, and the same bytes are sent repeatedly. All responses have the
same length, so they are counted and not decoded. The offsets for fetches are known in advance. At the end, the log end
offsets show whether every batch arrived.

A produce request carries one batch of one partition, in turns, as librdkafka sends them. A fetch requests 1 MB of every
partition, which is the default of consumers.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from barnabas.batch.header import HEADER_SIZE
from barnabas.batch.records import Record, build_batch, write_record
from barnabas.client.blocking import BlockingConnection, now_ms
from barnabas.client.core import raise_if
from barnabas.client.offsets import latest_offsets
from barnabas.model import TopicPartition
from barnabas.wire.codec import Message
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from benchmarks.broker import BenchmarkBroker
from benchmarks.loads import MB, TOPIC, Cost, Load

FETCH_BYTES = MB
RESPONSE_BYTES_MAX = 50 * MB
TIMEOUT_S = 60
LAST_RECORD_MIN = 128
"""Minimum size of the last record, which fills up the batch. Not every smaller size is possible: one is skipped where
a length needs a second byte."""


class Listening(Protocol):
    """A broker that can be reached."""

    address: tuple[str, int]


class FrameDriver:
    """Client on one connection. Call `produce` first, then `fetch`."""

    def __init__(
        self, broker: Listening, topic_id: UUID, load: Load, numbers: Sequence[int] | None = None
    ) -> None:
        """`numbers` are the `load.partitions` partitions that this broker leads; by default those from 0."""
        self.load = load
        self.numbers = range(load.partitions) if numbers is None else numbers
        self.topic_id = topic_id
        self.connection = BlockingConnection.open(*broker.address, client_id="benchmark")
        self.records_per_batch, batch = build_exact_batch(
            load.batch_bytes, load.record_bytes, varies=load.varies
        )
        requests = [produce_request(number, batch) for number in self.numbers]
        for request in requests:
            response = self.connection.exchange(request, ProduceResponse)
            raise_if(response.responses[0].partition_responses[0].error_code)
        self.produced = load.partitions
        self.produce_frames = [self.frame(request, ProduceResponse) for request in requests]
        self.socket = use_kernel_timeouts(self.connection.stream)
        self.buffer = memoryview(bytearray(MB))
        self.socket.sendall(self.produce_frames[0])
        self.acknowledgement_bytes = self.skip_response()
        for frame in self.produce_frames[1:]:
            self.socket.sendall(frame)
            self.skip_response()
        self.produced += load.partitions

    def close(self) -> None:
        self.connection.close()

    def produce(self, batches: int) -> None:
        """Send batches with at most `in_flight` requests in flight. Returns when all are acknowledged."""
        frames, partitions, in_flight = (
            self.produce_frames,
            self.load.partitions,
            self.load.in_flight,
        )
        send, receive, buffer = self.socket.sendall, self.socket.recv_into, self.buffer
        size = self.acknowledgement_bytes
        sent = received_bytes = 0
        while received_bytes < batches * size:
            allowed = min(received_bytes // size + in_flight, batches)
            while sent < allowed:
                send(frames[sent % partitions])
                sent += 1
            received_bytes += require_data(receive(buffer))
        self.produced += batches

    def fetch_plan(self) -> tuple[list[bytes], int]:
        """Return the frames that read everything once, and the total size of the records in their responses."""
        load = self.load
        per_request = max(1, FETCH_BYTES // load.batch_bytes)
        turns = self.produced // load.partitions // per_request
        frames = [
            self.frame(self.fetch_request(turn * per_request), FetchResponse)
            for turn in range(turns)
        ]
        return frames, turns * per_request * load.partitions * load.batch_bytes

    def fetch(self, frames: list[bytes]) -> int:
        """Send the frames one after the other, like a consumer. Returns the total size of the responses."""
        total = 0
        for frame in frames:
            self.socket.sendall(frame)
            total += self.skip_response()
        return total

    def skip_response(self) -> int:
        """Read and discard a response. Returns its size."""
        receive, buffer = self.socket.recv_into, self.buffer
        received = require_data(receive(buffer))
        size = 4 + int.from_bytes(buffer[:4], "big")
        while received < size:
            received += require_data(receive(buffer))
        return size

    def fetch_request(self, first_batch: int) -> FetchRequest:
        offset = first_batch * self.records_per_batch
        partitions = tuple(
            FetchPartition(number, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
            for number in self.numbers
        )
        return FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=RESPONSE_BYTES_MAX,
            topics=(FetchTopic(topic_id=self.topic_id, partitions=partitions),),
        )

    def frame(self, request: Message, response: type[Message]) -> bytes:
        return self.connection.protocol.encode_request(request, response).data


def run_produce_and_fetch(broker: BenchmarkBroker, load: Load) -> tuple[Cost, Cost]:
    """Measure both directions of one load. The broker must not have the topic yet."""
    broker.recycle_pages(load.total_bytes)
    driver = FrameDriver(broker, broker.create_topic(TOPIC, load.partitions), load)
    try:
        return measure_produce(broker, driver), measure_fetch(broker, driver)
    finally:
        driver.close()


def measure_produce(broker: BenchmarkBroker, driver: FrameDriver) -> Cost:
    load = driver.load
    driver.produce(load.warm_up_batches)
    cpu_s, began = broker.cpu_s(), time.perf_counter()
    driver.produce(load.batches)
    wall_s = time.perf_counter() - began
    cost = Cost(
        data_bytes=load.batches * load.batch_bytes, wall_s=wall_s, cpu_s=broker.cpu_s() - cpu_s
    )
    check_all_arrived(broker, driver)
    return cost


def measure_fetch(broker: BenchmarkBroker, driver: FrameDriver) -> Cost:
    frames, data_bytes = driver.fetch_plan()
    driver.fetch(frames[: max(1, len(frames) // 20)])
    cpu_s, began = broker.cpu_s(), time.perf_counter()
    received_bytes = driver.fetch(frames)
    wall_s = time.perf_counter() - began
    if not data_bytes <= received_bytes < data_bytes * 1.05 + MB:
        raise RuntimeError(f"received {received_bytes} bytes for {data_bytes} bytes of records")
    return Cost(data_bytes=data_bytes, wall_s=wall_s, cpu_s=broker.cpu_s() - cpu_s)


def check_all_arrived(broker: BenchmarkBroker, driver: FrameDriver) -> None:
    load = driver.load
    expected = driver.produced // load.partitions * driver.records_per_batch
    partitions = [TopicPartition(TOPIC, number) for number in range(load.partitions)]
    with broker.admin() as admin:
        ends = set(latest_offsets(admin.cluster, partitions).values())
    if ends != {expected}:
        raise RuntimeError(f"the logs end at {sorted(ends)} and should end at {expected}")


def produce_request(partition: int, batch: bytes, acks: int = 1) -> ProduceRequest:
    data = (TopicProduceData(TOPIC, (PartitionProduceData(partition, batch),)),)
    return ProduceRequest(acks=acks, timeout_ms=TIMEOUT_S * 1000, topic_data=data)


def build_exact_batch(
    batch_bytes: int, record_bytes: int, *, varies: bool = False
) -> tuple[int, bytes]:
    """Return the number of records and a batch of exactly this size. The last record fills up the batch.

    Exact sizes keep fetches aligned: 64 batches of 16 KB are exactly 1 MB.
    """
    now = now_ms()
    chance = random.Random(batch_bytes)
    largest = record_bytes * 3 // 2 if varies else record_bytes
    value = bytes(at % 256 for at in range(largest))
    records: list[Record] = []
    body = bytearray()
    while HEADER_SIZE + len(body) + largest + LAST_RECORD_MIN <= batch_bytes:
        size = chance.randint(record_bytes // 2, largest) if varies else largest
        records.append(Record(len(records), now, None, value[:size]))
        write_record(body, records[-1], 0, now)
    left = batch_bytes - HEADER_SIZE - len(body)
    for size in range(left, 0, -1):
        last = Record(len(records), now, None, value[:size].ljust(size, b"."))
        end = bytearray()
        write_record(end, last, 0, now)
        if len(end) == left:
            return len(records) + 1, build_batch([*records, last])
    raise ValueError(f"no batch of {batch_bytes} bytes with records of {record_bytes}")


def use_kernel_timeouts(stream: socket.socket) -> socket.socket:
    """Set timeouts in the kernel. Python's own timeouts need a poll before each call."""
    stream.settimeout(None)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        stream.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", TIMEOUT_S, 0))
    return stream


def require_data(count: int) -> int:
    """Return the number of received bytes. Raises ConnectionResetError for 0, the end of the stream."""
    if not count:
        raise ConnectionResetError("the broker closed the connection")
    return count
