"""Brokers connect to each other with TLS: replication, controller requests, and settings that cannot work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.errors import ConfigError
from barnabas.metadata.topic_names import STATE_CHANGES
from support.certificates import CertificateFiles
from support.waiting import eventually
from tests.security.tls_cluster import SecuredCluster, secured_cluster


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


def mutual_settings(files: CertificateFiles) -> dict[str, str]:
    """Clients, brokers and the controller have a listener each. Brokers need certificates."""
    names = ("CLIENTS", "BROKERS", "CONTROLLER")
    return {
        "listeners": ",".join(f"{each}://127.0.0.1:0" for each in names),
        "listener.security.protocol.map": ",".join(f"{each}:SSL" for each in names),
        "inter.broker.listener.name": "BROKERS",
        "control.plane.listener.name": "CONTROLLER",
        **files.server_settings(),
        "listener.name.brokers.ssl.client.auth": "required",
        "listener.name.controller.ssl.client.auth": "required",
    }


def client_settings(cluster: SecuredCluster, files: CertificateFiles) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.servers("CLIENTS"),
        "security.protocol": "SSL",
        "ssl.ca.location": str(files.ca),
    }


def test_replication_and_controller_requests_use_their_listeners(
    files: CertificateFiles, tmp_path: Path
) -> None:
    with secured_cluster(tmp_path, mutual_settings(files), brokers=3) as cluster:
        settings = client_settings(cluster, files)
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(60)
        failures: list[str] = []

        def on_delivery(error: object, _: object) -> None:
            if error is not None:
                failures.append(str(error))

        producer = confluent_kafka.Producer({**settings, "acks": "all"})
        for number in range(30):
            producer.produce(
                "orders",
                b"x" * 100_000,
                partition=number % 3,
                on_delivery=on_delivery,
            )
        assert producer.flush(60) == 0
        assert not failures
        cluster.brokers[2].stop()
        cluster.brokers[2].start()

        def is_in_sync() -> bool:
            topic = admin.list_topics("orders", timeout=60).topics["orders"]
            return all(len(each.isrs) == 3 for each in topic.partitions.values())

        eventually(is_in_sync, "all replicas are in sync again")
        brokers = {"User:CN=broker,O=Barnabas"}
        eventually(lambda: cluster.principals("BROKERS") == brokers, "certificates of brokers")
        eventually(lambda: cluster.principals("CONTROLLER") == brokers, "that of the controller")


def test_history_is_published_over_tls(files: CertificateFiles, tmp_path: Path) -> None:
    settings = mutual_settings(files) | {"barnabas.history.topic.enable": "true"}
    with secured_cluster(tmp_path, settings) as cluster:
        admin = AdminClient(client_settings(cluster, files))
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(60)
        eventually(
            lambda: STATE_CHANGES in admin.list_topics(timeout=60).topics,
            "the history topic exists",
        )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ssl.keystore.location": ""}, "a TLS listener needs a key store"),
        ({"ssl.keystore.location": "/nowhere"}, "cannot read /nowhere"),
        ({"ssl.truststore.location": ""}, "brokers with these stores cannot connect"),
        ({"ssl.truststore.location": "other"}, "brokers with these stores cannot connect"),
        ({"ssl.keystore.location": "expired"}, "certificate has expired"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "not secure"),
        ({"ssl.cipher.suites": "TLS_NONSENSE_WITH_X"}, "is not supported"),
        ({"ssl.keystore.type": "BKS"}, "use PEM or PKCS12"),
        ({"ssl.principal.mapping.rules": "RULE:(/x/"}, "the pattern '(' is invalid"),
        ({"control.plane.listener.name": "OTHER"}, "OTHER is not advertised"),
        ({"control.plane.listener.name": "BROKERS"}, "is the listener between brokers"),
    ],
)
def test_broker_with_unusable_settings_does_not_start(
    files: CertificateFiles, tmp_path: Path, changes: dict[str, str], expected: str
) -> None:
    paths = {"other": str(files.other_ca), "expired": str(files.expired_server)}
    changes = {name: paths.get(value, value) for name, value in changes.items()}
    with (
        pytest.raises(ConfigError) as caught,
        secured_cluster(tmp_path, mutual_settings(files) | changes),
    ):
        pass
    assert expected in str(caught.value)
    assert next(iter(changes)) in str(caught.value) or "truststore" in str(caught.value)
