"""A running cluster of three brokers gets an authorizer, one broker after the other.

docs/security.md describes the steps. Producers of two users run all the time. No record may fail, be lost or be
duplicated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from barnabas.cli.main import run_command
from barnabas.cluster.client_settings import kafka_settings, librdkafka_settings
from barnabas.cluster.local_security import LocalSecurity
from barnabas.config.properties import escape_property
from barnabas.world.registry.zookeeper import ZooKeeperRegistry
from support.cluster import ClusterProcesses
from support.ports import free_port
from tests.security.rolling_cluster import (
    SETTINGS,
    TOPIC,
    RunningProducer,
    create_topic,
    expect_all_delivered,
    restart,
)

CLIENTS = "SASL_PLAINTEXT"
"""The listener of clients and brokers. A second one, PLAINTEXT, is used only to start the cluster."""
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:broker;User:admin",
}


class SecuredProcesses:
    """Brokers that log in to each other, without an authorizer."""

    def __init__(self, cluster: ClusterProcesses, security: LocalSecurity, directory: Path) -> None:
        self.cluster = cluster
        self.security = security
        self.ports = {number: free_port() for number in cluster.brokers}
        common = security.broker_settings([CLIENTS])
        common = {name: escape_property(value) for name, value in common.items()}
        for number, broker in cluster.brokers.items():
            listeners = (
                f"PLAINTEXT://{broker.bootstrap_servers},{CLIENTS}://127.0.0.1:{self.ports[number]}"
            )
            broker.configure(
                {"listeners": listeners, "inter.broker.listener.name": CLIENTS, **common}
            )
        self.admin_config = directory / "admin.properties"
        security.files.write_settings(self.admin_config, kafka_settings(security.access("")))

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def client(self, user: str) -> dict[str, str]:
        return librdkafka_settings(self.security.access(self.servers, user))

    def restart_all(self, settings: Mapping[str, str]) -> None:
        for broker in self.cluster.brokers.values():
            restart(self.cluster, broker, settings, self.servers, self.security.client_security())

    def run_acls(self, *arguments: str) -> None:
        options = ("-b", self.servers, "--command-config", str(self.admin_config))
        assert run_command(["acls", *arguments, *options]) == 0


@pytest.fixture
def processes(tmp_path: Path, chroot: str) -> Iterator[SecuredProcesses]:
    users = ["app", "batch", "reader", "mallory"]
    security = LocalSecurity(CLIENTS, tmp_path / "security", users=users)
    security.write_files()
    asyncio.run(create_users(security, chroot))
    cluster = ClusterProcesses(tmp_path, chroot, settings=SETTINGS)
    secured = SecuredProcesses(cluster, security, tmp_path)
    with cluster:
        create_topic(cluster.bootstrap_servers)
        yield secured


async def create_users(security: LocalSecurity, zookeeper: str) -> None:
    registry = ZooKeeperRegistry(zookeeper, connection_timeout_ms=10_000)
    try:
        await security.create_users(registry)
    finally:
        await registry.close()


def test_rolling_change_to_acls(processes: SecuredProcesses) -> None:
    with (
        RunningProducer("app", processes.client("app")) as app,
        RunningProducer("batch", processes.client("batch")) as batch,
    ):

        def wait_for_more() -> None:
            app.wait_for_more()
            batch.wait_for_more()

        wait_for_more()
        processes.restart_all(AUTHORIZER | {ALLOW_EVERYONE: "true"})
        wait_for_more()
        everyone = ("User:*", "--operation", "all", "--topic", TOPIC)
        processes.run_acls("add", *everyone)
        for user in ("app", "batch"):
            processes.run_acls("add", user, "--producer", "--topic", TOPIC)
        processes.run_acls("add", "reader", "--consumer", "--topic", TOPIC, "--group", "check")
        processes.run_acls("remove", *everyone, "--yes")
        wait_for_more()
        processes.restart_all({ALLOW_EVERYONE: "false"})
        wait_for_more()
    expect_all_delivered(processes.client("reader"), app, batch)
    for broker in processes.cluster.brokers.values():
        assert "denied principal=" not in broker.log()
    assert produce_one(processes.client("mallory")) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produce_one(processes.client("reader")) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produce_one(processes.client("app")) is None


def produce_one(settings: Mapping[str, str]) -> int | None:
    """Return the error code of a delivery."""
    errors: list[KafkaError | None] = []
    producer = Producer({**settings, "log_level": 0})
    producer.produce(TOPIC, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(120)
    (error,) = errors
    return None if error is None else int(error.code())
