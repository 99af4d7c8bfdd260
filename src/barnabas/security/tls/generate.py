"""Generate certificates for local clusters and tests.

    authority = make_authority(now)
    server = make_certificate(authority, "broker", now, hosts=["localhost", "127.0.0.1"])
    client = make_certificate(authority, "alice", now)

All results are bytes in PEM format, or PKCS#12 files. Needs the package cryptography.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID

VALID_DAYS = 825
CLOCK_DIFFERENCE = timedelta(hours=1)
"""Certificates are valid from this time before their creation."""


class Identity(NamedTuple):
    """A certificate and its private key, both in PEM format."""

    certificate: bytes
    key: bytes

    @property
    def pem(self) -> bytes:
        """The content of a PEM key store: key and certificate in one file."""
        return self.key + self.certificate

    def __repr__(self) -> str:
        return "Identity()"


def make_authority(
    now: datetime, name: str = "Barnabas CA", *, valid_days: int = VALID_DAYS
) -> Identity:
    """Return a certificate authority with a self-signed certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = to_name(f"CN={name}")
    builder = start_certificate(subject, subject, key.public_key(), now, valid_days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(
        x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        ),
        critical=True,
    )
    return to_identity(builder.sign(key, hashes.SHA256()), key)


def make_certificate(
    authority: Identity,
    subject: str,
    now: datetime,
    *,
    hosts: Sequence[str] = (),
    valid_days: int = VALID_DAYS,
) -> Identity:
    """Return a certificate for servers and clients, signed by the authority.

    `subject` is a common name, or a name in the form of RFC 4514, as in `CN=alice,O=shop`. A server needs `hosts`: host
    names and IP addresses. A negative number of `valid_days` makes an expired certificate.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    name = to_name(subject if "=" in subject else f"CN={subject}")
    builder = start_certificate(name, issuer.subject, key.public_key(), now, valid_days)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    if hosts:
        names = x509.SubjectAlternativeName([to_alternative_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    authority_key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
        critical=False,
    )
    return to_identity(builder.sign(authority_key, hashes.SHA256()), key)


def make_key_store(identity: Identity, password: str, chain: Sequence[bytes] = ()) -> bytes:
    """Return a PKCS#12 key store with the key, its certificate, and the certificates of its authorities."""
    return pkcs12.serialize_key_and_certificates(
        b"barnabas",
        load_key(identity),
        x509.load_pem_x509_certificate(identity.certificate),
        [x509.load_pem_x509_certificate(each) for each in chain],
        serialization.BestAvailableEncryption(password.encode()),
    )


def make_trust_store(certificates: Sequence[bytes], password: str) -> bytes:
    """Return a PKCS#12 trust store that Java accepts too."""
    entries = [
        pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(each), f"ca-{index}".encode())
        for index, each in enumerate(certificates)
    ]
    return pkcs12.serialize_java_truststore(
        entries, serialization.BestAvailableEncryption(password.encode())
    )


def encrypt_key(identity: Identity, password: str) -> bytes:
    """Return the private key in PEM format, encrypted with a password."""
    return load_key(identity).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    )


def start_certificate(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime,
    valid_days: int,
) -> x509.CertificateBuilder:
    until = now + timedelta(days=valid_days)
    since = min(now, until) - CLOCK_DIFFERENCE
    identifier = x509.SubjectKeyIdentifier.from_public_key(public_key)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
        .add_extension(identifier, critical=False)
    )


def to_identity(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Identity:
    return Identity(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def load_key(identity: Identity) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(identity.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def to_name(text: str) -> x509.Name:
    """Return a name. Its parts are in the order of a certificate, which is the reverse of the text."""
    return x509.Name.from_rfc4514_string(text)


def to_alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
