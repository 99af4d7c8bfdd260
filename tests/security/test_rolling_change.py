"""A running cluster of three brokers changes from PLAINTEXT to SASL_SSL, one broker after the other.

docs/security.md describes the steps. Producers run all the time. No record may fail, be lost or be duplicated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from barnabas.client.cluster import Cluster
from barnabas.cluster.client_settings import kafka_settings, librdkafka_settings
from barnabas.cluster.local_security import LocalSecurity
from barnabas.config.properties import escape_property
from barnabas.errors import ApiError
from barnabas.security.client_settings import PLAINTEXT, ClientSecurity, parse_client_security
from support.cluster import ClusterProcesses, MemberProcess
from support.command import run
from support.ports import free_port
from support.waiting import eventually

TOPIC = "orders"
PARTITIONS, REPLICAS = 3, 3
PAUSE_S = 0.005
WAIT_S = 180.0
AFTER_STEP = 50
"""Records that must be delivered after each step."""
SETTINGS = {
    "barnabas.history.topic.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "6000",
}


class RunningProducer:
    """An idempotent producer that sends numbered records in a thread until `stop`."""

    def __init__(self, name: str, settings: Mapping[str, str]) -> None:
        self.name = name
        self.producer = Producer(
            {**settings, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self.sent = 0
        self.delivered = 0
        self.errors: list[KafkaError] = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self) -> None:
        while not self.stopping.wait(PAUSE_S):
            self.producer.produce(
                TOPIC,
                f"{self.name}-{self.sent}".encode(),
                partition=self.sent % PARTITIONS,
                on_delivery=self.count,
            )
            self.sent += 1
            self.producer.poll(0)

    def count(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.errors.append(error)

    def wait_for_more(self) -> None:
        wanted = self.sent + AFTER_STEP
        eventually(
            lambda: self.delivered >= wanted or bool(self.errors), "records are delivered", WAIT_S
        )
        assert self.errors == []

    def stop(self) -> None:
        if not self.stopping.is_set():
            self.stopping.set()
            self.thread.join()
            assert self.producer.flush(60) == 0


class RollingChange:
    """The brokers, and the settings that each step changes."""

    def __init__(self, cluster: ClusterProcesses, security: LocalSecurity) -> None:
        self.cluster = cluster
        self.security = security
        self.ports = {number: free_port() for number in cluster.brokers}

    @property
    def secure_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @property
    def secure_client(self) -> ClientSecurity:
        return parse_client_security(kafka_settings(self.security.access("", "app")))

    def listeners(self, broker: MemberProcess) -> tuple[str, str]:
        secure = f"SASL_SSL://127.0.0.1:{self.ports[broker.id]}"
        return f"PLAINTEXT://{broker.bootstrap_servers}", secure

    def add_listener(self) -> None:
        """Step 1: brokers accept SASL_SSL too, and still use PLAINTEXT between each other."""
        common = self.security.broker_settings(["SASL_SSL"])
        common = {name: escape_property(value) for name, value in common.items()}
        for broker in self.cluster.brokers.values():
            both = ",".join(self.listeners(broker))
            self.restart(broker, {"listeners": both, **common}, PLAINTEXT)

    def switch_between_brokers(self) -> None:
        """Step 2: brokers use SASL_SSL between each other."""
        for broker in self.cluster.brokers.values():
            self.restart(broker, {"inter.broker.listener.name": "SASL_SSL"}, PLAINTEXT)

    def remove_listener(self) -> None:
        """Step 4, after the clients have moved: PLAINTEXT is closed."""
        for broker in self.cluster.brokers.values():
            _, secure = self.listeners(broker)
            self.restart(broker, {"listeners": secure}, self.secure_client)

    def restart(
        self, broker: MemberProcess, settings: Mapping[str, str], security: ClientSecurity
    ) -> None:
        """Restart one broker with new settings. Returns when all replicas are in sync again."""
        assert broker.stop() == 0
        broker.configure(settings)
        broker.launch()
        is_plain = security is PLAINTEXT
        servers = self.cluster.bootstrap_servers if is_plain else self.secure_servers
        eventually(
            lambda: self.is_in_sync(servers, security), f"broker {broker.id} is in sync", WAIT_S
        )

    def is_in_sync(self, servers: str, security: ClientSecurity) -> bool:
        for broker in self.cluster.brokers.values():
            assert broker.is_running, broker.running.describe()
        try:
            with Cluster(servers, timeout_s=20.0, security=security) as client:
                view = client.refresh([TOPIC])
            partitions = view.topic(TOPIC).partitions
        except ApiError:
            return False
        return len(view.brokers) == len(self.cluster.brokers) and all(
            len(each.isr) == REPLICAS for each in partitions
        )


@pytest.fixture
def change(tmp_path: Path, chroot: str) -> Iterator[RollingChange]:
    security = LocalSecurity("SASL_SSL", tmp_path / "security", users={"app": "app-secret"})
    security.write_files()
    with ClusterProcesses(tmp_path, chroot, settings=SETTINGS) as cluster:
        for user in ("broker", "app"):
            create_user(cluster.bootstrap_servers, user, security.files.password(user))
        create_topic(cluster.bootstrap_servers)
        yield RollingChange(cluster, security)


def create_user(servers: str, user: str, password_file: Path) -> None:
    ended = run("users", "create", user, "--password-file", str(password_file), "-b", servers)
    assert ended.returncode == 0, ended.stderr


def create_topic(servers: str) -> None:
    from barnabas.client.admin import Admin, NewTopic

    with Cluster(servers) as client:
        topic = NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=REPLICAS)
        (outcome,) = Admin(client).create_topics([topic])
        assert outcome.error is None


def test_rolling_change_from_plaintext_to_sasl_ssl(change: RollingChange) -> None:
    secure = librdkafka_settings(change.security.access(change.secure_servers, "app"))
    plain = {"bootstrap.servers": change.cluster.bootstrap_servers}
    with RunningProducer("plain", plain) as old:
        old.wait_for_more()
        change.add_listener()
        old.wait_for_more()
        change.switch_between_brokers()
        old.wait_for_more()
        with RunningProducer("secure", secure) as new:
            new.wait_for_more()
            old.stop()
            change.remove_listener()
            new.wait_for_more()
    for producer in (old, new):
        assert producer.errors == []
        assert producer.delivered == producer.sent
    values = read_all(secure, old.sent + new.sent)
    assert sorted(values) == sorted(
        f"{producer.name}-{number}" for producer in (old, new) for number in range(producer.sent)
    )
    for broker in change.cluster.brokers.values():
        assert "SASL_AUTHENTICATION_FAILED" not in broker.log()


def read_all(settings: Mapping[str, str], count: int) -> list[str]:
    """Return the values of all records of the topic: at least `count`, and those after them."""
    consumer = Consumer(
        {
            **settings,
            "group.id": "check",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([TOPIC])
    values: list[str] = []
    ended: set[int] = set()
    while len(ended) < PARTITIONS or len(values) < count:
        message = consumer.poll(60)
        assert message is not None, f"{len(values)} of {count} records"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition() or 0)
            continue
        value = message.value()
        assert value is not None
        values.append(value.decode())
    consumer.close()
    return values
