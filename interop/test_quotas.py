"""Quotas of clients in Kafka 3.9 and in Barnabas: the same requests get the same throttle times, cuts and refusals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple, TypeVar

import pytest

from barnabas.batch.records import Record, build_batch
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, QuotaEntity
from barnabas.errors import ErrorCode
from barnabas.wire.apis import APIS
from barnabas.wire.codec import Message, encode
from barnabas.wire.headers import RequestHeader, encode_request_header
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from interop.harness.kafka import KafkaBroker
from support.broker import BrokerProcess
from support.waiting import eventually
from tests.raw_connection import RawConnection, with_size

M = TypeVar("M", bound=Message)
Outcome = TypeVar("Outcome")
TOPIC = "quotas"
SINGLE = "quotas-single"
"""A topic with one batch."""
PARTITIONS = 3
RATE = 100_000
WINDOWS_S = 10
"""A rate is measured over at least 10 of the 11 windows."""
BATCH = build_batch([Record(0, time.time_ns() // 1_000_000, None, bytes(900_000))])
NUMBERS = count()
ATTEMPTS = 5
"""Each second of a stalled machine makes a throttle time one second shorter. The longest of several is compared."""


class Client(RawConnection):
    """A connection with a client id of its own."""

    def __init__(self, servers: str, client_id: str, source: str = "127.0.0.1") -> None:
        host, _, port = servers.rpartition(":")
        super().__init__((host, int(port)), 60, source)
        self.client_id = client_id

    def ask(self, request: Message, response: type[M], version: int | None = None) -> M:
        number = APIS[request.API_KEY].versions[-1] if version is None else version
        header = RequestHeader(request.API_KEY, number, 1, self.client_id)
        self.send(with_size(encode_request_header(header) + encode(request, number)))
        return self.answer(response, number)


def new_client_id() -> str:
    return f"client-{next(NUMBERS)}"


class Pair(NamedTuple):
    kafka: str
    ours: str

    def compare(self, action: Callable[[str], Outcome]) -> tuple[Outcome, Outcome]:
        return action(self.kafka), action(self.ours)


@pytest.fixture(scope="module")
def pair(kafka: KafkaBroker, ours: BrokerProcess) -> Pair:
    both = Pair(kafka.bootstrap_servers, ours.bootstrap_servers)
    for servers in both:
        with Cluster(servers) as cluster:
            topic = NewTopic(name=TOPIC, partitions=PARTITIONS)
            (made,) = Admin(cluster).create_topics([topic])
            assert made.error is None
    return both


@pytest.fixture(autouse=True)
def no_quotas(pair: Pair) -> Iterator[None]:
    yield
    for servers in pair:
        with Cluster(servers) as cluster:
            admin = ConfigAdmin(cluster)
            found = admin.describe_client_quotas()
            removed = {key: dict.fromkeys(each) for key, each in found.items()}
            assert not any(admin.alter_client_quotas(removed).values())


def set_quota(servers: str, entity: QuotaEntity, **rates: float) -> None:
    with Cluster(servers) as cluster:
        (error,) = ConfigAdmin(cluster).alter_client_quotas({entity: rates}).values()
    assert error is None


ALL_CLIENTS = QuotaEntity(client_id="<default>")
"""Each client id has a bucket of its own."""


def produce(servers: str, client_id: str, batches: int = PARTITIONS, topic: str = TOPIC) -> int:
    """Produce batches in one request. Return the throttle time in ms."""
    data = tuple(PartitionProduceData(index, BATCH) for index in range(batches))
    request = ProduceRequest(acks=1, timeout_ms=5000, topic_data=(TopicProduceData(topic, data),))
    with Client(servers, client_id) as client:
        return client.ask(request, ProduceResponse).throttle_time_ms


class Served(NamedTuple):
    """The number of connections before the first refused one, and the time until that is closed."""

    connections: int
    seconds: float


class Fetched(NamedTuple):
    throttle_ms: int
    size: int


def fetch(servers: str, client_id: str) -> Fetched:
    wanted = (FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20),)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=(FetchTopic(topic=SINGLE, partitions=wanted),),
    )
    with Client(servers, client_id) as client:
        response = client.ask(request, FetchResponse, 12)
    parts = [part for topic in response.responses for part in topic.partitions]
    return Fetched(response.throttle_time_ms, sum(len(part.records or b"") for part in parts))


def test_produce_has_the_same_throttle_time(pair: Pair) -> None:
    def throttle_time(servers: str) -> int:
        set_quota(servers, ALL_CLIENTS, producer_byte_rate=RATE)
        eventually(lambda: produce(servers, new_client_id()) > 0, "the quota applies")
        return max(produce(servers, new_client_id()) for _ in range(ATTEMPTS))

    kafka, ours = pair.compare(throttle_time)
    expected = (PARTITIONS * len(BATCH) / RATE - WINDOWS_S) * 1000
    assert kafka == pytest.approx(expected, rel=0.05)
    assert ours == pytest.approx(kafka, rel=0.05)


def test_clients_of_one_user_share_its_rate(pair: Pair) -> None:
    def throttle_times(servers: str) -> tuple[bool, bool]:
        set_quota(servers, QuotaEntity(user="ANONYMOUS"), producer_byte_rate=10 * RATE)
        eventually(lambda: produce(servers, new_client_id()) > 0, "the quota applies")
        first = produce(servers, new_client_id()) > 0
        set_quota(
            servers,
            QuotaEntity(user="ANONYMOUS", client_id="<default>"),
            producer_byte_rate=10 * RATE,
        )
        eventually(lambda: produce(servers, new_client_id()) == 0, "the more specific quota")
        return first, produce(servers, new_client_id()) > 0

    assert pair.compare(throttle_times) == ((True, False), (True, False))


def test_fetch_above_the_rate_gets_no_records_and_the_same_throttle_time(pair: Pair) -> None:
    def fetch_twice(servers: str) -> tuple[Fetched, Fetched]:
        client_id = new_client_id()
        return fetch(servers, client_id), fetch(servers, client_id)

    def limited(servers: str) -> tuple[Fetched, Fetched]:
        with Cluster(servers) as cluster:
            (made,) = Admin(cluster).create_topics([NewTopic(name=SINGLE, partitions=1)])
            assert made.error is None
        produce(servers, "loader", 1, SINGLE)
        set_quota(servers, ALL_CLIENTS, consumer_byte_rate=RATE)
        eventually(lambda: fetch_twice(servers)[1].throttle_ms > 0, "the quota applies")
        return max((fetch_twice(servers) for _ in range(ATTEMPTS)), key=lambda each: each[1])

    kafka, ours = pair.compare(limited)
    assert kafka[0] == ours[0] == Fetched(0, len(BATCH))
    assert kafka[1].size == ours[1].size == 0
    assert ours[1].throttle_ms == pytest.approx(kafka[1].throttle_ms, rel=0.05)


def test_request_time_is_throttled_for_at_most_one_window(pair: Pair) -> None:
    def throttle(servers: str) -> tuple[int, float]:
        """Return the throttle time in ms, and the seconds until a second request is answered."""
        set_quota(servers, ALL_CLIENTS, request_percentage=0.0001)
        client_id = new_client_id()
        request = MetadataRequest(topics=())

        def is_throttled() -> bool:
            with Client(servers, client_id) as client:
                return client.ask(request, MetadataResponse).throttle_time_ms > 0

        eventually(is_throttled, "the quota applies")
        with Client(servers, client_id) as client:
            began = time.monotonic()
            throttle_ms = client.ask(request, MetadataResponse).throttle_time_ms
            client.ask(request, MetadataResponse)
            return throttle_ms, time.monotonic() - began

    for throttle_ms, seconds in pair.compare(throttle):
        assert throttle_ms == 1000
        assert seconds > 0.9


def test_partitions_above_the_rate_are_rejected_alike(pair: Pair) -> None:
    def create(servers: str) -> list[ErrorCode]:
        client_id = new_client_id()
        set_quota(servers, QuotaEntity(client_id=client_id), controller_mutation_rate=0.5)
        codes: list[ErrorCode] = []

        def is_rejected() -> bool:
            topic = CreatableTopic(f"created-{next(NUMBERS)}", 3, 1)
            with Client(servers, client_id) as client:
                request = CreateTopicsRequest(topics=(topic,), timeout_ms=10_000)
                (result,) = client.ask(request, CreateTopicsResponse).topics
            codes.append(ErrorCode(result.error_code))
            return codes[-1] is not ErrorCode.NONE

        eventually(is_rejected, "a rejected topic")
        return codes[-1:]

    kafka, ours = pair.compare(create)
    assert kafka == ours == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]


def test_connections_above_the_rate_of_an_address_are_refused_alike(pair: Pair) -> None:
    rate = 2

    def count_served(servers: str, source: str) -> Served:
        began = time.monotonic()
        for served in range(100):
            with Client(servers, "address", source) as client:
                try:
                    client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
                except ConnectionError:
                    return Served(served, time.monotonic() - began)
        return Served(100, time.monotonic() - began)

    def measure(servers: str) -> Served:
        set_quota(servers, QuotaEntity(ip="<default>"), connection_creation_rate=rate)
        set_quota(servers, QuotaEntity(ip="127.0.0.1"), connection_creation_rate=100_000)
        eventually(
            lambda: count_served(servers, "127.0.0.2").connections < 100, "the quota applies"
        )
        return count_served(servers, "127.0.0.3")

    for found in pair.compare(measure):
        first = rate * WINDOWS_S
        assert first <= found.connections <= first + rate * found.seconds
        assert found.seconds < 60
