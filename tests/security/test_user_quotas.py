"""Quotas of authenticated users, and connection rates of a listener with TLS."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas import LocalCluster
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, QuotaEntity
from barnabas.errors import ErrorCode
from barnabas.security.sasl.plain import PlainClient
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.messages.produce import ProduceResponse
from support.certificates import CertificateFiles
from support.waiting import eventually
from tests.compatibility.raw import batch_of, produce_request
from tests.security.logins import PASSWORD, SaslConnection, sasl_cluster, sasl_servers

TOPIC = "limited"
RATE = 100_000
ALICE, BOB = ("alice", PASSWORD), ("bob", "bob-secret")
NUMBERS = count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with sasl_cluster({"quota.window.num": "2", "controller.quota.window.num": "2"}) as running:
        running.create_topic(TOPIC)
        yield running


@pytest.fixture(autouse=True)
def no_quotas(cluster: LocalCluster) -> Iterator[None]:
    yield
    with Cluster(cluster.bootstrap_servers) as client:
        admin = ConfigAdmin(client)
        found = admin.describe_client_quotas()
        removed = {key: dict.fromkeys(each) for key, each in found.items()}
        assert not any(admin.alter_client_quotas(removed).values())


def set_quota(cluster: LocalCluster, entity: QuotaEntity, **rates: float) -> None:
    with Cluster(cluster.bootstrap_servers) as client:
        (error,) = ConfigAdmin(client).alter_client_quotas({entity: rates}).values()
    assert error is None


def log_in(cluster: LocalCluster, login: tuple[str, str]) -> SaslConnection:
    connection = SaslConnection(sasl_servers(cluster))
    assert not connection.log_in(PlainClient(*login)).error_code
    return connection


def produce(cluster: LocalCluster, login: tuple[str, str]) -> int:
    """Produce more than the rate of one second. Return the throttle time in ms."""
    with log_in(cluster, login) as connection:
        request = produce_request(TOPIC, batch_of(bytes(RATE)))
        return connection.ask(request, ProduceResponse).throttle_time_ms


def test_user_above_its_rate_is_throttled_and_another_user_is_not(cluster: LocalCluster) -> None:
    set_quota(cluster, QuotaEntity(user="alice"), producer_byte_rate=RATE)
    eventually(lambda: produce(cluster, ALICE) > 0, "the quota of alice")
    assert produce(cluster, BOB) == 0


def test_default_of_users_is_a_rate_for_each_user(cluster: LocalCluster) -> None:
    set_quota(cluster, QuotaEntity(user="<default>"), producer_byte_rate=10 * RATE)
    set_quota(cluster, QuotaEntity(user="alice"), producer_byte_rate=RATE)
    eventually(lambda: produce(cluster, ALICE) > 0, "the quota of alice")
    assert produce(cluster, BOB) == 0, "10 times the rate"


def test_quota_of_a_user_and_client_id_overrides_that_of_the_user(cluster: LocalCluster) -> None:
    set_quota(cluster, QuotaEntity(user="alice"), producer_byte_rate=1)
    eventually(lambda: produce(cluster, ALICE) > 0, "the quota of alice")
    own = QuotaEntity(user="alice", client_id="raw")
    set_quota(cluster, own, producer_byte_rate=1000 * RATE)
    eventually(lambda: produce(cluster, ALICE) == 0, "the quota of her client id")


def test_request_time_counts_for_the_user(cluster: LocalCluster) -> None:
    def ask(login: tuple[str, str]) -> int:
        with log_in(cluster, login) as connection:
            return connection.ask(MetadataRequest(topics=None), MetadataResponse).throttle_time_ms

    set_quota(cluster, QuotaEntity(user="alice"), request_percentage=0.0001)
    eventually(lambda: ask(ALICE) > 0, "the quota of alice")
    assert ask(BOB) == 0


def test_partitions_count_for_the_user(cluster: LocalCluster) -> None:
    def create(login: tuple[str, str]) -> ErrorCode:
        topic = CreatableTopic(f"created-{next(NUMBERS)}", 4, 1)
        with log_in(cluster, login) as connection:
            request = CreateTopicsRequest(topics=(topic,), timeout_ms=10_000)
            (result,) = connection.ask(request, CreateTopicsResponse).topics
        return ErrorCode(result.error_code)

    set_quota(cluster, QuotaEntity(user="alice"), controller_mutation_rate=0.1)
    assert create(ALICE) is ErrorCode.NONE, "a request may exceed the rate"
    eventually(lambda: create(ALICE) is ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the quota of alice")
    assert create(BOB) is ErrorCode.NONE


def test_confluent_producer_reports_the_throttle_time_of_its_user(cluster: LocalCluster) -> None:
    set_quota(cluster, QuotaEntity(user="alice"), producer_byte_rate=RATE)
    eventually(lambda: produce(cluster, ALICE) > 0, "the quota of alice")
    throttled: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": sasl_servers(cluster),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )

    def is_throttled() -> bool:
        """Exceed the rate. On a busy machine, the rate may have been met before a single record arrives."""
        if not len(producer):
            producer.produce(TOPIC, bytes(RATE))
        producer.poll(0.01)
        return bool(throttled)

    eventually(is_throttled, "a throttle time")
    assert producer.flush(60) == 0


def test_connection_above_the_rate_is_closed_without_a_tls_handshake(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path)
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.server),
        "quota.window.num": "2",
    }
    with LocalCluster(settings=settings) as cluster:
        set_quota(cluster, QuotaEntity(ip="127.0.0.2"), connection_creation_rate=0)
        host, _, port = sasl_servers(cluster, "SECURE").rpartition(":")

        def is_closed() -> bool:
            """Whether the broker closes the connection although the client sends nothing."""
            source = ("127.0.0.2", 0)
            with socket.create_connection((host, int(port)), 3, source_address=source) as client:
                try:
                    return client.recv(1) == b""
                except TimeoutError:
                    return False

        eventually(is_closed, "a refused connection")
