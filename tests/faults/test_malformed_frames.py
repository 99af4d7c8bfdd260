"""A hundred thousand malformed frames against a live broker: bad connections are closed, other clients are unaffected.

There are two kinds. Frames that no broker can answer (noise, a truncated body, a count that exceeds the frame, a wrong
length) must close their connection with one log line. A valid request with some bytes changed may still be valid. Its
connection may stay open, but it must do no harm.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from barnabas import LocalCluster
from barnabas.batch.records import Record, build_batch
from barnabas.errors import ErrorCode, RemoteWireError
from barnabas.wire.apis import APIS
from barnabas.wire.codec import Message, decode, encode
from barnabas.wire.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
)
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from support.broker import BrokerProcess
from support.seed import choose_seed
from tests.faults.raw_client import (
    PRODUCE_VERSION,
    RawClient,
    all_requests,
    now_ms,
    produce_frame,
)
from tests.raw_connection import with_size
from tests.unit.wire.random_messages import random_message

FRAMES = 100_000
WARM_UP_FRAMES = 10_000
REAL_REQUESTS = 5000
WORKERS = 4
RSS_GROWTH_MAX = 64 << 20
LATENCY_MAX_SECONDS = 1.0
PIPELINED = 8
REQUEST_BYTES_MAX = 104_857_600
TOPIC = "well-behaved"
FUZZED_TOPIC = "fuzzed"
SENTINEL_ID = b"\xbe\xef\xbe\xef"
SENTINEL = with_size(struct.pack(">hh4sh", 18, 0, SENTINEL_ID, -1))
HUGE = (0x7FFF_FFFF, 0x7FFF_FFF0, 0x4000_0000, 100_000_000, 1_000_000, -2, -(1 << 31))
HUGE_VARINTS = (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x10", b"\xff" * 10)


# ---- generating frames --------------------------------------------------------------------------------------


def real_request(random: Random) -> tuple[bytes, int]:
    """The payload of a valid request of any API and version, and the position of its body. One of REAL_REQUESTS."""
    number = random.randrange(REAL_REQUESTS)
    if number not in MADE:
        MADE[number] = make_request(Random(number))
    return MADE[number]


def make_request(random: Random) -> tuple[bytes, int]:
    request, version = random.choice(REQUESTS)
    header = encode_request_header(
        RequestHeader(request.API_KEY, version, random.getrandbits(31), "fuzz")
    )
    return header + encode(valid_request(random, request, version), version), len(header)


def valid_request(random: Random, request: type[Message], version: int) -> Message:
    if request is CreateTopicsRequest:
        # A name that no changed byte makes valid. Otherwise one of the frames would sooner or later be a valid request
        # for a topic of tens of thousands of partitions.
        topic = CreatableTopic(name="f/u/z/z", num_partitions=1, replication_factor=1)
        return CreateTopicsRequest(topics=(topic,), timeout_ms=100)
    if request is ProduceRequest:
        batch = build_batch([Record(at, now_ms(), b"key", b"value") for at in range(3)])
        data = TopicProduceData(FUZZED_TOPIC, (PartitionProduceData(0, batch),))
        return ProduceRequest(acks=random.choice((-1, 1)), timeout_ms=100, topic_data=(data,))
    message: Message = random_message(random, request, version)
    if isinstance(message, FetchRequest):
        return replace(message, max_wait_ms=0)
    return message


def noise(random: Random) -> bytes:
    return with_size(random.randbytes(random.choice((0, 1, 4, 7, 8, 20, 200, 3000))))


def truncated(random: Random) -> bytes:
    payload, body = real_request(random)
    return with_size(payload[: random.randint(0, max(len(payload) - 1, body))])


def mutated(random: Random) -> bytes:
    payload = bytearray(real_request(random)[0])
    for _ in range(random.choice((1, 1, 2, 5))):
        payload[random.randrange(len(payload))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, 7))
    return with_size(bytes(payload))


def huge_count(random: Random) -> bytes:
    """A length or count in the body that exceeds the frame."""
    payload, body = real_request(random)
    at = random.randint(body, len(payload))
    if random.random() < 0.5:
        return with_size(payload[:at] + struct.pack(">i", random.choice(HUGE)) + payload[at + 4 :])
    return with_size(payload[:at] + random.choice(HUGE_VARINTS) + payload[at:])


def huge_tags(random: Random) -> bytes:
    """More tagged fields than bytes, or one that is larger than the frame."""
    request, version = random.choice(FLEXIBLE_REQUESTS)
    header = encode_request_header(RequestHeader(request.API_KEY, version, 1, "fuzz"))
    return with_size(header[:-1] + random.choice(HUGE_VARINTS) + random.randbytes(20))


def wrong_version(random: Random) -> bytes:
    key = random.choice((*APIS, 200, -1, 500))
    version = random.choice((-1, 99, 32767, -32768))
    return with_size(struct.pack(">hhih", key, version, 1, -1) + random.randbytes(10))


def lying_length(random: Random) -> bytes:
    payload, _ = real_request(random)
    return struct.pack(">i", random.choice((-1, -(1 << 31), 104_857_601, 0x7FFF_FFFF))) + payload


def too_short_length(random: Random) -> bytes:
    """The rest of the request is then read as the next frame."""
    payload, _ = real_request(random)
    return struct.pack(">i", random.randrange(len(payload))) + payload


MADE: dict[int, tuple[bytes, int]] = {}
REQUESTS = all_requests()
FLEXIBLE_REQUESTS = [
    (request, version) for request, version in REQUESTS if version >= request.FLEXIBLE_SINCE
]
MAKERS: tuple[Callable[[Random], bytes], ...] = (
    noise,
    truncated,
    mutated,
    mutated,
    huge_count,
    huge_count,
    huge_tags,
    wrong_version,
    lying_length,
    too_short_length,
)


class Outcome(Enum):
    REFUSED = "the connection must be closed"
    SERVED = "every frame must be answered"
    UNCLEAR = "a frame waits: for more bytes, or for the timeout of its request"


def expected_outcome(data: bytes) -> Outcome:
    """Determine the outcome with the decoder that the broker's fast paths are tested against."""
    at = 0
    while at < len(data):
        if len(data) - at < 4:
            return Outcome.UNCLEAR
        (size,) = struct.unpack_from(">i", data, at)
        if not 0 <= size <= REQUEST_BYTES_MAX:
            return Outcome.REFUSED
        if len(data) - at - 4 < size:
            return Outcome.UNCLEAR
        try:
            if not is_answered_at_once(memoryview(data)[at + 4 : at + 4 + size]):
                return Outcome.UNCLEAR
        except RemoteWireError:
            return Outcome.REFUSED
        at += 4 + size
    return Outcome.SERVED


def is_answered_at_once(payload: memoryview) -> bool:
    header, at = decode_request_header(payload)
    if not header.is_served:
        if header.api_key == ApiVersionsRequest.API_KEY:
            return True  # answered in the oldest version, with the supported versions
        raise RemoteWireError("no such API")
    request = decode(APIS[header.api_key].request, header.api_version, payload, at)
    if isinstance(request, FetchRequest):
        return request.max_wait_ms <= 0
    return not (isinstance(request, ProduceRequest) and request.acks == 0)


# ---- sending frames -----------------------------------------------------------------------------------------


class Fuzzer(threading.Thread):
    """Sends its share of the frames, several per connection as long as it stays open.

    Every connection has its own source address (127.0.0.0/8 has enough). With one address, ports are reused within
    milliseconds. If the broker's close and the fuzzer's reset cross, the kernel may still hold the old connection as
    half closed. The next connection from that port then gets a reset from the kernel, which the broker never sees.
    """

    def __init__(self, address: tuple[str, int], seed: int, number: int, frames: int) -> None:
        super().__init__()
        self.address = address
        self.random = Random(seed + number)
        self.sources = (f"127.{number + 1}.{n >> 8}.{n & 0xFF}" for n in range(1, 0xFFFF))
        self.frames = frames
        self.refused = 0
        self.unclear = 0
        self.wrongly_alive: list[bytes] = []
        self.wrongly_ended: list[bytes] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while self.frames > 0:
                self.one_connection()
        except BaseException as error:  # noqa: BLE001 - reported by the test
            self.failure = error

    def one_connection(self) -> None:
        """Send frames at once, up to the first that closes the connection or leaves it waiting."""
        sent: list[bytes] = []
        fate = Outcome.SERVED
        while fate is Outcome.SERVED and len(sent) < PIPELINED:
            sent.append(self.random.choice(MAKERS)(self.random))
            fate = expected_outcome(sent[-1])
        self.frames -= len(sent)
        with RawClient(self.address, timeout=20.0, source=next(self.sources)) as client:
            # Reset the connection as soon as it is closed: a hundred thousand would fill the kernel's tables.
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if fate is Outcome.SERVED:
                self.send(client, b"".join([*sent, SENTINEL]))
                if not reaches_sentinel(client):
                    self.wrongly_ended += sent
                return
            self.send(client, b"".join(sent))
            if fate is Outcome.UNCLEAR:
                self.unclear += 1
            else:
                self.refused += 1
                if not is_closed_by_broker(client):
                    self.wrongly_alive.append(sent[-1])

    def send(self, client: RawClient, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            if self.random.random() < 0.01:
                for at in range(min(len(data), 200)):
                    client.send(data[at : at + 1])
                data = data[200:]
            client.send(data)


def reaches_sentinel(client: RawClient) -> bool:
    """Whether everything is answered up to the last request sent."""
    try:
        while client.receive()[:4] != SENTINEL_ID:
            continue
    except OSError:
        return False
    return True


def is_closed_by_broker(client: RawClient) -> bool:
    """Whether the broker closes the connection, possibly after some responses."""
    try:
        while client.socket.recv(65536):
            continue
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


class WellBehaved(threading.Thread):
    """Produces and consumes on one connection all the time, and records the longest wait."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__()
        self.broker = broker
        self.client = RawClient(broker.address)
        self.stopping = threading.Event()
        self.rounds = 0
        self.waits: list[float] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.wait(0.005):
                began = self.broker.clocks()
                value = b"value %d" % self.rounds
                answer = self.client.produce(TOPIC, 0, value)
                assert (answer.error_code, answer.base_offset) == (0, self.rounds)
                (record,) = self.client.fetch(TOPIC, 0, self.rounds)
                assert record.value == value
                self.waits.append(self.broker.unstarved_seconds(began))
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001 - reported by the test
            self.failure = error
        finally:
            self.client.close()


def attack(broker: BrokerProcess, seed: int, numbers: range, frames: int) -> list[Fuzzer]:
    fuzzers = [Fuzzer(broker.address, seed, n, frames // len(numbers)) for n in numbers]
    for fuzzer in fuzzers:
        fuzzer.start()
    for fuzzer in fuzzers:
        fuzzer.join()
    failed = [(f.name, f.frames, f.failure) for f in fuzzers if f.failure is not None]
    if failed:
        description = "; ".join(
            f"{name}, {left} frames left: {error!r}" for name, left, error in failed
        )
        raise AssertionError(f"{description}; {broker.running.describe()}") from failed[0][2]
    return fuzzers


@pytest.mark.timeout(600)
def test_malformed_frames_do_not_affect_other_clients(tmp_path: Path) -> None:
    seed = choose_seed()
    settings = {"auto.create.topics.enable": "false", "delete.topic.enable": "false"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        with RawClient(broker.address) as client:
            assert client.create_topic(TOPIC) == 0
            assert client.create_topic(FUZZED_TOPIC) == 0
        good = WellBehaved(broker)
        good.start()
        fuzzers = attack(broker, seed, range(WORKERS), WARM_UP_FRAMES)
        warm = broker.rss_bytes()
        fuzzers += attack(broker, seed, range(WORKERS, 2 * WORKERS), FRAMES - WARM_UP_FRAMES)
        growth = broker.rss_bytes() - warm
        good.stopping.set()
        good.join()
        refused = sum(fuzzer.refused for fuzzer in fuzzers)
        log = broker.log()
        waits = sorted(good.waits)
        print(
            f"frames={FRAMES} refused={refused} rounds of the good client={good.rounds} "
            f"p99={waits[len(waits) * 99 // 100] * 1000:.0f} ms max={waits[-1] * 1000:.0f} ms "
            f"rss={warm >> 20} MB growth={growth / (1 << 20):.1f} MB"
        )
        if good.failure is not None:
            raise good.failure
        alive = [frame for fuzzer in fuzzers for frame in fuzzer.wrongly_alive]
        assert not alive, [frame[:100].hex() for frame in alive[:5]]
        ended = [frame for fuzzer in fuzzers for frame in fuzzer.wrongly_ended]
        assert not ended, [frame[:100].hex() for frame in ended[:5]]
        assert "Traceback" not in log, log[log.index("Traceback") - 300 :][:3000]
        # A connection left waiting may be rejected as well, for bytes that were in flight.
        unclear = sum(fuzzer.unclear for fuzzer in fuzzers)
        assert refused <= log.count("closing connection") <= refused + unclear
        assert max(map(len, log.splitlines())) < 1000
        assert growth < RSS_GROWTH_MAX
        assert good.rounds > 100
        assert waits[-1] < LATENCY_MAX_SECONDS
        assert broker.stop() == 0


# ---- requests that resemble the previous one ----------------------------------------------------------------


def outcome(client: RawClient, data: bytes) -> str:
    """The response without the offset, or that none came before the response to the sentinel."""
    try:
        client.send(data + SENTINEL)
        answer = client.receive()
    except ConnectionError:
        return "the connection ended"
    if answer[:4] == SENTINEL_ID:
        return "no answer"
    response = answer[4:]
    try:
        _, at = decode_response_header(0, PRODUCE_VERSION, memoryview(answer))
        topics = decode(ProduceResponse, PRODUCE_VERSION, memoryview(answer), at).responses
    except RemoteWireError:
        return f"{answer[:4].hex()} {response.hex()}"
    description = [
        (topic.name, part.index, part.error_code, part.error_message)
        for topic in topics
        for part in topic.partition_responses
    ]
    return f"{answer[:4].hex()} {description}"


def test_repeated_request_cache_never_mistakes_requests() -> None:
    """A broker that recognises repeated requests must not mistake a different request for a repeated one."""
    with LocalCluster() as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        address = host, int(port)
        with RawClient(address) as client:
            assert client.create_topic(FUZZED_TOPIC, 2) == 0
        real = produce_frame(FUZZED_TOPIC, 1, [b"value"], acks=1)
        for at in range(4, len(real)):
            for flipped in (1, 0x80):
                frame = bytearray(real)
                frame[at] ^= flipped
                with RawClient(address) as fresh, RawClient(address) as seasoned:
                    for _ in range(3):
                        seasoned.send(real)
                        assert seasoned.produced().error_code == ErrorCode.NONE
                    changed = bytes(frame)
                    assert outcome(seasoned, changed) == outcome(fresh, changed), (at, flipped)
