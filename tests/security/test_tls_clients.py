"""Real clients and openssl connect to a broker with TLS: they exchange records, or are refused for the right reason."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiokafka
import confluent_kafka
import kafka
import kafka.errors
import pytest
from aiokafka.helpers import create_ssl_context
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cluster.client_settings import (
    ClientAccess,
    aiokafka_arguments,
    kafka_python_arguments,
)
from barnabas.model import SecurityProtocol
from support.certificates import PASSWORD, CertificateFiles
from support.waiting import eventually
from tests.compatibility import kafkajs_client
from tests.compatibility.optional import require
from tests.security.logins import WAIT_S, kafka_python_failure
from tests.security.tls_cluster import SecuredCluster, secured_cluster
from tests.tools import have_kafkajs

VALUES = [b"one", b"two" * 100_000, b"three"]
ALICE = "CN=alice,OU=orders,O=Shop"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def cluster(
    files: CertificateFiles, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredCluster]:
    names = ("ANYONE", "MUTUAL", "WISHED", "MAPPED", "WRONGHOST", "EXPIRED", "OLD")
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,"
        + ",".join(f"{each}://127.0.0.1:0" for each in names),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,"
        + ",".join(f"{each}:SSL" for each in names),
        **files.server_settings(),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.keystore.type": "PKCS12",
        "listener.name.mutual.ssl.keystore.location": str(files.server_pkcs12),
        "listener.name.mutual.ssl.keystore.password": PASSWORD,
        "listener.name.wished.ssl.client.auth": "requested",
        "listener.name.mapped.ssl.client.auth": "required",
        "listener.name.mapped.ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U",
        "listener.name.wronghost.ssl.keystore.location": str(files.wrong_host_server),
        "listener.name.expired.ssl.keystore.location": str(files.expired_server),
        "listener.name.old.ssl.enabled.protocols": "TLSv1.2",
        "listener.name.old.ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    }
    with secured_cluster(tmp_path_factory.mktemp("data"), settings) as cluster:
        yield cluster


# ---- clients


def confluent_settings(
    cluster: SecuredCluster, files: CertificateFiles, listener: str, key: Path | None
) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": cluster.address(listener),
        "security.protocol": "SSL",
        "ssl.ca.location": str(files.ca),
        "message.max.bytes": 2_000_000,
    }
    if key is not None:
        settings |= {"ssl.certificate.location": str(key), "ssl.key.location": str(key)}
    return settings


def exchange_confluent(
    cluster: SecuredCluster, files: CertificateFiles, listener: str, key: Path | None
) -> list[bytes]:
    topic = uuid4().hex
    settings = confluent_settings(cluster, files, listener, key)
    producer = confluent_kafka.Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < len(VALUES):
        message = consumer.poll(60)
        assert message is not None
        if message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def exchange_kafka_python(
    cluster: SecuredCluster, files: CertificateFiles, listener: str, key: Path | None
) -> list[bytes]:
    topic = uuid4().hex
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.address(listener),
        "security_protocol": "SSL",
        "ssl_cafile": str(files.ca),
        "ssl_certfile": None if key is None else str(key),
    }
    producer = kafka.KafkaProducer(**settings, max_request_size=2_000_000)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(60)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    return found


def exchange_aiokafka(
    cluster: SecuredCluster, files: CertificateFiles, listener: str, key: Path | None
) -> list[bytes]:
    topic = uuid4().hex
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.address(listener),
        "security_protocol": "SSL",
        "ssl_context": create_ssl_context(
            cafile=str(files.ca), certfile=None if key is None else str(key)
        ),
    }

    async def exchange() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(**settings, max_request_size=2_000_000) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        consumer = aiokafka.AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest")
        async with consumer, asyncio.timeout(60):
            return [(await consumer.getone()).value for _ in VALUES]

    return asyncio.run(exchange())


@pytest.mark.parametrize("listener", ["ANYONE", "MUTUAL", "OLD"])
@pytest.mark.parametrize("exchange", [exchange_confluent, exchange_kafka_python, exchange_aiokafka])
def test_clients_exchange_records(
    cluster: SecuredCluster, files: CertificateFiles, exchange: Any, listener: str
) -> None:
    key = files.client if listener == "MUTUAL" else None
    assert exchange(cluster, files, listener, key) == VALUES


class LogLines(logging.Handler):
    """Collects the log lines of a client."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def expect_failure(
    settings: dict[str, Any], expected: str, is_reported: Callable[[], bool] = lambda: True
) -> None:
    """Connect with confluent-kafka until it logs this reason, and until the broker has reported it."""
    log = LogLines()
    logger = logging.Logger("client")
    logger.addHandler(log)
    client = confluent_kafka.Producer(settings, logger=logger)

    def is_logged() -> bool:
        client.poll(0.05)
        return any(expected in line for line in log.lines) and is_reported()

    eventually(is_logged, f"{expected!r} is logged", WAIT_S)


def test_client_refuses_wrong_host_and_expired_and_unknown_authority(
    cluster: SecuredCluster, files: CertificateFiles
) -> None:
    settings = confluent_settings(cluster, files, "WRONGHOST", None)
    expect_failure(settings, "certificate verify failed")
    expect_failure(confluent_settings(cluster, files, "EXPIRED", None), "certificate verify failed")
    settings = confluent_settings(cluster, files, "ANYONE", None)
    expect_failure(
        {**settings, "ssl.ca.location": str(files.other_ca)}, "certificate verify failed"
    )


@pytest.mark.parametrize(
    ("key", "expected", "logged"),
    [
        (None, "alert certificate required", "the client presented no certificate"),
        ("expired_client", "certificate expired", "certificate has expired"),
        ("untrusted_client", "unknown ca", "ssl.truststore.location"),
    ],
)
def test_broker_refuses_clients_without_a_valid_certificate(
    cluster: SecuredCluster,
    files: CertificateFiles,
    key: str | None,
    expected: str,
    logged: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = None if key is None else getattr(files, key)

    def is_reported() -> bool:
        reset_log_limit(cluster, "MUTUAL")
        return logged in caplog.text

    with caplog.at_level(logging.WARNING, "barnabas.tls"):
        expect_failure(confluent_settings(cluster, files, "MUTUAL", path), expected, is_reported)
    assert "listener=MUTUAL peer=127.0.0.1" in caplog.text


@contextmanager
def expect_reason(
    cluster: SecuredCluster, reason: str, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    """Check that the broker logs the reason why it refuses a client on the listener MUTUAL."""
    reset_log_limit(cluster, "MUTUAL")
    with caplog.at_level(logging.WARNING, "barnabas.tls"):
        yield
        eventually(lambda: reason in caplog.text, "the broker logs the reason")


def expired_access(cluster: SecuredCluster, files: CertificateFiles) -> ClientAccess:
    return ClientAccess(
        cluster.address("MUTUAL"),
        SecurityProtocol.SSL,
        ca=files.ca,
        identity=files.expired_client,
    )


def test_kafka_python_with_expired_certificate_is_refused(
    cluster: SecuredCluster, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = kafka_python_arguments(expired_access(cluster, files))
    expected = "ALERT_CERTIFICATE_EXPIRED"
    with expect_reason(cluster, "certificate has expired", caplog):
        assert expected in kafka_python_failure(arguments, expected)


@pytest.mark.filterwarnings("ignore:unclosed .*(socket|transport):ResourceWarning")
@pytest.mark.usefixtures("collect_leaked_sockets")
def test_aiokafka_with_expired_certificate_is_refused(
    cluster: SecuredCluster, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """The client reports a closed connection only."""

    async def run() -> None:
        arguments: dict[str, Any] = aiokafka_arguments(expired_access(cluster, files))
        producer = aiokafka.AIOKafkaProducer(**arguments)
        with pytest.raises(aiokafka.errors.KafkaConnectionError):
            await producer.start()
        await producer.stop()

    with expect_reason(cluster, "certificate has expired", caplog):
        asyncio.run(run())


def test_kafkajs_needs_valid_certificate(
    cluster: SecuredCluster, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    require(have_kafkajs(), "kafkajs")
    topic, servers = uuid4().hex, cluster.address("PLAINTEXT")
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    logins = [
        {"servers": cluster.address("MUTUAL"), "ca": str(files.ca), "identity": str(identity)}
        for identity in (files.client, files.expired_client)
    ]
    with expect_reason(cluster, "certificate has expired", caplog):
        valid, expired = kafkajs_client.ask(
            servers, "produceWithLogins", topic=topic, logins=logins
        )
    assert valid is None
    assert "alert certificate expired" in expired


def reset_log_limit(cluster: SecuredCluster, listener: str) -> None:
    security = cluster.server().security
    assert security is not None
    security.tls.listeners[listener].limiter.last_s = None


def test_requested_certificate_is_optional_but_must_be_valid(
    cluster: SecuredCluster, files: CertificateFiles
) -> None:
    assert exchange_kafka_python(cluster, files, "WISHED", None) == VALUES
    assert exchange_kafka_python(cluster, files, "WISHED", files.client) == VALUES
    settings = confluent_settings(cluster, files, "WISHED", files.untrusted_client)
    expect_failure(settings, "unknown ca")


@pytest.mark.parametrize(
    ("listener", "has_key", "principal"),
    [
        ("ANYONE", True, "User:ANONYMOUS"),  # the broker does not ask for a certificate
        ("WISHED", False, "User:ANONYMOUS"),
        ("WISHED", True, f"User:{ALICE}"),
        ("MUTUAL", True, f"User:{ALICE}"),
        ("MAPPED", True, "User:ALICE@ORDERS"),
    ],
)
def test_principal_is_the_subject_of_the_certificate(
    cluster: SecuredCluster,
    files: CertificateFiles,
    listener: str,
    has_key: bool,
    principal: str,
) -> None:
    key = files.client if has_key else None
    eventually(lambda: not cluster.principals(listener), "earlier connections are closed")
    client = confluent_kafka.Producer(confluent_settings(cluster, files, listener, key))
    client.list_topics(timeout=60)
    expected = {principal}
    eventually(lambda: cluster.principals(listener) == expected, f"the principal is {principal}")


def test_client_without_a_matching_rule_is_refused(
    cluster: SecuredCluster, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    key = files.write("other-name.pem", files.make("CN=bob").pem)
    why = "no rule of ssl.principal.mapping.rules matches the subject 'CN=bob'"
    with caplog.at_level(logging.WARNING, "barnabas.network"):
        settings = confluent_settings(cluster, files, "MAPPED", key)
        expect_failure(settings, "closed by peer", lambda: why in caplog.text)


def test_plaintext_client_on_tls_port_is_logged(
    cluster: SecuredCluster, caplog: pytest.LogCaptureFixture
) -> None:

    def is_reported() -> bool:
        reset_log_limit(cluster, "ANYONE")
        return "the client does not use TLS" in caplog.text

    with caplog.at_level(logging.WARNING, "barnabas.tls"):
        settings = {"bootstrap.servers": cluster.address("ANYONE")}
        expect_failure(settings, "closed by peer", is_reported)
    assert "listener=ANYONE" in caplog.text


def test_tls_client_on_plaintext_port_is_logged(
    cluster: SecuredCluster, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "barnabas.network"):
        settings = confluent_settings(cluster, files, "PLAINTEXT", None)
        why = "this looks like TLS, but the listener has none"
        expect_failure(settings, "SSL handshake failed", lambda: why in caplog.text)


# ---- openssl


def s_client(cluster: SecuredCluster, files: CertificateFiles, listener: str, *options: str) -> str:
    """Return the output of `openssl s_client`."""
    result = subprocess.run(
        [
            "openssl",
            "s_client",
            "-connect",
            cluster.address(listener),
            "-CAfile",
            files.ca,
            *options,
        ],
        input=b"",
        capture_output=True,
        timeout=120,
        check=False,
    )
    return (result.stdout + result.stderr).decode(errors="replace")


@pytest.mark.parametrize(
    ("listener", "option", "expected"),
    [
        ("ANYONE", "-tls1_3", "New, TLSv1.3"),
        ("ANYONE", "-tls1_2", "New, TLSv1.2"),
        ("OLD", "-tls1_2", "Cipher is ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("OLD", "-tls1_3", "alert protocol version"),
        ("ANYONE", "-tls1_1", "Cipher is (NONE)"),
    ],
)
def test_allowed_versions_and_ciphers(
    cluster: SecuredCluster, files: CertificateFiles, listener: str, option: str, expected: str
) -> None:
    assert expected in s_client(cluster, files, listener, option, "-cipher", "ALL:@SECLEVEL=0")


def test_server_sends_its_chain_and_no_session_ticket(
    cluster: SecuredCluster, files: CertificateFiles
) -> None:
    output = s_client(cluster, files, "MUTUAL", "-tls1_3", "-showcerts", "-cert", str(files.client))
    assert output.count("BEGIN CERTIFICATE") == 2
    assert "Verify return code: 0 (ok)" in output
    assert "New Session Ticket arrived" not in output
