"""Certificates and passwords of a local cluster, in a directory that only its owner can read.

    <directory>/ca.pem, ca-key.pem       the authority that signs the other certificates
    <directory>/broker.pem               key and certificate of the brokers
    <directory>/user-<name>.pem          key and certificate of a user, if users log in with certificates
    <directory>/<name>.password          generated password of a user, also of the brokers

Files of an earlier start are used again. A certificate is replaced before it expires, or if a host name is new.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from barnabas.config.properties import properties_text
from barnabas.errors import ConfigError, reason

if TYPE_CHECKING:
    from barnabas.security.tls.generate import Identity

RENEW_BEFORE = timedelta(days=30)
PASSWORD_BYTES = 18
OWNER_ONLY = 0o600


class SecurityFiles:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = directory / "ca.pem"
        self.ca_key = directory / "ca-key.pem"
        self.broker = directory / "broker.pem"

    def identity(self, user: str) -> Path:
        return self.directory / f"user-{quote(user, safe='')}.pem"

    def password(self, user: str) -> Path:
        return self.directory / f"{quote(user, safe='')}.password"

    def read_password(self, user: str) -> str | None:
        """Return the password of an earlier start, or None."""
        try:
            return self.password(user).read_text(encoding="utf-8").strip() or None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(
                str(self.password(user)), f"cannot be read: {reason(error)}"
            ) from error

    def write_passwords(self, passwords: Mapping[str, str]) -> None:
        self.create_directory()
        for user, password in passwords.items():
            write_private(self.password(user), f"{password}\n".encode())

    def write_certificates(self, hosts: Sequence[str], users: Iterable[str]) -> None:
        """Create the certificates that are missing, expire soon or do not name all hosts. Raises ConfigError."""
        try:
            from barnabas.security.tls import generate
        except ImportError as error:
            why = "certificates need the package cryptography: pip install 'barnabas[security]'"
            raise ConfigError("security", why) from error
        self.create_directory()
        now = datetime.now(UTC)
        authority = self.read_authority()
        if authority is None or not is_usable(
            authority.certificate, authority.certificate, (), now
        ):
            authority = generate.make_authority(now)
            write_private(self.ca_key, authority.key)
            write_private(self.ca, authority.certificate)
        names = {self.broker: ("broker", tuple(hosts))}
        names |= {self.identity(user): (user, ()) for user in users}
        for path, (name, own_hosts) in names.items():
            if not is_usable(read_if_present(path), authority.certificate, own_hosts, now):
                made = generate.make_certificate(authority, name, now, hosts=own_hosts)
                write_private(path, made.pem)

    def read_authority(self) -> Identity | None:
        from barnabas.security.tls.generate import Identity

        certificate, key = read_if_present(self.ca), read_if_present(self.ca_key)
        return Identity(certificate, key) if certificate and key else None

    def write_librdkafka_settings(self, path: Path, settings: Mapping[str, str]) -> None:
        """Write a file for kcat, which knows no escapes."""
        self.create_directory()
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        write_private(path, text.encode(errors="surrogateescape"))

    def write_settings(self, path: Path, settings: Mapping[str, str]) -> None:
        """Write a properties file."""
        self.create_directory()
        write_private(path, properties_text(settings).encode("ascii"))

    def create_directory(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def generate_password() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def is_usable(pem: bytes | None, authority: bytes, hosts: Sequence[str], now: datetime) -> bool:
    """Return whether a certificate is signed by the authority, names all hosts and does not expire soon."""
    if not pem:
        return False
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        certificate = x509.load_pem_x509_certificate(pem)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return certificate.not_valid_after_utc - now > RENEW_BEFORE and set(hosts) <= named_hosts(pem)


def named_hosts(pem: bytes) -> set[str]:
    """Return the host names and addresses of a certificate."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        return set()
    names = found.value
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return {*names.get_values_for_type(x509.DNSName), *addresses}


def read_if_present(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def write_private(path: Path, content: bytes) -> None:
    """Write a file in one step. At no time can other users read it."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)
