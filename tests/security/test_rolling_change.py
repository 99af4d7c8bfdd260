"""A running cluster of three brokers changes from PLAINTEXT to SASL_SSL, one broker after the other.

docs/security.md describes the steps. Producers run all the time. No record may fail, be lost or be duplicated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from barnabas.cluster.client_settings import kafka_settings, librdkafka_settings
from barnabas.cluster.local_security import LocalSecurity
from barnabas.config.properties import escape_property
from barnabas.security.client_settings import PLAINTEXT, ClientSecurity, parse_client_security
from support.cluster import ClusterProcesses, MemberProcess
from support.command import run
from support.ports import free_port
from tests.security.rolling_cluster import (
    SETTINGS,
    RunningProducer,
    create_topic,
    expect_all_delivered,
    restart,
)


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
        is_plain = security is PLAINTEXT
        servers = self.cluster.bootstrap_servers if is_plain else self.secure_servers
        restart(self.cluster, broker, settings, servers, security)


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
    expect_all_delivered(secure, old, new)
    for broker in change.cluster.brokers.values():
        assert "SASL_AUTHENTICATION_FAILED" not in broker.log()
