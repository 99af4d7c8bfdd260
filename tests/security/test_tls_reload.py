"""Certificates change while a broker runs: by their files, and by dynamic settings."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from barnabas.broker.security import listener_tls
from barnabas.security.tls.generate import Identity, make_certificate
from support.certificates import LOCAL_HOSTS, CertificateFiles
from support.waiting import eventually
from tests.security.logins import alter_broker
from tests.security.tls_cluster import SecuredCluster, secured_cluster

SUBJECT = "CN=broker,O=Barnabas"
LOCATION = "listener.name.ssl.ssl.keystore.location"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def store(files: CertificateFiles) -> Path:
    """The key store that the tests replace."""
    return files.write("current.pem", files.server_identity.pem)


@pytest.fixture(scope="module")
def cluster(
    files: CertificateFiles, store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredCluster]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        **files.server_settings(),
        LOCATION: str(store),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listener_tls, "FILES_CHECK_SECONDS", 0.05)
        with secured_cluster(tmp_path_factory.mktemp("data"), settings) as cluster:
            yield cluster


def presented(cluster: SecuredCluster, listener: str = "SSL") -> bytes:
    """Return the certificate that the broker presents to a new connection."""
    host, _, port = cluster.address(listener).rpartition(":")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))


def expect_presented(cluster: SecuredCluster, identity: Identity) -> None:
    expected = ssl.PEM_cert_to_DER_cert(identity.certificate.decode())
    eventually(lambda: presented(cluster) == expected, "the broker presents this certificate")


def replace(store: Path, content: bytes) -> None:
    """Replace the file in one step: the broker never reads a part of it."""
    new = store.with_suffix(".new")
    new.write_bytes(content)
    new.replace(store)


def alter(cluster: SecuredCluster, name: str, value: str | None) -> None:
    """Change a dynamic setting of the broker. None removes it."""
    alter_broker({"bootstrap.servers": cluster.address("PLAINTEXT")}, name, value)


def test_new_file_is_used_for_new_connections_and_old_connections_stay(
    cluster: SecuredCluster, files: CertificateFiles, store: Path
) -> None:
    first = files.server_identity
    expect_presented(cluster, first)
    client = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.address("SSL"),
            "security.protocol": "SSL",
            "ssl.ca.location": str(files.ca),
        }
    )
    client.list_topics(timeout=60)
    second = files.make(SUBJECT, hosts=LOCAL_HOSTS)
    replace(store, second.pem)
    expect_presented(cluster, second)
    client.list_topics(timeout=60)
    replace(store, first.pem)
    expect_presented(cluster, first)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"nonsense", "is neither PEM nor PKCS#12"),
        (b"", "is empty"),
        (None, "cannot read"),
    ],
)
def test_unusable_file_is_logged_and_the_certificate_stays(
    cluster: SecuredCluster,
    files: CertificateFiles,
    store: Path,
    content: bytes | None,
    expected: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "barnabas.tls"):
        if content is None:
            store.unlink()
        else:
            replace(store, content)
        eventually(lambda: expected in caplog.text, "an error is logged")
        expect_presented(cluster, files.server_identity)
    assert caplog.text.count("keeping the current ones") == 1
    replace(store, files.server_identity.pem)
    expect_presented(cluster, files.server_identity)


def test_certificate_with_other_names_is_rejected(
    cluster: SecuredCluster,
    files: CertificateFiles,
    store: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "barnabas.tls"):
        replace(store, files.make("CN=other", hosts=LOCAL_HOSTS).pem)
        eventually(lambda: "ssl.allow.dn.changes" in caplog.text, "an error names the setting")
        replace(store, files.make(SUBJECT, hosts=["localhost"]).pem)
        eventually(lambda: "ssl.allow.san.changes" in caplog.text, "an error names the setting")
    expect_presented(cluster, files.server_identity)
    replace(store, files.server_identity.pem)


def test_more_alternative_names_are_accepted(
    cluster: SecuredCluster, files: CertificateFiles, store: Path
) -> None:
    wider = files.make(SUBJECT, hosts=[*LOCAL_HOSTS, "broker.example"])
    replace(store, wider.pem)
    expect_presented(cluster, wider)


def test_dynamic_setting_changes_the_certificate(files: CertificateFiles, tmp_path: Path) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        **files.server_settings(),
    }
    other = make_certificate(files.authority, SUBJECT, files.now, hosts=LOCAL_HOSTS)
    path = files.write("dynamic.pem", other.pem)
    with secured_cluster(tmp_path, settings) as cluster:
        expect_presented(cluster, files.server_identity)
        alter(cluster, LOCATION, str(path))
        expect_presented(cluster, other)
        for bad, expected in (
            ("/nowhere.pem", "cannot read /nowhere.pem"),
            (str(files.ca), "needs one private key"),
            (str(files.wrong_host_server), "ssl.allow.dn.changes"),
        ):
            with pytest.raises(confluent_kafka.KafkaException, match=expected) as caught:
                alter(cluster, LOCATION, bad)
            assert caught.value.args[0].name() == "INVALID_REQUEST"
        expect_presented(cluster, other)
        alter(cluster, LOCATION, None)
        expect_presented(cluster, files.server_identity)


def test_dynamic_tls_listener_opens(files: CertificateFiles, tmp_path: Path) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LATER:SSL,KEYLESS:SSL",
        "listener.name.later.ssl.keystore.location": str(files.server),
    }
    with secured_cluster(tmp_path, settings) as cluster:
        with pytest.raises(
            confluent_kafka.KafkaException, match="a TLS listener needs a key store"
        ):
            alter(cluster, "listeners", "PLAINTEXT://127.0.0.1:0,KEYLESS://127.0.0.1:0")
        alter(cluster, "listeners", "PLAINTEXT://127.0.0.1:0,LATER://127.0.0.1:0")
        eventually(
            lambda: any(each.listener == "LATER" for each in cluster.server().endpoints),
            "the listener is open",
        )
        expected = ssl.PEM_cert_to_DER_cert(files.server_identity.certificate.decode())
        assert presented(cluster, "LATER") == expected
