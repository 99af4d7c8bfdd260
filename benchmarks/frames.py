"""Load from prebuilt frames: the client costs little more than the kernel's work.

A few different batches are built and compressed before the run, with exactly the requested size before compression.
They are sent in turns. All responses have the same length, so they are counted and not decoded. The offsets for fetches
are known in advance. At the end, the log end offsets show whether every batch arrived. Amounts of data are before
compression.

A produce request carries one batch of one partition, in turns, as librdkafka sends them. A fetch requests 1 MB of every
partition, which is the default of consumers.
"""

from __future__ import annotations

import functools
import random
import socket
import statistics
import struct
import time
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from barnabas.batch.compression import Compression
from barnabas.batch.header import HEADER_SIZE
from barnabas.batch.records import Record, build_batch, write_record
from barnabas.client.blocking import BlockingConnection, now_ms
from barnabas.client.core import raise_if
from barnabas.client.login import ConnectionSecurity
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
from benchmarks.broker import MeasuredBroker
from benchmarks.loads import MB, TOPIC, Cost, Load
from benchmarks.payload import EventText

FETCH_BYTES = MB
FETCHED_SHARE = 3
"""Stored bytes to fetch per byte of the load. Fetches are fast: reading everything once would be too short to measure,
above all if it is compressed."""
RESPONSE_BYTES_MAX = 50 * MB
TIMEOUT_S = 60
DISTINCT_BATCHES = 4
"""A broker that remembers its last batch gains nothing."""
LAST_RECORD_MIN = 128
"""Minimum size of the last record, which fills up the batch. Not every smaller size is possible: one is skipped where
a length needs a second byte."""


class Listening(Protocol):
    """A broker that can be reached."""

    address: tuple[str, int]
    security: ConnectionSecurity


class FrameDriver:
    """Client on one connection. Call `produce` first, then `fetch`."""

    def __init__(
        self, broker: Listening, topic_id: UUID, load: Load, numbers: Sequence[int] | None = None
    ) -> None:
        """`numbers` are the `load.partitions` partitions that this broker leads; by default those from 0."""
        self.load = load
        self.numbers = range(load.partitions) if numbers is None else numbers
        self.topic_id = topic_id
        self.connection = BlockingConnection.open(
            *broker.address, client_id="benchmark", security=broker.security
        )
        self.records_per_batch, self.batches = build_batches(load)
        requests = [
            produce_request(number, batch) for batch in self.batches for number in self.numbers
        ]
        for request in requests[: load.partitions]:
            response = self.connection.exchange(request, ProduceResponse)
            raise_if(response.responses[0].partition_responses[0].error_code)
        self.produced = load.partitions
        self.produce_frames = [self.frame(request, ProduceResponse) for request in requests]
        self.socket = use_kernel_timeouts(self.connection.stream)
        self.buffer = memoryview(bytearray(MB))
        self.socket.sendall(self.produce_frames[self.produced])
        self.acknowledgement_bytes = skip_response(self.socket, self.buffer)
        for frame in self.produce_frames[self.produced + 1 : 2 * load.partitions]:
            self.socket.sendall(frame)
            skip_response(self.socket, self.buffer)
        self.produced += load.partitions

    def close(self) -> None:
        self.connection.close()

    def produce(self, batches: int) -> None:
        """Send batches with at most `in_flight` requests in flight. Returns when all are acknowledged."""
        at = self.produced % len(self.produce_frames)
        frames = self.produce_frames[at:] + self.produce_frames[:at]
        size = self.acknowledgement_bytes
        send_all(self.socket, frames, batches, self.load.in_flight, size, self.buffer)
        self.produced += batches

    def fetch_plan(self) -> tuple[list[bytes], int]:
        """Return the frames that read everything once, and the total size of the responses' records."""
        stored = self.produced // self.load.partitions
        per_request = max(1, min(stored, FETCH_BYTES // max(map(len, self.batches))))
        firsts = range(0, stored - per_request + 1, per_request)
        sizes = [
            sum(self.batch_size(number) for number in range(first, first + per_request))
            for first in firsts
        ]
        frames = [
            self.frame(self.fetch_request(first, size), FetchResponse)
            for first, size in zip(firsts, sizes, strict=True)
        ]
        return frames, sum(sizes) * self.load.partitions

    def batch_size(self, number: int) -> int:
        """Return the size in bytes of a partition's batch by its number, which starts at 0."""
        return len(self.batches[number % len(self.batches)])

    def fetch(self, frames: list[bytes]) -> int:
        """Send the frames one after the other, like a consumer. Returns the total size of the responses."""
        total = 0
        for frame in frames:
            self.socket.sendall(frame)
            total += skip_response(self.socket, self.buffer)
        return total

    def fetch_request(self, first_batch: int, size: int) -> FetchRequest:
        offset = first_batch * self.records_per_batch
        partitions = tuple(
            FetchPartition(number, fetch_offset=offset, partition_max_bytes=size)
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


def send_all(
    stream: socket.socket,
    frames: Sequence[bytes],
    count: int,
    in_flight: int,
    acknowledgement_bytes: int,
    buffer: memoryview,
) -> None:
    """Send `count` frames in turns, with at most `in_flight` in flight. Returns when all are acknowledged."""
    send, receive, number_of_frames = stream.sendall, stream.recv_into, len(frames)
    sent = received_bytes = 0
    while received_bytes < count * acknowledgement_bytes:
        allowed = min(received_bytes // acknowledgement_bytes + in_flight, count)
        while sent < allowed:
            send(frames[sent % number_of_frames])
            sent += 1
        received_bytes += require_data(receive(buffer))


def skip_response(stream: socket.socket, buffer: memoryview) -> int:
    """Read and discard a response. Returns its size."""
    received = require_data(stream.recv_into(buffer))
    size = 4 + int.from_bytes(buffer[:4], "big")
    while received < size:
        received += require_data(stream.recv_into(buffer))
    return size


def run_produce_and_fetch(broker: MeasuredBroker, load: Load) -> tuple[Cost, Cost]:
    """Measure both directions of one load. The broker must not have the topic yet."""
    broker.recycle_pages(load.total_bytes)
    driver = FrameDriver(broker, broker.create_topic(TOPIC, load.partitions), load)
    try:
        return measure_produce(broker, driver), measure_fetch(broker, driver)
    finally:
        driver.close()


def measure_produce(broker: MeasuredBroker, driver: FrameDriver) -> Cost:
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


def measure_fetch(broker: MeasuredBroker, driver: FrameDriver) -> Cost:
    load = driver.load
    frames, stored_bytes = driver.fetch_plan()
    driver.fetch(frames[: max(1, len(frames) // 20)])
    times = max(1, round(FETCHED_SHARE * load.total_bytes / stored_bytes))
    frames, stored_bytes = frames * times, stored_bytes * times
    cpu_s, began = broker.cpu_s(), time.perf_counter()
    received_bytes = driver.fetch(frames)
    wall_s = time.perf_counter() - began
    cpu_s = broker.cpu_s() - cpu_s
    if not stored_bytes <= received_bytes < stored_bytes * 1.05 + MB:
        raise RuntimeError(f"received {received_bytes} bytes for {stored_bytes} bytes of records")
    compression_ratio = load.batch_bytes / statistics.mean(map(len, driver.batches))
    return Cost(data_bytes=round(stored_bytes * compression_ratio), wall_s=wall_s, cpu_s=cpu_s)


def check_all_arrived(broker: MeasuredBroker, driver: FrameDriver) -> None:
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


@functools.lru_cache(maxsize=2)  # the same load runs on both sides of a comparison
def build_batches(load: Load) -> tuple[int, tuple[bytes, ...]]:
    """Return the number of records in each batch, and batches that all differ."""
    counts, batches = zip(
        *(
            build_exact_batch(
                load.batch_bytes,
                load.record_bytes,
                varies=load.varies,
                codec=Compression[load.codec.upper()],
                seed=seed,
            )
            for seed in range(DISTINCT_BATCHES)
        ),
        strict=True,
    )
    return counts[0], batches


def build_exact_batch(
    batch_bytes: int,
    record_bytes: int,
    *,
    varies: bool = False,
    codec: Compression = Compression.NONE,
    seed: int = 0,
) -> tuple[int, bytes]:
    """Return the number of records and a batch of exactly this size before compression.

    The last record fills up the batch. Exact sizes keep fetches aligned: 64 batches of 16 KB are exactly 1 MB. The
    number of records does not depend on the seed, which changes their text, and the order of varying sizes.
    """
    now, text = now_ms(), EventText(seed)
    sizes = record_sizes(batch_bytes, record_bytes, varies=varies)
    random.Random(seed).shuffle(sizes)
    records = [Record(number, now, None, text.value(size)) for number, size in enumerate(sizes)]
    left = batch_bytes - HEADER_SIZE - sum(written_size(record, now) for record in records)
    for size in range(left, 0, -1):
        last = Record(len(records), now, None, bytes(size))
        if written_size(last, now) == left:
            last = last._replace(value=text.value(size))
            return len(records) + 1, build_batch([*records, last], compression=codec)
    raise ValueError(f"no batch of {batch_bytes} bytes with records of {record_bytes}")


def record_sizes(batch_bytes: int, record_bytes: int, *, varies: bool) -> list[int]:
    """Return the value sizes of all records but the last, which needs at least LAST_RECORD_MIN bytes."""
    chance = random.Random(batch_bytes)
    largest = record_bytes * 3 // 2 if varies else record_bytes
    sizes: list[int] = []
    used = HEADER_SIZE
    while used + largest + LAST_RECORD_MIN <= batch_bytes:
        sizes.append(chance.randint(record_bytes // 2, largest) if varies else largest)
        used += written_size(Record(len(sizes) - 1, 0, None, bytes(sizes[-1])), 0)
    return sizes


def written_size(record: Record, base_timestamp: int) -> int:
    body = bytearray()
    write_record(body, record, 0, base_timestamp)
    return len(body)


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
