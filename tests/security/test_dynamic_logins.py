"""Settings of logins change while a broker runs: mechanisms of one listener and of all listeners."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.security.sasl.mechanism import (
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.waiting import eventually
from tests.security.logins import (
    PASSWORD,
    PLAIN_USERS,
    USER,
    SaslConnection,
    TokenIssuer,
    alter_broker,
    client_of,
    confluent_error,
    sasl_cluster,
    sasl_servers,
)
from tests.security.test_sasl_between_brokers import PLAIN_SETTINGS

ALL = "sasl.enabled.mechanisms"
CLIENTS = f"listener.name.clients.{ALL}"
OTHER = "OTHER"
METADATA = MetadataRequest(topics=())
STATIC = (PLAIN, SCRAM_SHA_256)


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("keys") / "jwks.json")


@pytest.fixture(scope="module")
def running(issuer: TokenIssuer) -> Iterator[LocalCluster]:
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0,{OTHER}://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,"
        f"{OTHER}:SASL_PLAINTEXT",
        ALL: ",".join(STATIC),
        "sasl.jaas.config": PLAIN_USERS,
        "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
    }
    with sasl_cluster(settings) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: LocalCluster) -> Iterator[LocalCluster]:
    yield running
    for name in (ALL, CLIENTS):
        alter(running, name, None)
    for listener in ("CLIENTS", OTHER):
        expect_mechanisms(running, STATIC, listener)


def alter(cluster: LocalCluster, name: str, value: str | None) -> None:
    alter_broker({"bootstrap.servers": cluster.brokers[1].address}, name, value)


def enabled(cluster: LocalCluster, listener: str = "CLIENTS") -> tuple[str, ...]:
    """Return the mechanisms that a new connection may use."""
    with SaslConnection(sasl_servers(cluster, listener)) as connection:
        return tuple(connection.shake_hands("NONE").mechanisms)


def expect_mechanisms(
    cluster: LocalCluster, expected: tuple[str, ...], listener: str = "CLIENTS"
) -> None:
    eventually(lambda: enabled(cluster, listener) == expected, f"{listener} has {expected}")


def log_in(cluster: LocalCluster, mechanism: str) -> SaslConnection:
    connection = SaslConnection(sasl_servers(cluster))
    assert connection.log_in(client_of(mechanism)).error_code == 0
    return connection


def client_settings(cluster: LocalCluster, mechanism: str) -> dict[str, str]:
    return {
        "bootstrap.servers": sasl_servers(cluster),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


def test_mechanisms_of_a_listener_apply_to_new_logins(cluster: LocalCluster) -> None:
    with log_in(cluster, SCRAM_SHA_256) as earlier:
        alter(cluster, CLIENTS, f"{SCRAM_SHA_512},{PLAIN}")
        expect_mechanisms(cluster, (SCRAM_SHA_512, PLAIN))
        assert enabled(cluster, OTHER) == STATIC, "another listener"
        assert earlier.ask(METADATA, MetadataResponse).brokers, "the connection stays"
        with log_in(cluster, PLAIN) as later:
            assert later.ask(METADATA, MetadataResponse).brokers


def test_clients_use_a_mechanism_after_it_is_enabled(cluster: LocalCluster) -> None:
    settings = client_settings(cluster, SCRAM_SHA_512)
    why = f"supported mechanisms: {','.join(STATIC)}"
    confluent_error(settings, {KafkaError._AUTHENTICATION}, why)
    alter(cluster, CLIENTS, SCRAM_SHA_512)
    expect_mechanisms(cluster, (SCRAM_SHA_512,))
    producer = Producer(settings)
    producer.produce("any", b"x")
    assert producer.flush(60) == 0


def test_oauthbearer_is_enabled_while_running(cluster: LocalCluster, issuer: TokenIssuer) -> None:
    alter(cluster, CLIENTS, OAUTHBEARER)
    expect_mechanisms(cluster, (OAUTHBEARER,))
    producer = Producer(
        {
            "bootstrap.servers": sasl_servers(cluster),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": OAUTHBEARER,
            "oauth_cb": lambda _: (issuer.token(), 2_000_000_000),
        }
    )
    producer.produce("any", b"x")
    assert producer.flush(60) == 0


def test_setting_of_all_listeners_applies_to_those_without_their_own(
    cluster: LocalCluster,
) -> None:
    alter(cluster, CLIENTS, PLAIN)
    alter(cluster, ALL, SCRAM_SHA_512)
    expect_mechanisms(cluster, (SCRAM_SHA_512,), OTHER)
    assert enabled(cluster) == (PLAIN,)


def test_change_stays_after_a_restart(cluster: LocalCluster) -> None:
    alter(cluster, CLIENTS, SCRAM_SHA_512)
    expect_mechanisms(cluster, (SCRAM_SHA_512,))
    cluster.brokers[1].stop()
    cluster.brokers[1].start()
    assert enabled(cluster) == (SCRAM_SHA_512,)


@pytest.mark.parametrize(
    ("name", "value", "code", "why"),
    [
        (CLIENTS, "GSSAPI", ErrorCode.INVALID_REQUEST, "set it to one or more of PLAIN"),
        (CLIENTS, "", ErrorCode.INVALID_REQUEST, "set it to one or more of PLAIN"),
        *(
            (f"listener.name.clients.{each}", "1000", ErrorCode.INVALID_REQUEST, "restart")
            for each in (
                "connections.max.reauth.ms",
                "plain.connections.max.reauth.ms",
                "sasl.server.max.receive.size",
                "connection.failed.authentication.delay.ms",
                "oauthbearer.sasl.oauthbearer.jwks.endpoint.url",
                "oauthbearer.sasl.oauthbearer.expected.issuer",
            )
        ),
        (
            "listener.name.clients.plain.sasl.jaas.config",
            PLAIN_USERS,
            ErrorCode.INVALID_CONFIG,
            "set it in server.properties",
        ),
        ("sasl.jaas.config", PLAIN_USERS, ErrorCode.INVALID_CONFIG, "set it in server.properties"),
        ("authorizer.class.name", "any:Class", ErrorCode.INVALID_REQUEST, "restart"),
    ],
)
def test_other_changes_are_rejected(
    cluster: LocalCluster, name: str, value: str, code: ErrorCode, why: str
) -> None:
    with pytest.raises(KafkaException) as caught:
        alter(cluster, name, value)
    error = caught.value.args[0]
    assert error.name() == code.name
    assert name in error.str() or ALL in error.str()
    assert why in error.str()
    assert PASSWORD not in error.str()
    assert enabled(cluster) == STATIC
    with log_in(cluster, PLAIN) as connection:
        assert connection.ask(METADATA, MetadataResponse).brokers


def test_mechanism_between_brokers_cannot_be_disabled() -> None:
    with LocalCluster(settings=PLAIN_SETTINGS) as cluster:
        login = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": PLAIN,
            "sasl.username": "broker",
            "sasl.password": "broker-secret",
        }
        with pytest.raises(KafkaException, match="must contain PLAIN, the mechanism between"):
            alter_broker(login, f"listener.name.plaintext.{ALL}", SCRAM_SHA_512)
        alter_broker(login, f"listener.name.plaintext.{ALL}", f"{SCRAM_SHA_512},{PLAIN}")
