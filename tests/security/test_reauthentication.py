"""Logins that expire (connections.max.reauth.ms): clients log in again on the same connection."""

from __future__ import annotations

import time
from collections.abc import Iterator

import jwt
import pytest
from confluent_kafka import Producer

from barnabas import LocalCluster
from barnabas.broker.security import login
from barnabas.broker.security.logins import LoginCounts
from barnabas.errors import ErrorCode
from barnabas.security.sasl.mechanism import OAUTHBEARER, PLAIN, SCRAM_SHA_256
from barnabas.security.sasl.oauthbearer import BearerClient
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.waiting import eventually
from tests.security.logins import (
    PASSWORD,
    PLAIN_USERS,
    USER,
    SaslConnection,
    TokenIssuer,
    client_of,
    sasl_cluster,
    sasl_servers,
)

METADATA = MetadataRequest(topics=())
REAUTH_MS = 600_000
"""Lifetime of logins on the listener CLIENTS. They do not expire during a test."""
EXPIRING = "EXPIRING"
"""A listener whose logins expire soon."""
EXPIRING_MS = {"plain": "200", "scram-sha-256": "1000"}


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("keys") / "jwks.json")


@pytest.fixture(scope="module")
def cluster(issuer: TokenIssuer) -> Iterator[LocalCluster]:
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0,{EXPIRING}://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,"
        f"{EXPIRING}:SASL_PLAINTEXT",
        "listener.name.expiring.plain.sasl.jaas.config": PLAIN_USERS,
        "connections.max.reauth.ms": str(REAUTH_MS),
        **{
            f"listener.name.expiring.{mechanism}.connections.max.reauth.ms": lifetime_ms
            for mechanism, lifetime_ms in EXPIRING_MS.items()
        },
        "listener.name.clients.oauthbearer.connections.max.reauth.ms": "0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        "sasl.oauthbearer.clock.skew.seconds": "0",
    }
    with sasl_cluster(settings) as running:
        yield running


@pytest.fixture(autouse=True)
def may_log_in_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "REAUTH_SECONDS_MIN", 0.0)


@pytest.fixture
def connection(cluster: LocalCluster) -> Iterator[SaslConnection]:
    with SaslConnection(sasl_servers(cluster)) as connection:
        yield connection


def counts_of(cluster: LocalCluster, listener: str = "CLIENTS") -> LoginCounts:
    instance = cluster.brokers[1].instance
    assert instance is not None
    assert instance.broker.security is not None
    return instance.broker.security.logins.counts[listener]


def test_response_has_the_lifetime_of_the_login(connection: SaslConnection) -> None:
    response = connection.log_in(client_of(SCRAM_SHA_256))
    assert REAUTH_MS - 60_000 < response.session_lifetime_ms <= REAUTH_MS


def test_client_logs_in_again_on_the_same_connection(
    cluster: LocalCluster, connection: SaslConnection
) -> None:
    again = counts_of(cluster).again
    for _ in range(2):
        assert connection.log_in(client_of(SCRAM_SHA_256)).error_code == 0
        assert connection.ask(METADATA, MetadataResponse).brokers
    assert counts_of(cluster).again == again + 1


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        (SCRAM_SHA_256, USER, "wrong"),
        (PLAIN, USER, PASSWORD),  # another mechanism
    ],
)
def test_failed_second_login_closes_the_connection(
    cluster: LocalCluster, connection: SaslConnection, mechanism: str, user: str, password: str
) -> None:
    failed = counts_of(cluster).failed_again
    connection.log_in(client_of(SCRAM_SHA_256))
    response = connection.log_in(client_of(mechanism, user, password))
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "re-authentication" in (response.error_message or "")
    assert connection.is_hung_up()
    assert counts_of(cluster).failed_again == failed + 1


def test_second_login_of_another_user_closes_the_connection(connection: SaslConnection) -> None:
    connection.log_in(client_of(PLAIN))
    response = connection.log_in(client_of(PLAIN, "bob", "bob-secret"))
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert connection.is_hung_up()


def test_other_request_during_second_login_closes_the_connection(
    connection: SaslConnection,
) -> None:
    connection.log_in(client_of(PLAIN))
    connection.shake_hands(PLAIN)
    connection.begin(METADATA)
    assert connection.is_hung_up()


def test_request_after_expiry_closes_the_connection(cluster: LocalCluster) -> None:
    expired = counts_of(cluster, EXPIRING).expired
    with SaslConnection(sasl_servers(cluster, EXPIRING)) as connection:
        response = connection.log_in(client_of(PLAIN))
        deadline = time.monotonic() + response.session_lifetime_ms / 1000

        def is_expired() -> bool:
            return time.monotonic() > deadline + 0.01

        eventually(is_expired, "the login has expired")
        connection.begin(METADATA)
        assert connection.is_hung_up()
    assert counts_of(cluster, EXPIRING).expired == expired + 1


def test_lifetime_ends_with_the_token(connection: SaslConnection, issuer: TokenIssuer) -> None:
    token = issuer.token(exp=int(time.time()) + 3600)
    response = connection.log_in(BearerClient(lambda: token))
    assert 3_000_000 < response.session_lifetime_ms <= 3_600_000


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1_000_000_000},
        {"exp": None},
        {"sub": None},
        {"sub": 7},
        {"iat": None},
        {"nbf": 4_000_000_000},
        {"scope": {"a": 1}},
    ],
)
def test_invalid_token_is_refused(
    connection: SaslConnection, issuer: TokenIssuer, claims: dict[str, object]
) -> None:
    token = issuer.token(**claims)
    connection.shake_hands(OAUTHBEARER)
    client = BearerClient(lambda: token)
    challenge = connection.send_token(client.start())
    assert bytes(challenge.auth_bytes) == b'{"status":"invalid_token"}'
    abort = client.respond(bytes(challenge.auth_bytes))
    assert abort is not None
    response = connection.send_token(abort)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_token_with_symmetric_signature_is_refused(
    cluster: LocalCluster, issuer: TokenIssuer
) -> None:
    forged = jwt.encode(
        {"sub": USER, "iat": 1, "exp": 4_000_000_000},
        issuer.public_key()["n"].encode(),
        algorithm="HS256",
        headers={"kid": issuer.key_id},
    )
    unsigned = jwt.encode({"sub": USER, "iat": 1, "exp": 4_000_000_000}, "", algorithm="none")
    for token in (forged, unsigned):
        with SaslConnection(sasl_servers(cluster)) as attempt:
            attempt.shake_hands(OAUTHBEARER)
            found = attempt.send_token(BearerClient(lambda token=token: token).start())  # type: ignore[misc]
            assert bytes(found.auth_bytes) == b'{"status":"invalid_token"}'


def test_confluent_kafka_logs_in_again_while_it_produces(cluster: LocalCluster) -> None:
    """On a busy machine, the client may be late. It then connects again and delivers the records."""
    topic = cluster.create_topic("reauthentication")
    again = counts_of(cluster, EXPIRING).again
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": sasl_servers(cluster, EXPIRING),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": SCRAM_SHA_256,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "linger.ms": 5,
        }
    )

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    def is_renewed() -> bool:
        producer.produce(topic, b"x", on_delivery=on_delivery)
        producer.poll(0.01)
        return counts_of(cluster, EXPIRING).again >= again + 2

    eventually(is_renewed, "the client has logged in again twice", seconds=120)
    assert producer.flush(120) == 0
    assert not failed
