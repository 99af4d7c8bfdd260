"""producer_byte_rate and consumer_byte_rate through the wire: throttle times, and the delay of a connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from barnabas import LocalCluster
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, QuotaEntity
from barnabas.wire.messages.fetch import FetchResponse
from barnabas.wire.messages.produce import ProduceResponse
from support.waiting import eventually
from tests.compatibility.raw import Raw, batch_of, fetch_request, produce_request

RATE = 100_000
TOPIC = "limited"
BATCH = batch_of(bytes(40_000))
OF_RAW = QuotaEntity(client_id="raw")


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Each test starts with empty windows: two of one second."""
    with LocalCluster(settings={"quota.window.num": 2}) as running:
        yield running


@pytest.fixture
def raw(cluster: LocalCluster) -> Iterator[Raw]:
    with Raw(cluster.bootstrap_servers) as connection:
        connection.create_topic(TOPIC)
        yield connection


def set_quota(cluster: LocalCluster, entity: QuotaEntity = OF_RAW, **rates: float | None) -> None:
    with Cluster(cluster.bootstrap_servers) as client:
        (error,) = ConfigAdmin(client).alter_client_quotas({entity: rates}).values()
    assert error is None


def produce(raw: Raw, *, acks: int = -1) -> int:
    """Produce one batch. Return the throttle time in ms."""
    response = raw.ask(produce_request(TOPIC, BATCH, acks=acks), ProduceResponse)
    (result,) = response.responses[0].partition_responses
    assert result.error_code == 0
    return response.throttle_time_ms


def fetch(raw: Raw) -> int:
    """Fetch from the beginning. Return the throttle time in ms."""
    response = raw.ask(fetch_request(TOPIC, {0: 0}), FetchResponse, 12)
    assert response.throttle_time_ms or response.responses[0].partitions[0].records
    return response.throttle_time_ms


def first_throttle_ms(request: Callable[[], int]) -> int:
    """Send requests until one is throttled: the broker learns of a new quota soon after the change."""
    times: list[int] = []

    def is_throttled() -> bool:
        times.append(request())
        return times[-1] > 0

    eventually(is_throttled, "a throttled request")
    return times[-1]


def seconds_of(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


@pytest.mark.parametrize("acks", [1, -1])
def test_producer_above_its_rate_waits(cluster: LocalCluster, raw: Raw, acks: int) -> None:
    assert produce(raw, acks=acks) == 0
    set_quota(cluster, producer_byte_rate=RATE)
    throttle_ms = first_throttle_ms(lambda: produce(raw, acks=acks))
    assert 0 < throttle_ms <= 2000
    assert seconds_of(lambda: fetch(raw)) > 0.9 * throttle_ms / 1000, "the connection is not read"
    assert fetch(raw) == 0, "consumers have another quota"
    set_quota(cluster, producer_byte_rate=None)
    eventually(lambda: produce(raw) == 0, "no quota")


def test_consumer_above_its_rate_waits(cluster: LocalCluster, raw: Raw) -> None:
    for _ in range(4):
        produce(raw)
    assert fetch(raw) == 0
    set_quota(cluster, consumer_byte_rate=RATE)
    throttle_ms = first_throttle_ms(lambda: fetch(raw))
    assert 0 < throttle_ms <= 2000
    assert seconds_of(lambda: produce(raw)) > 0.9 * throttle_ms / 1000


def test_requests_in_flight_are_answered_in_order(cluster: LocalCluster, raw: Raw) -> None:
    set_quota(cluster, producer_byte_rate=RATE)
    first_throttle_ms(lambda: produce(raw))
    sent = [raw.begin(produce_request(TOPIC, BATCH, acks=-1)) for _ in range(5)]
    offsets = []
    for each in sent:
        (result,) = raw.answer(ProduceResponse, *each).responses[0].partition_responses
        offsets.append(result.base_offset)
    assert offsets == sorted(set(offsets))


@pytest.mark.parametrize("entity", [OF_RAW, QuotaEntity(user="ANONYMOUS", client_id="raw")])
def test_quota_is_known_after_a_restart_and_applies_to_no_other_client(
    cluster: LocalCluster, raw: Raw, entity: QuotaEntity
) -> None:
    set_quota(cluster, entity, producer_byte_rate=1)
    (broker,) = cluster.brokers.values()
    broker.stop()
    broker.start()
    with Raw(cluster.bootstrap_servers) as again:
        assert produce(again) > 0
    throttled: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "other",
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    for _ in range(100):
        producer.produce(TOPIC, bytes(10_000))
    assert producer.flush(10) == 0
    assert not throttled


def test_librdkafka_reports_the_throttle_time(cluster: LocalCluster, raw: Raw) -> None:
    set_quota(cluster, producer_byte_rate=RATE)
    first_throttle_ms(lambda: produce(raw))
    throttled: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "raw",
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    producer.produce(TOPIC, bytes(40_000))
    assert producer.flush(10) == 0
    eventually(lambda: producer.poll(0.1) >= 0 and bool(throttled), "a throttle time")
