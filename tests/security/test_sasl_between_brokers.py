"""Brokers that log in to each other: PLAIN and SCRAM, with logins that expire, and on a separate control plane."""

from __future__ import annotations

import logging
from pathlib import Path
from random import SystemRandom

import pytest
from confluent_kafka import Producer

from barnabas import LocalCluster
from barnabas.broker.security import peer_login
from barnabas.broker.security.credentials import store_scram_credential
from barnabas.errors import ConfigError
from barnabas.metadata.registration import create_persistent_paths
from barnabas.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from barnabas.security.sasl.mechanism import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from barnabas.security.sasl.scram import create_credential
from barnabas.world.clock import SystemClock
from barnabas.world.loop_thread import LoopThread
from barnabas.world.registry.embedded import EmbeddedRegistry
from support.waiting import eventually

SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "min.insync.replicas": "3",
    "connection.failed.authentication.delay.ms": "1",
}
PLAIN_SETTINGS = {
    **SETTINGS,
    "sasl.enabled.mechanisms": PLAIN,
    "sasl.mechanism.inter.broker.protocol": PLAIN,
    "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="broker" '
    'password="broker-secret" user_broker="broker-secret";',
}


def produce(cluster: LocalCluster, mechanism: str, count: int = 1) -> None:
    """Produce records with acks=all as the user broker. Creates the topic."""
    failed: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "broker",
            "sasl.password": "broker-secret",
        }
    )
    for _ in range(count):
        producer.produce("replicated", b"x", on_delivery=on_delivery)
    assert producer.flush(60) == 0
    assert not failed


def logins_again(cluster: LocalCluster) -> int:
    total = 0
    for broker in cluster.brokers.values():
        assert broker.instance is not None
        assert broker.instance.broker.security is not None
        total += broker.instance.broker.security.logins.counts["PLAINTEXT"].again
    return total


def test_records_are_replicated_with_logins_that_expire(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers log in again after 1.2 s of 120 s: a machine that stalls does not make them late."""
    monkeypatch.setattr(peer_login, "RENEWAL_PART", 0.01)
    settings = {
        **PLAIN_SETTINGS,
        "connections.max.reauth.ms": "120000",
        "default.replication.factor": "3",
        "replica.fetch.wait.max.ms": "100",
    }
    with LocalCluster(brokers=3, settings=settings) as cluster:
        produce(cluster, PLAIN)
        with caplog.at_level(logging.WARNING):
            eventually(lambda: logins_again(cluster) >= 4, "brokers log in again")
            produce(cluster, PLAIN, 10)
        assert "the login has expired" not in caplog.text
    assert "broker-secret" not in caplog.text


def test_broker_with_wrong_password_does_not_join(caplog: pytest.LogCaptureFixture) -> None:
    line = (
        f'{PLAIN_MODULE} required username="broker" password="other" user_broker="broker-secret";'
    )
    name = "listener.name.plaintext.plain.sasl.jaas.config"
    with pytest.raises(ConfigError, match="user_broker must have the password"):
        LocalCluster(settings={**PLAIN_SETTINGS, name: line}).start()
    assert "broker-secret" not in caplog.text


def store_offline(data: Path, mechanism: str) -> None:
    """Create the credential of the brokers in the registry before the first broker starts."""
    thread = LoopThread("registry")
    data.mkdir(parents=True, exist_ok=True)
    random = SystemRandom()

    async def store() -> None:
        registry = EmbeddedRegistry(str(data / "registry"), SystemClock())
        await registry.open()
        session = await registry.connect(10_000)
        await create_persistent_paths(session)
        credential = create_credential(mechanism, "broker-secret", random)
        await store_scram_credential(session, "broker", mechanism, credential, random)
        await session.close()
        await registry.close()

    try:
        thread.run(store())
    finally:
        thread.end()


def test_brokers_log_in_with_scram_credentials_stored_before_the_start(tmp_path: Path) -> None:
    store_offline(tmp_path, SCRAM_SHA_512)
    settings = {
        **SETTINGS,
        "sasl.enabled.mechanisms": SCRAM_SHA_512,
        "sasl.mechanism.inter.broker.protocol": SCRAM_SHA_512,
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required "
        'username="broker" password="broker-secret";',
        "default.replication.factor": "3",
    }
    with LocalCluster(brokers=3, data=tmp_path, settings=settings) as cluster:
        produce(cluster, SCRAM_SHA_512)


def test_controller_logs_in_at_the_control_plane_listener() -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "control.plane.listener.name": "CONTROL",
        "sasl.enabled.mechanisms": PLAIN,
        "listener.name.control.sasl.mechanism.inter.broker.protocol": PLAIN,
        "listener.name.control.plain.sasl.jaas.config": PLAIN_SETTINGS[
            "listener.name.plaintext.plain.sasl.jaas.config"
        ],
    }
    with LocalCluster(settings=settings) as cluster:
        cluster.create_topic("controlled")
        instance = cluster.brokers[1].instance
        assert instance is not None
        assert instance.broker.security is not None
        assert instance.broker.security.logins.counts["CONTROL"].succeeded


def test_mechanism_between_brokers_must_be_supported() -> None:
    settings = {**PLAIN_SETTINGS, "sasl.mechanism.inter.broker.protocol": "GSSAPI"}
    with pytest.raises(ConfigError, match="GSSAPI is not supported between brokers"):
        LocalCluster(settings=settings).start()
    settings = {**PLAIN_SETTINGS, "sasl.mechanism.inter.broker.protocol": SCRAM_SHA_256}
    with pytest.raises(ConfigError, match="need a user name and a password"):
        LocalCluster(settings=settings).start()
