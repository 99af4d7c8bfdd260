"""Certificates and passwords of local clusters."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from barnabas.cluster.client_settings import (
    ClientAccess,
    jaas_line,
    kafka_python_arguments,
    kafka_settings,
    librdkafka_settings,
)
from barnabas.cluster.local_security import LocalSecurity
from barnabas.cluster.security_files import SecurityFiles, is_usable, named_hosts
from barnabas.model import SecurityProtocol
from barnabas.security.jaas import parse_jaas
from barnabas.security.tls.generate import make_certificate

HOSTS = ["localhost", "127.0.0.1"]


def test_certificates_are_used_again(tmp_path: Path) -> None:
    files = SecurityFiles(tmp_path)
    files.write_certificates(HOSTS, ["alice"])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    files.write_certificates(HOSTS, ["alice"])
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert {path.name for path in before} == {
        "ca.pem",
        "ca-key.pem",
        "broker.pem",
        "user-alice.pem",
    }


def test_certificate_is_replaced_for_new_host(tmp_path: Path) -> None:
    files = SecurityFiles(tmp_path)
    files.write_certificates(HOSTS, [])
    authority = files.ca.read_bytes()
    files.write_certificates([*HOSTS, "broker.example"], [])
    assert named_hosts(files.broker.read_bytes()) == {*HOSTS, "broker.example"}
    assert files.ca.read_bytes() == authority


def test_certificate_is_replaced_before_it_expires(tmp_path: Path) -> None:
    files = SecurityFiles(tmp_path)
    files.write_certificates(HOSTS, [])
    authority = files.read_authority()
    assert authority is not None
    now = datetime.now(UTC)
    old = make_certificate(authority, "broker", now, hosts=HOSTS, valid_days=7)
    assert not is_usable(old.pem, authority.certificate, HOSTS, now)
    files.broker.write_bytes(old.pem)
    files.write_certificates(HOSTS, [])
    assert is_usable(files.broker.read_bytes(), authority.certificate, HOSTS, now)


def test_certificate_of_other_authority_is_replaced(tmp_path: Path) -> None:
    files = SecurityFiles(tmp_path)
    files.write_certificates(HOSTS, [])
    files.ca_key.unlink()
    before = files.broker.read_bytes()
    files.write_certificates(HOSTS, [])
    assert files.broker.read_bytes() != before
    assert is_usable(files.broker.read_bytes(), files.ca.read_bytes(), HOSTS, datetime.now(UTC))


def test_user_name_cannot_leave_the_directory(tmp_path: Path) -> None:
    files = SecurityFiles(tmp_path)
    assert files.password("../../etc/passwd").parent == tmp_path
    assert files.identity("a/b").parent == tmp_path


def test_generated_passwords_differ_and_are_kept(tmp_path: Path) -> None:
    security = LocalSecurity("SASL_SSL", tmp_path, users=["alice"])
    security.write_files()
    assert security.is_new
    again = LocalSecurity("SASL_SSL", tmp_path, users=["alice"])
    assert again.passwords == security.passwords
    assert not again.is_new
    assert len(set(security.passwords.values())) == 3


def test_jaas_line_escapes_values() -> None:
    password = 'a"b\\c\nd;='
    line = jaas_line("PLAIN", username="alice", password=password)
    assert parse_jaas(line).options == {"username": "alice", "password": password}


def test_settings_of_certificate_login() -> None:
    access = ClientAccess(
        "h:1", SecurityProtocol.SSL, Path("ca.pem"), Path("alice.pem"), user="alice"
    )
    assert kafka_settings(access) == {
        "bootstrap.servers": "h:1",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "alice.pem",
    }
    assert librdkafka_settings(access)["ssl.key.location"] == "alice.pem"
    assert kafka_python_arguments(access)["ssl_certfile"] == "alice.pem"
