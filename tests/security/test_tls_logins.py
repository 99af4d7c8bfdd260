"""Logins of client libraries over TLS with each mechanism, and kafkajs with and without TLS.

One broker has a listener for each case: a good certificate, an expired one, one for another host, and no TLS.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer

from barnabas import LocalCluster
from barnabas.cluster.client_settings import (
    ClientAccess,
    aiokafka_arguments,
    jaas_line,
    kafka_python_arguments,
    librdkafka_settings,
)
from barnabas.model import SecurityProtocol
from barnabas.security.sasl.mechanism import MECHANISMS, OAUTHBEARER, PLAIN, SCRAM_SHA_512
from barnabas.security.sasl.oauthbearer import INVALID_TOKEN, BearerClient
from barnabas.security.tls.generate import make_certificate
from support.certificates import LOCAL_HOSTS
from support.waiting import eventually
from tests.compatibility import kafkajs_client
from tests.compatibility.optional import require
from tests.security.logins import (
    AUDIENCE,
    ISSUER,
    WAIT_S,
    SaslConnection,
    TokenIssuer,
    confluent_error,
    first_message,
    kafka_python_failure,
    sasl_servers,
)
from tests.security.test_sasl_clients import OneAiokafkaToken, OneToken
from tests.tools import have_kafkajs, have_kcat

USER, PASSWORD = "alice", "correct horse"
TLS, PLAINTEXT, EXPIRED, OTHER_HOST = "SASL_SSL", "SASL_PLAINTEXT", "EXPIRED", "OTHERHOST"
LISTENERS = (TLS, PLAINTEXT, EXPIRED, OTHER_HOST)
TOPIC = "logins"
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed .*(socket|transport):ResourceWarning"),
    pytest.mark.usefixtures("collect_leaked_sockets"),
]


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("keys") / "jwks.json")


@pytest.fixture(scope="module")
def cluster(
    issuer: TokenIssuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    data = tmp_path_factory.mktemp("cluster")
    settings = {
        "listeners": ",".join(f"{each}://127.0.0.1:0" for each in LISTENERS),
        "listener.security.protocol.map": f"{TLS}:{TLS},{PLAINTEXT}:{PLAINTEXT},{EXPIRED}:{TLS},{OTHER_HOST}:{TLS}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.clock.skew.seconds": 0,
        "connection.failed.authentication.delay.ms": 1,
        "listener.name.expired.ssl.keystore.location": data / "expired.pem",
        "listener.name.otherhost.ssl.keystore.location": data / "other-host.pem",
        "sasl.jaas.config": jaas_line(PLAIN, user_alice=PASSWORD),
    }
    running = LocalCluster(data=data, security=TLS, users={USER: PASSWORD}, settings=settings)
    write_bad_certificates(running, data)
    with running:
        running.create_topic(TOPIC)
        yield running


def write_bad_certificates(cluster: LocalCluster, data: Path) -> None:
    """Write certificates of the cluster's authority: an expired one, and one for another host."""
    assert cluster.security is not None
    cluster.security.write_files()
    authority = cluster.security.files.read_authority()
    assert authority is not None
    now = datetime.now(UTC)
    expired = make_certificate(authority, "broker", now, hosts=LOCAL_HOSTS, valid_days=-1)
    other = make_certificate(authority, "broker", now, hosts=["elsewhere.example"])
    (data / "expired.pem").write_bytes(expired.pem)
    (data / "other-host.pem").write_bytes(other.pem)


def access(
    cluster: LocalCluster,
    mechanism: str = SCRAM_SHA_512,
    *,
    listener: str = TLS,
    user: str = USER,
    password: str = PASSWORD,
) -> ClientAccess:
    assert cluster.security is not None
    is_plain = listener == PLAINTEXT
    return ClientAccess(
        sasl_servers(cluster, listener),
        SecurityProtocol.SASL_PLAINTEXT if is_plain else SecurityProtocol.SASL_SSL,
        ca=None if is_plain else cluster.security.files.ca,
        mechanism=mechanism,
        user=user,
        password=password,
    )


REFUSED: dict[str, dict[str, str]] = {
    "wrong password": {"password": "wrong"},
    "unknown user": {"user": "mallory"},
    "expired certificate": {"listener": EXPIRED},
    "wrong host name": {"listener": OTHER_HOST},
}
"""Cases that all clients must refuse, or that the broker refuses."""
TLS_FAILED = {KafkaError._SSL, KafkaError._TRANSPORT}
"""librdkafka reports _TRANSPORT if the answer of the server arrives within its first call of SSL_connect."""
IS_LOGIN = ("wrong password", "unknown user")


def refused(cluster: LocalCluster, case: str) -> ClientAccess:
    return access(cluster, **REFUSED[case])


# ---- confluent-kafka


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_logs_in_over_tls(
    cluster: LocalCluster, issuer: TokenIssuer, mechanism: str
) -> None:
    settings: dict[str, Any] = librdkafka_settings(access(cluster, mechanism))
    if mechanism == OAUTHBEARER:
        del settings["sasl.username"], settings["sasl.password"]
        settings["oauth_cb"] = lambda _: (issuer.token(), 2_000_000_000)
    producer = Producer(settings)
    producer.produce(TOPIC, b"x")
    assert producer.flush(60) == 0
    assert first_message(settings, TOPIC).value() == b"x"


@pytest.mark.parametrize("case", REFUSED)
def test_confluent_kafka_is_refused(cluster: LocalCluster, case: str) -> None:
    settings = librdkafka_settings(refused(cluster, case))
    if case in IS_LOGIN:
        confluent_error(settings, {KafkaError._AUTHENTICATION}, "due to invalid credentials")
    else:
        confluent_error(settings, TLS_FAILED, "certificate verify failed")


# ---- kafka-python


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in_over_tls(
    cluster: LocalCluster, issuer: TokenIssuer, mechanism: str
) -> None:
    arguments: dict[str, Any] = kafka_python_arguments(access(cluster, mechanism))
    if mechanism == OAUTHBEARER:
        arguments["sasl_oauth_token_provider"] = OneToken(issuer.token())
    producer = KafkaProducer(**arguments)
    producer.send(TOPIC, b"x").get(60)
    producer.close()
    consumer = KafkaConsumer(TOPIC, **arguments, auto_offset_reset="earliest")
    assert next(consumer).topic == TOPIC
    consumer.close()


@pytest.mark.parametrize("case", REFUSED)
def test_kafka_python_is_refused(cluster: LocalCluster, case: str) -> None:
    expected = "SaslAuthenticationFailed" if case in IS_LOGIN else "CERTIFICATE_VERIFY_FAILED"
    arguments = kafka_python_arguments(refused(cluster, case))
    assert expected in kafka_python_failure(arguments, expected)


# ---- aiokafka


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in_over_tls(
    cluster: LocalCluster, issuer: TokenIssuer, mechanism: str
) -> None:
    async def run() -> str:
        arguments: dict[str, Any] = aiokafka_arguments(access(cluster, mechanism))
        if mechanism == OAUTHBEARER:
            arguments["sasl_oauth_token_provider"] = OneAiokafkaToken(issuer.token())
        async with AIOKafkaProducer(**arguments) as producer:
            await producer.send_and_wait(TOPIC, b"x")
        async with AIOKafkaConsumer(TOPIC, **arguments, auto_offset_reset="earliest") as consumer:
            message = await asyncio.wait_for(consumer.getone(), 60)
            return str(message.topic)

    assert asyncio.run(run()) == TOPIC


@pytest.mark.parametrize("case", REFUSED)
def test_aiokafka_is_refused(
    cluster: LocalCluster, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With SCRAM, the client logs the reason and raises a general error."""

    async def run() -> None:
        producer = AIOKafkaProducer(**aiokafka_arguments(refused(cluster, case)))
        with pytest.raises(KafkaConnectionError):
            await producer.start()
        await producer.stop()

    asyncio.run(run())
    expected = "SaslAuthenticationFailed" if case in IS_LOGIN else "CERTIFICATE_VERIFY_FAILED"
    assert expected in caplog.text


# ---- kcat


@pytest.mark.parametrize("listener", [TLS, PLAINTEXT])
@pytest.mark.parametrize("mechanism", [each for each in MECHANISMS if each != OAUTHBEARER])
def test_kcat_logs_in_with_and_without_tls(
    cluster: LocalCluster, mechanism: str, listener: str
) -> None:
    """It often uses an old librdkafka."""
    require(have_kcat(), "kcat")
    settings = librdkafka_settings(access(cluster, mechanism, listener=listener))
    options = [word for item in settings.items() for word in ("-X", "=".join(item))]
    command = ["kcat", "-L", "-m", "60", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert f'topic "{TOPIC}"' in done.stdout


# ---- expired tokens

EXPIRED_TOKEN = "mechanism=OAUTHBEARER user=- reason=invalid token: ExpiredSignatureError"


@pytest.fixture
def expired_token(issuer: TokenIssuer) -> str:
    return issuer.token(exp=int(time.time()) - 60)


@contextmanager
def expect_audited(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that the audit log has the reason, also for clients that do not read the error of the broker."""
    with caplog.at_level(logging.INFO, "barnabas.audit"):
        yield
        eventually(lambda: EXPIRED_TOKEN in caplog.text, "a line in the audit log")


def test_confluent_kafka_with_expired_token_is_refused(
    cluster: LocalCluster, expired_token: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = librdkafka_settings(access(cluster, OAUTHBEARER))
    del settings["sasl.username"], settings["sasl.password"]
    settings["oauth_cb"] = lambda _: (expired_token, 2_000_000_000)
    with expect_audited(caplog):
        confluent_error(settings, {KafkaError._AUTHENTICATION}, "due to invalid credentials")


def test_kafka_python_with_expired_token_is_refused(
    cluster: LocalCluster, expired_token: str, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = kafka_python_arguments(access(cluster, OAUTHBEARER))
    expected = "SaslAuthenticationFailed"
    with expect_audited(caplog):
        assert expected in kafka_python_failure(arguments, expected, expired_token)


def test_aiokafka_with_expired_token_is_refused(
    cluster: LocalCluster, expired_token: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client does not read the error that answers a token. The broker closes the connection at its next request."""

    async def run() -> None:
        arguments: dict[str, Any] = aiokafka_arguments(access(cluster, OAUTHBEARER))
        arguments["sasl_oauth_token_provider"] = OneAiokafkaToken(expired_token)
        producer = AIOKafkaProducer(**arguments)
        with pytest.raises(KafkaConnectionError):
            await producer.start()
        await producer.stop()

    with expect_audited(caplog):
        asyncio.run(run())


def test_client_that_disconnects_after_its_token_is_refused_is_audited(
    cluster: LocalCluster, expired_token: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first response has the refusal. The client need not send another request."""
    with expect_audited(caplog), SaslConnection(sasl_servers(cluster, PLAINTEXT)) as connection:
        connection.shake_hands(OAUTHBEARER)
        answer = connection.send_token(BearerClient(lambda: expired_token).start())
        assert bytes(answer.auth_bytes) == INVALID_TOKEN
        connection.close()


def test_kafkajs_with_expired_token_is_refused(
    cluster: LocalCluster, expired_token: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As with aiokafka."""
    require(have_kafkajs(), "kafkajs")
    login = kafkajs_login(access(cluster, OAUTHBEARER), expired_token)
    with expect_audited(caplog):
        (error,) = produce_with_logins(cluster, [login])
    assert error is not None
    assert "Closed connection" in error


# ---- kafkajs


def test_kafkajs_logs_in_with_and_without_tls(cluster: LocalCluster, issuer: TokenIssuer) -> None:
    require(have_kafkajs(), "kafkajs")
    logins = [
        kafkajs_login(access(cluster, mechanism, listener=listener), issuer.token())
        for listener in (TLS, PLAINTEXT)
        for mechanism in MECHANISMS
    ]
    assert produce_with_logins(cluster, logins) == [None] * len(logins)


def test_kafkajs_is_refused(cluster: LocalCluster, issuer: TokenIssuer) -> None:
    require(have_kafkajs(), "kafkajs")
    logins = [kafkajs_login(refused(cluster, case), issuer.token()) for case in REFUSED]
    password, user, expired, host = produce_with_logins(cluster, logins)
    for error in (password, user):
        assert error is not None
        assert "KafkaJSSASLAuthenticationError" in error
    assert expired is not None
    assert "certificate has expired" in expired
    assert host is not None
    assert "does not match certificate" in host


def kafkajs_login(access: ClientAccess, token: str) -> dict[str, Any]:
    credentials = {"username": access.user, "password": access.password}
    is_token = access.mechanism == OAUTHBEARER
    return {
        "servers": access.servers,
        "ca": None if access.ca is None else str(access.ca),
        "sasl": {
            "mechanism": access.mechanism.lower(),
            **({"token": token} if is_token else credentials),
        },
    }


def produce_with_logins(cluster: LocalCluster, logins: list[dict[str, Any]]) -> list[str | None]:
    servers = sasl_servers(cluster, PLAINTEXT)
    found: list[str | None] = kafkajs_client.ask(
        servers, "produceWithLogins", topic=TOPIC, logins=logins
    )
    return found
