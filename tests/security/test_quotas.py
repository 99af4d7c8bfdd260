"""Quotas of clients and addresses, with real clients: bytes, request time and new connections per second."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Iterator
from itertools import count

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaConsumer

from barnabas import LocalCluster
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import (
    ConfigAdmin,
    ConfigChange,
    ConfigResource,
    QuotaEntity,
)
from barnabas.wire.codec import Message
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.fetch import FetchResponse
from barnabas.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.messages.produce import ProduceResponse
from support.waiting import eventually
from tests.compatibility.raw import Raw, batch_of, fetch_request, produce_request
from tests.raw_connection import RawConnection, frame

TOPIC = "limited"
RATE = 300_000
USER = QuotaEntity(user="ANONYMOUS")
RAW = QuotaEntity(user="ANONYMOUS", client_id="raw")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two windows of one second: a client may use the rate of one second at once."""
    settings = {"quota.window.num": 2, "log.retention.ms": "-1"}
    with LocalCluster(settings=settings) as running, Raw(running.bootstrap_servers) as raw:
        raw.create_topic(TOPIC)
        yield running


@pytest.fixture(autouse=True)
def no_quotas(cluster: LocalCluster) -> Iterator[None]:
    yield
    with Cluster(cluster.bootstrap_servers) as client:
        admin = ConfigAdmin(client)
        found = admin.describe_client_quotas()
        removed = {entity: dict.fromkeys(values) for entity, values in found.items()}
        assert not any(admin.alter_client_quotas(removed).values())


def set_quota(cluster: LocalCluster, entity: QuotaEntity, **rates: float) -> None:
    with Cluster(cluster.bootstrap_servers) as client:
        (error,) = ConfigAdmin(client).alter_client_quotas({entity: rates}).values()
    assert error is None


def wait_until_produces_are_throttled(cluster: LocalCluster) -> None:
    """Exceed the rate: a broker applies a changed quota a moment after the change."""
    request = produce_request(TOPIC, batch_of(bytes(RATE)))

    def is_throttled() -> bool:
        with Raw(cluster.bootstrap_servers) as raw:
            return raw.ask(request, ProduceResponse).throttle_time_ms > 0

    eventually(is_throttled, "a throttled Produce request")


def wait_until_fetches_are_throttled(cluster: LocalCluster) -> None:
    request = fetch_request(TOPIC, {0: 0})

    def is_throttled() -> bool:
        with Raw(cluster.bootstrap_servers) as raw:
            return raw.ask(request, FetchResponse, 12).throttle_time_ms > 0

    eventually(is_throttled, "a throttled Fetch request")


def test_confluent_producer_is_slowed_down_to_the_rate_of_its_user(cluster: LocalCluster) -> None:
    set_quota(cluster, USER, producer_byte_rate=RATE)
    wait_until_produces_are_throttled(cluster)
    throttled: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "writer",
            "batch.size": 50_000,
            "linger.ms": 0,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    began = time.monotonic()
    for _ in range(40):
        producer.produce(TOPIC, bytes(20_000))
    assert producer.flush(60) == 0
    seconds = time.monotonic() - began
    assert seconds > 1.0

    def is_throttled() -> bool:
        producer.produce(TOPIC, bytes(20_000))
        producer.poll(0)
        return bool(throttled)

    eventually(is_throttled, "the client reports a throttle time")
    assert producer.flush(60) == 0


def test_kafka_python_consumer_is_slowed_down_to_the_rate_of_its_client_id(
    cluster: LocalCluster,
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for _ in range(45):
        producer.produce(TOPIC, bytes(20_000))
    assert producer.flush(60) == 0
    set_quota(cluster, QuotaEntity(client_id="<default>"), consumer_byte_rate=RATE)
    wait_until_fetches_are_throttled(cluster)
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=cluster.bootstrap_servers,
        client_id="reader",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=100_000,
    )
    began = time.monotonic()
    read = 0
    while read < 800_000 and time.monotonic() - began < 60:
        for records in consumer.poll(timeout_ms=500).values():
            read += sum(len(record.value) for record in records)
    seconds = time.monotonic() - began
    consumer.close()
    assert read >= 800_000
    assert seconds > 1.0


async def test_aiokafka_producer_is_slowed_down(cluster: LocalCluster) -> None:
    await asyncio.to_thread(set_quota, cluster, USER, producer_byte_rate=RATE)
    await asyncio.to_thread(wait_until_produces_are_throttled, cluster)
    began = time.monotonic()
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="aio")
    await producer.start()
    try:
        for _ in range(8):
            await producer.send_and_wait(TOPIC, bytes(100_000))
    finally:
        await producer.stop()
    assert time.monotonic() - began > 1.0


def test_fetch_response_is_cut_to_the_bytes_of_the_windows(cluster: LocalCluster) -> None:
    with Raw(cluster.bootstrap_servers) as raw:
        raw.create_topic("small-batches")
        for _ in range(3):
            raw.produce("small-batches", batch_of(bytes(40_000)))

    def fetched_bytes() -> int:
        with Raw(cluster.bootstrap_servers) as raw:
            request = fetch_request("small-batches", {0: 0})
            response = raw.ask(request, FetchResponse, 12)
            if response.throttle_time_ms:
                assert response.responses == ()
                return 0
            return len(response.responses[0].partitions[0].records or b"")

    eventually(lambda: fetched_bytes() > 100_000, "a response without a limit")
    set_quota(cluster, RAW, consumer_byte_rate=90_000)
    eventually(lambda: 0 < fetched_bytes() <= 90_000, "a cut response")
    eventually(lambda: fetched_bytes() == 0, "a response without records")
    eventually(lambda: fetched_bytes() > 0, "a response with records")


def test_fetch_session_continues_after_a_throttled_response(cluster: LocalCluster) -> None:
    set_quota(cluster, RAW, consumer_byte_rate=RATE)
    wait_until_fetches_are_throttled(cluster)
    with Raw(cluster.bootstrap_servers) as raw:
        topic_id = raw.create_topic("session")
        raw.produce("session", batch_of(b"first"))

        def fetch(session_id: int, epoch: int, offsets: dict[int, int]) -> FetchResponse:
            request = fetch_request(
                "session", offsets, topic_id=topic_id, session_id=session_id, session_epoch=epoch
            )
            return raw.ask(request, FetchResponse)

        sessions: list[int] = []

        def is_opened() -> bool:
            opened = fetch(0, 0, {0: 0})
            assert opened.responses or (opened.throttle_time_ms and opened.session_id == 0)
            sessions.append(opened.session_id)
            return bool(opened.responses)

        eventually(is_opened, "a session")
        session = sessions[-1]
        assert session > 0
        raw.produce("session", batch_of(bytes(2 * RATE)))
        epochs = count(1)

        def is_throttled() -> bool:
            """Fetch the same records again if the rate has been met meanwhile."""
            found = fetch(session, next(epochs), {0: 1})
            assert (found.error_code, found.session_id) == (0, session)
            assert bool(found.throttle_time_ms) == (found.responses == ())
            return found.throttle_time_ms > 0

        eventually(is_throttled, "a throttled response of the session")

        def has_records() -> bool:
            again = fetch(session, next(epochs), {})
            assert again.error_code == 0
            return any(each.partitions[0].records for each in again.responses)

        eventually(has_records, "records that alone exceed the rate")


REQUESTS: list[tuple[Message, type[Message], int | None]] = [
    (MetadataRequest(topics=None), MetadataResponse, None),
    (MetadataRequest(topics=None), MetadataResponse, 3),
    (
        ApiVersionsRequest(client_software_name="a", client_software_version="1"),
        ApiVersionsResponse,
        3,
    ),
    (ListGroupsRequest(), ListGroupsResponse, None),
    (CreateTopicsRequest(topics=()), CreateTopicsResponse, None),
    (fetch_request(TOPIC, {0: 0}), FetchResponse, 12),
    (produce_request(TOPIC, batch_of(b"value")), ProduceResponse, None),
]


@pytest.mark.parametrize(("request_message", "response", "version"), REQUESTS)
def test_request_time_above_the_percentage_is_throttled_for_at_most_one_window(
    cluster: LocalCluster,
    request_message: Message,
    response: type[Message],
    version: int | None,
) -> None:
    set_quota(cluster, RAW, request_percentage=0.0001)
    times: list[int] = []

    def ask() -> bool:
        with Raw(cluster.bootstrap_servers) as raw:
            answer: object = raw.ask(request_message, response, version)
            times.append(answer.throttle_time_ms)  # type: ignore[attr-defined]
        return times[-1] > 0

    eventually(ask, "a throttled request")
    assert times[-1] <= 1000


def test_connection_is_not_read_during_the_throttle_and_other_clients_are_served(
    cluster: LocalCluster,
) -> None:
    """A machine that stalls for the whole throttle time shows nothing, so there are several attempts."""
    set_quota(cluster, RAW, request_percentage=0.0001)
    metadata = MetadataRequest(topics=None)

    def is_other_answered_first() -> bool:
        with Raw(cluster.bootstrap_servers) as raw:
            began = time.monotonic()
            throttle_s = raw.ask(metadata, MetadataResponse).throttle_time_ms / 1000
            sent = raw.begin(metadata)
            with Cluster(cluster.bootstrap_servers) as other:
                other.refresh([])
            readable, _, _ = select.select([raw.socket], [], [], 0)
            raw.answer(MetadataResponse, *sent)
            assert time.monotonic() - began > 0.9 * throttle_s
        return throttle_s > 0.5 and not readable

    eventually(is_other_answered_first, "another client is answered before the throttled one")


def connect(cluster: LocalCluster, source: str) -> RawConnection:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return RawConnection((host, int(port)), source=source)


def is_served(cluster: LocalCluster, source: str) -> bool:
    """Whether the broker serves a new connection from this address. It closes others within one window."""
    with connect(cluster, source) as connection:
        try:
            connection.send(frame(ApiVersionsRequest(), 0))
            connection.answer(ApiVersionsResponse, 0)
        except ConnectionError:
            return False
    return True


def test_address_above_its_connection_rate_is_refused_after_a_delay(cluster: LocalCluster) -> None:
    set_quota(cluster, QuotaEntity(ip="127.0.0.2"), connection_creation_rate=2)

    def is_refused_late() -> bool:
        began = time.monotonic()
        return not is_served(cluster, "127.0.0.2") and time.monotonic() - began > 0.02

    eventually(is_refused_late, "a connection that is refused after a delay")
    assert is_served(cluster, "127.0.0.3"), "another address"
    eventually(lambda: is_served(cluster, "127.0.0.2"), "the rate is met")


def test_default_connection_rate_applies_to_every_address(cluster: LocalCluster) -> None:
    set_quota(cluster, QuotaEntity(ip="<default>"), connection_creation_rate=1)
    set_quota(cluster, QuotaEntity(ip="127.0.0.1"), connection_creation_rate=1000)
    for source in ("127.0.0.4", "127.0.0.5"):
        eventually(lambda source=source: not is_served(cluster, source), "a refused connection")  # type: ignore[misc]
    assert is_served(cluster, "127.0.0.1")


def test_connections_above_the_rate_of_a_listener_wait_and_are_served(
    cluster: LocalCluster,
) -> None:
    setting = "listener.name.plaintext.max.connection.creation.rate"
    broker = ConfigResource(ResourceType.BROKER, "1")

    def change(value: str | None) -> None:
        with Cluster(cluster.bootstrap_servers) as client:
            changes = {broker: [ConfigChange(setting, value)]}
            (error,) = ConfigAdmin(client).incremental_alter_configs(changes).values()
        assert error is None

    def seconds_of_three() -> float:
        began = time.monotonic()
        assert all(is_served(cluster, "127.0.0.1") for _ in range(3))
        return time.monotonic() - began

    change("1")
    try:
        eventually(lambda: seconds_of_three() > 1.0, "a slow listener")
    finally:
        change("1000000")
    eventually(lambda: seconds_of_three() < 1.0, "a fast listener")
