"""A cluster with one broker whose listeners use different security protocols, and client settings for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from barnabas import LocalCluster
from barnabas.broker.broker import BrokerServer
from barnabas.broker.security.logins import LoginCounts
from barnabas.client.cluster import Cluster
from barnabas.security.client_sources import load_security
from support.certificates import CertificateFiles

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORDS = {"admin": "admin-Zb8!", "alice": "alice-Qk3!"}
"""Users of PLAIN. admin is a super user."""
PROTOCOLS = {
    "LOCAL": "PLAINTEXT",
    "LOGIN": "SASL_PLAINTEXT",
    "RELOGIN": "SASL_PLAINTEXT",
}
"""Listener → security protocol. Brokers use the first one."""
REAUTH_MS = 600_000
"""Lifetime of logins on the listener RELOGIN."""
TLS_PROTOCOLS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "SECURE": "SASL_SSL",
    "ELSEWHERE": "SSL",
    "EXPIRED": "SSL",
}
"""Listeners of a cluster with certificates."""


@dataclass(frozen=True, slots=True)
class SecuredCluster:
    cluster: LocalCluster

    @property
    def broker(self) -> BrokerServer:
        instance = self.cluster.brokers[1].instance
        assert instance is not None
        return instance.broker

    @property
    def ports(self) -> dict[str, int]:
        """The port of each listener."""
        return {each.listener: each.port for each in self.broker.endpoints}

    def login_counts(self, listener: str) -> LoginCounts:
        assert self.broker.security is not None
        return self.broker.security.logins.counts[listener]

    def servers(self, listener: str = "LOGIN") -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def connect(self, settings: Mapping[str, str], listener: str = "LOGIN") -> Cluster:
        return Cluster(self.servers(listener), security=load_security(settings), timeout_s=30)

    def admin(self, listener: str = "LOGIN") -> Cluster:
        return self.connect(plain_login("admin"), listener)


@contextmanager
def secured_cluster(certificates: CertificateFiles | None = None) -> Iterator[SecuredCluster]:
    protocols = PROTOCOLS if certificates is None else PROTOCOLS | TLS_PROTOCOLS
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    jaas = f"{PLAIN_MODULE} required {users};"
    scram = f"{SCRAM_MODULE} required;"
    mechanisms = ("plain", "scram-sha-256", "scram-sha-512")
    lines = {
        f"listener.name.{listener}.{each}.sasl.jaas.config": jaas if each == "plain" else scram
        for listener in ("login", "relogin", "secure")
        for each in mechanisms
    }
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in protocols),
        "listener.security.protocol.map": ",".join(f"{a}:{b}" for a, b in protocols.items()),
        "inter.broker.listener.name": "LOCAL",
        "sasl.enabled.mechanisms": ",".join(each.upper() for each in mechanisms),
        "listener.name.relogin.connections.max.reauth.ms": str(REAUTH_MS),
        "connection.failed.authentication.delay.ms": "0",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        "log.retention.ms": "-1",
        **lines,
        **({} if certificates is None else tls_settings(certificates)),
    }
    with LocalCluster(brokers=1, settings=settings) as running:
        yield SecuredCluster(running)


def tls_settings(certificates: CertificateFiles) -> dict[str, str]:
    return {
        **certificates.server_settings(),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.elsewhere.ssl.keystore.location": str(certificates.wrong_host_server),
        "listener.name.expired.ssl.keystore.location": str(certificates.expired_server),
    }


def plain_login(user: str, password: str | None = None) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS.get(user, "") if password is None else password,
    }


def scram_login(user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    line = f'{SCRAM_MODULE} required username="{user}" password="{password}";'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": line,
    }


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path
