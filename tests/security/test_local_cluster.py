"""LocalCluster(security=…), and the marker of the pytest plugin with security."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from barnabas import LocalCluster
from barnabas import Producer as OwnProducer
from barnabas.client.cluster import Cluster
from barnabas.errors import ApiError, ConfigError
from barnabas.security.client_settings import parse_client_security

PROTOCOLS = ("SASL_SSL", "SASL_PLAINTEXT", "SSL")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_brokers_and_clients_use_the_protocol(protocol: str) -> None:
    with LocalCluster(brokers=2, security=protocol, users={"alice": "secret"}) as cluster:
        topic = cluster.create_topic("orders", replicas=2)
        for user in (None, "alice"):
            settings = cluster.client_settings(user)
            assert settings["security.protocol"] == protocol
            producer = Producer({**cluster.confluent_settings(user), "acks": "all"})
            producer.produce(topic, b"x")
            assert producer.flush(60) == 0
        plain = Cluster(cluster.bootstrap_servers, timeout_s=2.0)
        with plain, pytest.raises(ApiError):
            plain.refresh([])
        with OwnProducer(cluster.bootstrap_servers, security=cluster.client_settings()) as own:
            own.send(topic, b"x").result()
        security = parse_client_security(cluster.client_settings("alice"))
        with Cluster(cluster.bootstrap_servers, security=security) as client:
            (partition,) = client.refresh([topic]).topic(topic).partitions
        assert len(partition.isr) == 2


def test_users_need_permissions_with_acls() -> None:
    with LocalCluster(security="SASL_PLAINTEXT", users={"alice": "secret"}, acls=True) as cluster:
        topic = cluster.create_topic("orders")
        codes: list[int] = []
        producer = Producer(cluster.confluent_settings("alice"))
        producer.produce(
            topic, b"x", on_delivery=lambda error, _: codes.append(error.code() if error else 0)
        )
        producer.flush(60)
        assert codes == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
        assert topic in AdminClient(cluster.confluent_settings()).list_topics(timeout=60).topics


def test_kept_data_keeps_users_and_certificates(tmp_path: Path) -> None:
    with LocalCluster(data=tmp_path, security="SASL_SSL", users=["alice"]) as cluster:
        first = cluster.client_settings("alice")
        certificate = (tmp_path / "security" / "broker.pem").read_bytes()
    with LocalCluster(data=tmp_path, security="SASL_SSL", users=["alice"]) as cluster:
        later = cluster.client_settings("alice")
        cluster.create_topic("orders")
    with pytest.raises(ConfigError, match="this data belongs to a secured cluster"):
        LocalCluster(data=tmp_path)
    assert later["sasl.jaas.config"] == first["sasl.jaas.config"]
    assert (tmp_path / "security" / "broker.pem").read_bytes() == certificate
    for path in (tmp_path / "security").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path


def test_cluster_starts_again_after_stop() -> None:
    cluster = LocalCluster(security="SASL_SSL")
    for _ in range(2):
        with cluster:
            cluster.create_topic("orders")


def test_certificates_name_the_advertised_host() -> None:
    with LocalCluster(host="0.0.0.0", advertised="broker.example", security="SASL_SSL") as cluster:
        cluster.create_topic("orders")
        assert cluster.security is not None
        assert "broker.example" in cluster.security.hosts


def test_wrong_arguments_are_rejected() -> None:
    with pytest.raises(ConfigError, match="'TLS' is not one of SSL, SASL_PLAINTEXT, SASL_SSL"):
        LocalCluster(security="TLS")
    with pytest.raises(ConfigError, match="users and acls need it"):
        LocalCluster(users={"alice": "secret"})
    with pytest.raises(ConfigError, match="broker is the user of the brokers"):
        LocalCluster(security="SASL_SSL", users={"broker": "secret"})
    with pytest.raises(ConfigError, match="the password of alice is empty"):
        LocalCluster(security="SASL_SSL", users={"alice": ""})


def test_passwords_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    cluster = LocalCluster(security="SASL_PLAINTEXT", users={"alice": "alice-secret"})
    with cluster:
        cluster.create_topic("orders")
        assert cluster.security is not None
        shown = f"{cluster!r} {cluster.security!r} {cluster.access('alice', None)!r}"
        secrets = list(cluster.security.passwords.values())
    for secret in secrets:
        assert secret not in shown
        assert secret not in caplog.text


@pytest.mark.barnabas(security="SASL_SSL", users={"alice": "secret"})
def test_marker_secures_cluster(barnabas_cluster: LocalCluster, barnabas_topic: str) -> None:
    producer = KafkaProducer(**barnabas_cluster.kafka_python_arguments("alice"))
    producer.send(barnabas_topic, b"x").get(60)
    producer.close()
