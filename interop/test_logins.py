"""Kafka's Java tools log in with each mechanism, over TLS and without."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.cluster.client_settings import ClientAccess, jaas_line, kafka_settings
from barnabas.config.properties import properties_text
from barnabas.model import SecurityProtocol
from barnabas.security.sasl.mechanism import MECHANISMS, OAUTHBEARER, PLAIN, SCRAM_SHA_512
from interop.harness.tools import TIMEOUT_S, Outcome, Tools
from tests.security.logins import AUDIENCE, ISSUER, TokenIssuer, sasl_servers
from tests.security.test_up_secure import SecureCluster

USER, PASSWORD = "alice", "alice's secret"
TOPIC = "orders"
TLS, PLAINTEXT = SecurityProtocol.SASL_SSL, SecurityProtocol.SASL_PLAINTEXT
TOKEN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
ALLOWED_URLS = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
REFUSED = "SaslAuthenticationException"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("keys") / "jwks.json")


@pytest.fixture(scope="module")
def cluster(issuer: TokenIssuer) -> Iterator[LocalCluster]:
    settings = {
        "listeners": f"{TLS.name}://127.0.0.1:0,{PLAINTEXT.name}://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.jaas.config": jaas_line(PLAIN, user_alice=PASSWORD),
    }
    with LocalCluster(security=TLS.name, users={USER: PASSWORD}, settings=settings) as running:
        running.create_topic(TOPIC)
        yield running


def test_printed_lines_of_a_secure_cluster_work(tools: Tools, tmp_path: Path) -> None:
    """The lines of `barnabas up --secure` for Kafka's tools. Those for Java read the same file."""
    cluster = SecureCluster(tmp_path / "größe 1", "--topic=greetings")
    try:
        name, *arguments = shlex.split(cluster.block("Kafka's tools"))
        outcome = tools.run(name.removesuffix(".sh"), *arguments)
        java = cluster.block("Java")
    finally:
        cluster.stop()
    assert outcome.exit_code == 0, outcome
    assert "greetings" in outcome.lines
    assert f"FileReader({json.dumps(arguments[-1])})" in java


def login_settings(
    cluster: LocalCluster,
    protocol: SecurityProtocol,
    mechanism: str,
    *,
    user: str = USER,
    password: str = PASSWORD,
) -> dict[str, str]:
    assert cluster.security is not None
    servers = sasl_servers(cluster, protocol.name)
    ca = cluster.security.files.ca if protocol.has_tls else None
    return kafka_settings(
        ClientAccess(servers, protocol, ca, mechanism=mechanism, user=user, password=password)
    )


def with_token(settings: Mapping[str, str], token: str, directory: Path) -> dict[str, str]:
    """Return the settings of a login with a token, which Java reads from a file."""
    path = directory / "token.jwt"
    path.write_text(token)
    return {
        **settings,
        "sasl.jaas.config": jaas_line(OAUTHBEARER),
        "sasl.login.callback.handler.class": TOKEN_HANDLER,
        "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
    }


def list_topics(tools: Tools, settings: Mapping[str, str], directory: Path) -> Outcome:
    config = directory / "client.properties"
    config.write_text(properties_text(settings))
    url = settings.get("sasl.oauthbearer.token.endpoint.url")
    options = tools.class_archive_options + ((f"{ALLOWED_URLS}={url}",) if url else ())
    return tools.start(
        "kafka-topics",
        *("--list", "--bootstrap-server", settings["bootstrap.servers"]),
        *("--command-config", str(config)),
        options=options,
        stdin="",
        timeout=TIMEOUT_S,
    )


@pytest.mark.parametrize("protocol", [TLS, PLAINTEXT], ids=lambda each: each.name)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_tool_logs_in(
    tools: Tools,
    cluster: LocalCluster,
    issuer: TokenIssuer,
    tmp_path: Path,
    protocol: SecurityProtocol,
    mechanism: str,
) -> None:
    settings = login_settings(cluster, protocol, mechanism)
    if mechanism == OAUTHBEARER:
        settings = with_token(settings, issuer.token(scope="orders"), tmp_path)
    outcome = list_topics(tools, settings, tmp_path)
    assert outcome.exit_code == 0, outcome
    assert TOPIC in outcome.lines


@pytest.mark.parametrize("wrong", ["user", "password"])
def test_java_tool_reports_wrong_credentials(
    tools: Tools, cluster: LocalCluster, tmp_path: Path, wrong: str
) -> None:
    settings = login_settings(cluster, TLS, SCRAM_SHA_512, **{wrong: "mallory"})
    outcome = list_topics(tools, settings, tmp_path)
    assert outcome.exit_code != 0
    assert REFUSED in outcome.stdout + outcome.stderr
    assert "invalid credentials" in outcome.stdout + outcome.stderr


@pytest.mark.parametrize("wrong", ["expired", "issuer"])
def test_java_tool_reports_invalid_token(
    tools: Tools, cluster: LocalCluster, issuer: TokenIssuer, tmp_path: Path, wrong: str
) -> None:
    now = int(time.time())
    expired = {"iat": now - 3600, "exp": now - 60}
    claims = expired if wrong == "expired" else {"iss": "https://other.example"}
    token = issuer.token(scope="orders", **claims)
    settings = with_token(login_settings(cluster, TLS, OAUTHBEARER), token, tmp_path)
    outcome = list_topics(tools, settings, tmp_path)
    assert outcome.exit_code != 0
    assert REFUSED in outcome.stdout + outcome.stderr
    assert "invalid credentials" in outcome.stdout + outcome.stderr
