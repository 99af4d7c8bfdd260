"""Kafka's Java tools over TLS: with PKCS#12 and PEM stores, with valid and with invalid client certificates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.harness.kafka import SETTINGS
from interop.harness.tools import Tools
from support.broker import BrokerProcess
from support.certificates import PASSWORD, CertificateFiles
from support.ports import free_port

REFUSED = "org.apache.kafka.common.errors.SslAuthenticationException"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in ("SSL", "MUTUAL", "WRONGHOST")}


@pytest.fixture(scope="module")
def broker(
    files: CertificateFiles, ports: dict[str, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("barnabas") / "data", SETTINGS)
    listeners = {"PLAINTEXT": broker.port, **ports}
    protocols = dict.fromkeys(ports, "SSL") | {"PLAINTEXT": "PLAINTEXT"}
    broker.settings |= {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{a}:{b}" for a, b in protocols.items()),
        **files.server_settings(),
        "listener.name.mutual.ssl.keystore.type": "PKCS12",
        "listener.name.mutual.ssl.keystore.location": str(files.server_pkcs12),
        "listener.name.mutual.ssl.keystore.password": PASSWORD,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.wronghost.ssl.keystore.location": str(files.wrong_host_server),
    }
    with broker:
        yield broker


def trust_settings(files: CertificateFiles) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(files.ca_pkcs12),
        "ssl.truststore.password": PASSWORD,
    }


def pem_settings(files: CertificateFiles, key: Path) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.ca),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key),
    }


def pkcs12_settings(files: CertificateFiles) -> dict[str, str]:
    return trust_settings(files) | {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(files.client_pkcs12),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }


def write_properties(path: Path, settings: dict[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


@pytest.mark.parametrize("kind", ["trust", "PKCS#12", "PEM", "TLSv1.2"])
def test_console_producer_and_consumer(
    tools: Tools,
    broker: BrokerProcess,
    files: CertificateFiles,
    ports: dict[str, int],
    kind: str,
    tmp_path: Path,
) -> None:
    settings = {
        "trust": trust_settings(files),
        "PKCS#12": pkcs12_settings(files),
        "PEM": pem_settings(files, files.client),
        "TLSv1.2": trust_settings(files) | {"ssl.enabled.protocols": "TLSv1.2"},
    }[kind]
    listener = "MUTUAL" if "ssl.keystore.type" in settings else "SSL"
    servers = ("--bootstrap-server", f"localhost:{ports[listener]}")
    topic = f"tls-{kind.strip('#.')}-{tools.release}".replace("#", "")
    config = write_properties(tmp_path / "client.properties", settings)
    tools.succeed(
        "kafka-console-producer",
        *(*servers, "--topic", topic, "--producer.config", config),
        stdin="one\ntwo\n",
    )
    done = tools.succeed(
        "kafka-console-consumer",
        *(*servers, "--topic", topic, "--from-beginning", "--max-messages", "2"),
        *("--consumer.config", config, "--timeout-ms", "60000"),
    )
    assert done.lines[-2:] == ["one", "two"]  # Kafka 4 prints that an option is deprecated


@pytest.mark.parametrize(
    ("listener", "key"),
    [
        ("WRONGHOST", None),
        ("MUTUAL", None),
        ("MUTUAL", "expired_client"),
        ("MUTUAL", "untrusted_client"),
    ],
)
def test_invalid_certificates_are_refused(
    tools: Tools,
    broker: BrokerProcess,
    files: CertificateFiles,
    ports: dict[str, int],
    listener: str,
    key: str | None,
    tmp_path: Path,
) -> None:
    settings = trust_settings(files) if key is None else pem_settings(files, getattr(files, key))
    config = write_properties(tmp_path / "client.properties", settings)
    servers = ("--bootstrap-server", f"localhost:{ports[listener]}")
    done = tools.run("kafka-topics", *servers, "--list", "--command-config", config)
    assert done.exit_code == 1
    assert REFUSED in done.stdout + done.stderr
