"""Key stores and trust stores: PEM text and PKCS#12 files.

The content decides the format, as in Java, which reads PKCS#12 files although the type is JKS. Files in Java's own
format JKS are rejected with the command that converts them. PEM needs no other package; PKCS#12 needs cryptography.
"""

from __future__ import annotations

import base64
import binascii
import re
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from barnabas.errors import BarnabasError, ConfigError, reason
from barnabas.security.tls.der import find_iterations
from barnabas.security.tls.settings import TlsSettings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

STORE_BYTES_MAX = 1 << 20
ITERATIONS_MAX = 5_000_000
"""Maximum iterations of a key derivation. Java uses 10,000. More would take seconds to read."""
CERTIFICATES_MAX = 1000
JKS_MAGIC = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC = b"\xce\xce\xce\xce"
PEM_BLOCK = re.compile(
    rb"-----BEGIN ([A-Z0-9 ]+)-----\s*(.*?)\s*-----END \1-----", re.DOTALL | re.ASCII
)
INSTALL = "pip install 'barnabas[security]'"

ReadFile = Callable[[str], bytes]


class KeyStore(NamedTuple):
    """A private key with its certificates."""

    pem: bytes
    """The key and the certificates."""
    password: str
    """Password of the key in `pem`; empty if it is not encrypted."""
    certificates: tuple[bytes, ...]
    """In DER, the certificate of the key first."""

    def __repr__(self) -> str:
        return f"KeyStore({len(self.certificates)} certificates)"


class Stores(NamedTuple):
    """The content of the key store and of the trust store. None: not configured."""

    key: KeyStore | None
    trusted: tuple[bytes, ...] | None
    """Certificates in DER."""


def read_stores(settings: TlsSettings, read_file: ReadFile) -> Stores:
    """Read both stores. Raises ConfigError. Takes up to a second: call it in a thread."""
    return Stores(read_key_store(settings, read_file), read_trust_store(settings, read_file))


def read_key_store(settings: TlsSettings, read_file: ReadFile) -> KeyStore | None:
    if settings.keystore_key:
        chain = settings.keystore_certificate_chain or ""
        return read_pem_key_store(
            settings, "keystore_key", f"{settings.keystore_key}\n{chain}".encode()
        )
    if not settings.keystore_location:
        return None
    field = "keystore_location"
    data = read_store(settings, field, read_file)
    if is_pem(data):
        return read_pem_key_store(settings, field, data)
    return read_pkcs12_key_store(settings, field, data)


def read_trust_store(settings: TlsSettings, read_file: ReadFile) -> tuple[bytes, ...] | None:
    if settings.truststore_certificates:
        field = "truststore_certificates"
        return read_trusted_pem(settings, field, settings.truststore_certificates.encode())
    if not settings.truststore_location:
        return None
    field = "truststore_location"
    data = read_store(settings, field, read_file)
    if is_pem(data):
        return read_trusted_pem(settings, field, data)
    password = settings.truststore_password
    store = load_pkcs12(settings, field, data, password)
    found = [store.cert] if store.cert is not None else []
    certificates = tuple(to_der(each.certificate) for each in (*found, *store.additional_certs))
    if not certificates:
        raise settings.error(field, "the store has no certificate")
    return certificates


def read_store(settings: TlsSettings, field: str, read_file: ReadFile) -> bytes:
    path = str(getattr(settings, field))
    try:
        data = read_file(path)
    except (OSError, BarnabasError) as error:
        why = getattr(error, "strerror", None) or reason(error)
        raise settings.error(field, f"cannot read {path}: {why}") from error
    if not data:
        raise settings.error(field, f"{path} is empty")
    if len(data) > STORE_BYTES_MAX:
        raise settings.error(field, f"{path} has more than {STORE_BYTES_MAX} bytes")
    if data.startswith((JKS_MAGIC, JCEKS_MAGIC)):
        raise settings.error(
            field, f"{path} is in Java's format JKS; convert it: {conversion(path)}"
        )
    return data


def conversion(path: str) -> str:
    """Return the command that converts a JKS file.

    >>> conversion("/etc/server.jks")
    'keytool -importkeystore -srckeystore /etc/server.jks -destkeystore /etc/server.p12 -deststoretype PKCS12'
    """
    target = path.removesuffix(".jks") + ".p12"
    return (
        f"keytool -importkeystore -srckeystore {path} -destkeystore {target} -deststoretype PKCS12"
    )


# ---- PEM


def is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def read_pem_key_store(settings: TlsSettings, field: str, data: bytes) -> KeyStore:
    certificates = read_pem_certificates(settings, field, data)
    keys = [match for match in PEM_BLOCK.finditer(data) if match[1].endswith(b"PRIVATE KEY")]
    if len(keys) != 1:
        found = "no private key" if not keys else f"{len(keys)} private keys"
        raise settings.error(field, f"needs one private key in PEM format, but has {found}")
    if not certificates:
        raise settings.error(field, "has no certificate")
    is_encrypted = keys[0][1].startswith(b"ENCRYPTED") or b"Proc-Type: 4,ENCRYPTED" in keys[0][2]
    if is_encrypted and not settings.key_password:
        password = settings.name("key_password")
        raise ConfigError(password, "the private key is encrypted; set its password here")
    if keys[0][1].startswith(b"ENCRYPTED"):
        check_iterations(settings, field, decode_block(settings, field, keys[0][2]))
    pem = keys[0][0] + b"\n" + b"".join(to_pem(each) for each in certificates)
    return KeyStore(pem, (settings.key_password or "") if is_encrypted else "", certificates)


def read_trusted_pem(settings: TlsSettings, field: str, data: bytes) -> tuple[bytes, ...]:
    certificates = read_pem_certificates(settings, field, data)
    if not certificates:
        raise settings.error(field, "has no certificate in PEM format")
    return certificates


def read_pem_certificates(settings: TlsSettings, field: str, data: bytes) -> tuple[bytes, ...]:
    """Return the certificates in DER, in their order."""
    blocks = [match[2] for match in PEM_BLOCK.finditer(data) if match[1] == b"CERTIFICATE"]
    if len(blocks) > CERTIFICATES_MAX:
        raise settings.error(field, f"has more than {CERTIFICATES_MAX} certificates")
    return tuple(decode_block(settings, field, block) for block in blocks)


def decode_block(settings: TlsSettings, field: str, block: bytes) -> bytes:
    try:
        return base64.b64decode(b"".join(block.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise settings.error(field, "has a PEM block that is not valid base64") from error


def to_pem(certificate: bytes) -> bytes:
    return ssl.DER_cert_to_PEM_cert(certificate).encode()


# ---- PKCS#12


def read_pkcs12_key_store(settings: TlsSettings, field: str, data: bytes) -> KeyStore:
    from cryptography.hazmat.primitives import serialization

    store = load_pkcs12(settings, field, data, settings.keystore_password)
    if store.key is None or store.cert is None:
        raise settings.error(field, "the store has no private key with a certificate")
    key = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    others = [each.certificate for each in store.additional_certs]
    certificates = tuple(to_der(each) for each in build_chain(store.cert.certificate, others))
    return KeyStore(key + b"".join(to_pem(each) for each in certificates), "", certificates)


def load_pkcs12(
    settings: TlsSettings, field: str, data: bytes, password: str | None
) -> PKCS12KeyAndCertificates:
    path = getattr(settings, field)
    check_iterations(settings, field, data)
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        why = f"a PKCS#12 file needs the package cryptography: {INSTALL}; or use PEM files"
        raise settings.error(field, why) from error
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except Exception as error:  # cryptography has several errors for invalid files
        password_name = settings.name(field.replace("location", "password"))
        why = f"cannot read {path}: wrong password ({password_name}), or not a PKCS#12 file"
        raise settings.error(field, why) from error


def check_iterations(settings: TlsSettings, field: str, data: bytes) -> None:
    try:
        iterations = find_iterations(data)
    except ValueError as error:
        path = getattr(settings, field) if field.endswith("location") else "the value"
        why = f"{path} is neither PEM nor PKCS#12: {error}"
        raise settings.error(field, why) from error
    if iterations > ITERATIONS_MAX:
        why = f"key derivation with {iterations} iterations; at most {ITERATIONS_MAX} are allowed"
        raise settings.error(field, why)


def build_chain(first: Certificate, others: list[Certificate]) -> list[Certificate]:
    """Return the certificate, followed by those of its authorities, each signed by the next."""
    chain = [first]
    left = list(others)
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in left if each.subject == chain[-1].issuer), None)
        if issuer is None:
            break
        left.remove(issuer)
        chain.append(issuer)
    return chain


def to_der(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)
