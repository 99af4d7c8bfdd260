"""Certificates for tests, as files: one authority, and certificates of brokers and clients.

files = CertificateFiles(tmp_path)
files.server          PEM file with the key and the certificate of localhost, 127.0.0.1 and ::1
files.ca              PEM file with the certificate of the authority
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from barnabas.security.tls.generate import (
    Identity,
    encrypt_key,
    make_authority,
    make_certificate,
    make_key_store,
    make_trust_store,
)

PASSWORD = "store-secret"
"""Password of all PKCS#12 files and of the encrypted key."""
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class CertificateFiles:
    """Files in a directory. Each file is written when it is first used."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.now = datetime.now(UTC)
        self.authority = make_authority(self.now, "Test CA")

    @cached_property
    def ca(self) -> Path:
        return self.write("ca.pem", self.authority.certificate)

    @cached_property
    def ca_pkcs12(self) -> Path:
        return self.write("ca.p12", make_trust_store([self.authority.certificate], PASSWORD))

    @cached_property
    def server_identity(self) -> Identity:
        return self.make("CN=broker,O=Barnabas", hosts=LOCAL_HOSTS)

    @cached_property
    def server(self) -> Path:
        return self.write("server.pem", self.server_identity.pem)

    @cached_property
    def server_pkcs12(self) -> Path:
        store = make_key_store(self.server_identity, PASSWORD, [self.authority.certificate])
        return self.write("server.p12", store)

    @cached_property
    def server_encrypted(self) -> Path:
        key = encrypt_key(self.server_identity, PASSWORD)
        return self.write("server-encrypted.pem", key + self.server_identity.certificate)

    @cached_property
    def expired_server(self) -> Path:
        identity = self.make("broker", hosts=LOCAL_HOSTS, valid_days=-1)
        return self.write("expired-server.pem", identity.pem)

    @cached_property
    def wrong_host_server(self) -> Path:
        identity = self.make("broker", hosts=["elsewhere.example"])
        return self.write("wrong-host-server.pem", identity.pem)

    @cached_property
    def client_identity(self) -> Identity:
        return self.make("CN=alice,OU=orders,O=Shop")

    @cached_property
    def client(self) -> Path:
        return self.write("client.pem", self.client_identity.pem)

    @cached_property
    def client_certificate(self) -> Path:
        return self.write("client-certificate.pem", self.client_identity.certificate)

    @cached_property
    def client_key(self) -> Path:
        return self.write("client-key.pem", self.client_identity.key)

    @cached_property
    def client_pkcs12(self) -> Path:
        return self.write("client.p12", make_key_store(self.client_identity, PASSWORD))

    @cached_property
    def expired_client(self) -> Path:
        return self.write("expired-client.pem", self.make("expired", valid_days=-1).pem)

    @cached_property
    def other_ca(self) -> Path:
        """The certificate of an authority that signed nothing here."""
        return self.write("other-ca.pem", self.other_authority.certificate)

    @cached_property
    def other_authority(self) -> Identity:
        return make_authority(self.now, "Other CA")

    @cached_property
    def untrusted_client(self) -> Path:
        """A client whose authority is `other_authority`."""
        identity = make_certificate(self.other_authority, "mallory", self.now)
        return self.write("untrusted-client.pem", identity.pem)

    def make(self, subject: str, *, hosts: Sequence[str] = (), valid_days: int = 30) -> Identity:
        """Return a new certificate of the authority."""
        return make_certificate(
            self.authority, subject, self.now, hosts=hosts, valid_days=valid_days
        )

    def write(self, name: str, content: bytes) -> Path:
        path = self.directory / name
        path.write_bytes(content)
        path.chmod(0o600)
        return path

    def server_settings(self, listener: str | None = None) -> dict[str, str]:
        """Return the settings of a broker that accepts TLS and trusts clients of the authority."""
        prefix = "" if listener is None else f"listener.name.{listener.lower()}."
        return {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": str(self.server),
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": str(self.ca),
        }
