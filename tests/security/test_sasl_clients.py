"""Logins of client libraries with each mechanism, and the errors that they report. test_tls_logins.py adds TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

from barnabas import LocalCluster
from barnabas.security.sasl.mechanism import MECHANISMS, OAUTHBEARER, PLAIN, SCRAM_SHA_512
from tests.security.logins import (
    AUDIENCE,
    ISSUER,
    PASSWORD,
    USER,
    TokenIssuer,
    confluent_error,
    first_message,
    kafka_python_failure,
    sasl_cluster,
    sasl_servers,
)

NUMBERS = count()
PASSWORDS = [each for each in MECHANISMS if each != OAUTHBEARER]
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed .*(socket|transport):ResourceWarning"),
    pytest.mark.usefixtures("collect_leaked_sockets"),
]


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("keys") / "jwks.json")


@pytest.fixture(scope="module")
def cluster(issuer: TokenIssuer) -> Iterator[LocalCluster]:
    settings = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    with sasl_cluster(settings) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    return cluster.create_topic(f"logins-{next(NUMBERS)}")


# ---- confluent-kafka


def confluent_settings(
    cluster: LocalCluster,
    mechanism: str,
    password: str,
    issuer: TokenIssuer,
    ca: Path | None = None,
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": sasl_servers(cluster),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    if mechanism == OAUTHBEARER:
        return settings | {"oauth_cb": lambda _: (issuer.token(), 2_000_000_000)}
    return settings | {"sasl.username": USER, "sasl.password": password}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_produces_and_consumes(
    cluster: LocalCluster, topic: str, mechanism: str, issuer: TokenIssuer
) -> None:
    settings = confluent_settings(cluster, mechanism, PASSWORD, issuer)
    producer = Producer(settings)
    producer.produce(topic, mechanism.encode())
    assert producer.flush(60) == 0
    assert first_message(settings, topic).value() == mechanism.encode()


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_confluent_kafka_reports_wrong_password(
    cluster: LocalCluster, mechanism: str, issuer: TokenIssuer
) -> None:
    settings = confluent_settings(cluster, mechanism, "wrong", issuer)
    confluent_error(settings, {KafkaError._AUTHENTICATION}, "due to invalid credentials")


# ---- kafka-python


class OneToken(KafkaPythonTokens):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self.value = token

    def token(self) -> str:
        return self.value


def kafka_python_settings(
    cluster: LocalCluster,
    mechanism: str,
    password: str,
    issuer: TokenIssuer,
    ca: Path | None = None,
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": sasl_servers(cluster),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == OAUTHBEARER:
        return settings | {"sasl_oauth_token_provider": OneToken(issuer.token())}
    return settings | {"sasl_plain_username": USER, "sasl_plain_password": password}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_produces_and_consumes(
    cluster: LocalCluster, topic: str, mechanism: str, issuer: TokenIssuer
) -> None:
    settings = kafka_python_settings(cluster, mechanism, PASSWORD, issuer)
    producer = KafkaProducer(**settings)
    producer.send(topic, mechanism.encode()).get(60)
    producer.close()
    consumer = KafkaConsumer(topic, **settings, auto_offset_reset="earliest")
    message = next(consumer)
    consumer.close()
    assert message.value == mechanism.encode()


def test_kafka_python_reports_wrong_password(cluster: LocalCluster, issuer: TokenIssuer) -> None:
    settings = kafka_python_settings(cluster, SCRAM_SHA_512, "wrong", issuer)
    log = kafka_python_failure(settings, "due to invalid credentials")
    assert "SaslAuthenticationFailed" in log
    assert "due to invalid credentials" in log


# ---- aiokafka


class OneAiokafkaToken(AiokafkaTokens):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self.value = token

    async def token(self) -> str:
        return self.value


def aiokafka_settings(
    cluster: LocalCluster,
    mechanism: str,
    password: str,
    issuer: TokenIssuer,
    ca: Path | None = None,
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": sasl_servers(cluster),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == OAUTHBEARER:
        return settings | {"sasl_oauth_token_provider": OneAiokafkaToken(issuer.token())}
    return settings | {"sasl_plain_username": USER, "sasl_plain_password": password}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_produces_and_consumes(
    cluster: LocalCluster, topic: str, mechanism: str, issuer: TokenIssuer
) -> None:
    async def run() -> bytes:
        settings = aiokafka_settings(cluster, mechanism, PASSWORD, issuer)
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, mechanism.encode())
        async with AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
            message = await asyncio.wait_for(consumer.getone(), 60)
            value: bytes = message.value
            return value

    assert asyncio.run(run()) == mechanism.encode()


def test_aiokafka_reports_wrong_password(
    cluster: LocalCluster, issuer: TokenIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(**aiokafka_settings(cluster, PLAIN, "wrong", issuer))
        with pytest.raises(KafkaConnectionError):
            await producer.start()
        await producer.stop()

    asyncio.run(run())
    assert "SaslAuthenticationFailed" in caplog.text
    assert "due to invalid credentials" in caplog.text


def test_token_signed_with_new_key_is_accepted(
    cluster: LocalCluster,
    topic: str,
    tmp_path: Path,
    issuer: TokenIssuer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("barnabas.broker.security.bearer_tokens.UNKNOWN_KEY_SECONDS", 0.0)
    rotated = TokenIssuer(tmp_path / "jwks.json", "second")
    issuer.path.write_text(rotated.path.read_text())
    try:
        producer = Producer(confluent_settings(cluster, OAUTHBEARER, "", rotated))
        producer.produce(topic, b"x")
        assert producer.flush(60) == 0
    finally:
        issuer.publish()
