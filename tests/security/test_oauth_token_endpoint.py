"""Tokens of an OAuth server: brokers log in to each other with them, and the Python client and commands at brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas import ApiError, LocalCluster
from barnabas.cli.main import run_command
from barnabas.client.cluster import Cluster, Unreachable
from barnabas.cluster.client_settings import jaas_line
from barnabas.cluster.peer_client import peer_client_security
from barnabas.config.properties import properties_text
from barnabas.errors import ConfigError, ErrorCode
from barnabas.security import client_sources
from barnabas.security.client_sources import load_security
from barnabas.security.sasl.mechanism import OAUTHBEARER
from tests.security.logins import AUDIENCE, ISSUER, TokenIssuer
from tests.security.token_server import TokenServer, token_server

TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": OAUTHBEARER,
    "sasl.jaas.config": jaas_line(OAUTHBEARER, clientId="app", clientSecret="app-s3cret"),
}


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("keys") / "jwks.json")


@pytest.fixture(scope="module")
def server(issuer: TokenIssuer) -> Iterator[TokenServer]:
    with token_server(issuer, {"broker": "br0ker:s3cret", "app": "app-s3cret"}) as running:
        yield running


def cluster_settings(issuer: TokenIssuer, url: str) -> dict[str, str]:
    jaas = jaas_line(
        OAUTHBEARER, clientId="broker", clientSecret="br0ker:s3cret", scope="all brokers"
    )
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": OAUTHBEARER,
        "sasl.mechanism.inter.broker.protocol": OAUTHBEARER,
        "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.plaintext.oauthbearer.sasl.jaas.config": jaas,
        f"listener.name.plaintext.oauthbearer.{TOKEN_URL}": url,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker;User:app",
        "default.replication.factor": "2",
        "min.insync.replicas": "2",
    }


@pytest.fixture(scope="module")
def cluster(issuer: TokenIssuer, server: TokenServer) -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, settings=cluster_settings(issuer, server.url)) as running:
        yield running


def produce(cluster: LocalCluster, issuer: TokenIssuer) -> None:
    """Produce a record with acks=all, which needs a follower. Creates the topic."""
    failed: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": OAUTHBEARER,
            "oauth_cb": lambda _: (issuer.token(sub="app"), 4e9),
        }
    )
    producer.produce("replicated", b"x", on_delivery=on_delivery)
    assert producer.flush(60) == 0
    assert not failed


def test_brokers_log_in_with_tokens_of_the_server(
    cluster: LocalCluster, issuer: TokenIssuer, server: TokenServer
) -> None:
    produce(cluster, issuer)
    assert set(server.scopes) == {"all brokers"}


def test_connections_of_a_broker_share_a_token(cluster: LocalCluster, server: TokenServer) -> None:
    """Each broker has two users of tokens: replication, and requests of the controller."""
    assert len(server.scopes) <= 2 * len(cluster.brokers)


def test_brokers_read_their_token_from_a_file(issuer: TokenIssuer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(issuer.token(sub="broker") + "\n")
    with LocalCluster(brokers=2, settings=cluster_settings(issuer, file.as_uri())) as running:
        produce(running, issuer)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({TOKEN_URL: ""}, "brokers need a token to log in to each other"),
        ({TOKEN_URL: "ftp://127.0.0.1/token"}, "must begin with https://"),
        ({"sasl.jaas.config": jaas_line(OAUTHBEARER, clientId="x")}, "needs the options clientId"),
    ],
)
def test_broker_without_a_source_of_tokens_does_not_start(
    issuer: TokenIssuer, change: dict[str, str], why: str
) -> None:
    settings = cluster_settings(issuer, "http://127.0.0.1:1/token")
    settings |= {
        f"listener.name.plaintext.oauthbearer.{name}": text for name, text in change.items()
    }
    with pytest.raises(ConfigError, match=why):
        LocalCluster(settings=settings).start()


def test_supervisor_of_a_node_logs_in_like_a_broker(cluster: LocalCluster) -> None:
    instance = cluster.brokers[1].instance
    assert instance is not None
    security = peer_client_security(instance.broker.config)
    with Cluster(cluster.bootstrap_servers, security=security) as client:
        assert len(client.refresh([]).brokers) == 2
    assert "s3cret" not in repr(security)


def test_command_requests_a_token_with_the_settings_of_kafka(
    cluster: LocalCluster, server: TokenServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(properties_text({**CLIENT, TOKEN_URL: server.url}))
    where = ["-b", cluster.bootstrap_servers, "--command-config", str(file)]
    assert run_command(["topics", "list", *where]) == 0
    assert "error" not in capsys.readouterr().err


def client_error(cluster: LocalCluster, settings: dict[str, str]) -> ApiError:
    security = load_security({**CLIENT, **settings})
    with (
        pytest.raises(ApiError) as raised,
        Cluster(cluster.bootstrap_servers, security=security, timeout_s=30) as client,
    ):
        client.refresh([])
    return raised.value


def test_wrong_secret_is_a_refused_login(cluster: LocalCluster, server: TokenServer) -> None:
    wrong = jaas_line(OAUTHBEARER, clientId="app", clientSecret="wr0ng")
    error = client_error(cluster, {TOKEN_URL: server.url, "sasl.jaas.config": wrong})
    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "HTTP Error 401" in str(error)
    assert "wr0ng" not in str(error)


def test_unreachable_oauth_server_is_an_error_that_clients_retry(cluster: LocalCluster) -> None:
    error = client_error(cluster, {TOKEN_URL: "http://127.0.0.1:1/token?key=hidden"})
    assert isinstance(error, Unreachable)
    assert "cannot read http://127.0.0.1" in str(error)
    assert "hidden" not in str(error)


def test_clients_of_a_process_share_a_token_and_survive_an_outage(
    cluster: LocalCluster, issuer: TokenIssuer
) -> None:
    with token_server(issuer, {"app": "app-s3cret"}) as own:
        security = load_security({**CLIENT, TOKEN_URL: own.url})
        for _ in range(3):
            with Cluster(cluster.bootstrap_servers, security=security) as client:
                client.refresh([])
        assert len(own.scopes) == 1
    (cached,) = (
        each for request, each in client_sources.cached_tokens.items() if request.url == own.url
    )
    cached.renew_at = 0.0  # a new token is due
    with Cluster(cluster.bootstrap_servers, security=security) as client:
        assert client.refresh([]).brokers


def test_client_requests_another_token_after_a_refusal(
    cluster: LocalCluster, issuer: TokenIssuer, tmp_path: Path
) -> None:
    untrusted = TokenIssuer(tmp_path / "other.json")
    with token_server(untrusted, {"app": "app-s3cret"}) as own:
        settings = {TOKEN_URL: own.url}
        error = client_error(cluster, settings)
        assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        own.issuer = issuer
        with Cluster(
            cluster.bootstrap_servers, security=load_security({**CLIENT, **settings})
        ) as client:
            assert client.refresh([]).brokers
