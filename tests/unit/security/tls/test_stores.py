"""Key stores and trust stores in all formats, and what is wrong with those that are rejected."""

from __future__ import annotations

import builtins
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    PrivateFormat,
    pkcs12,
)

from barnabas.errors import ConfigError
from barnabas.security.tls import stores
from barnabas.security.tls.context import (
    build_client_context,
    build_server_context,
    client_context,
    read_file,
)
from barnabas.security.tls.der import find_iterations
from barnabas.security.tls.generate import load_key
from barnabas.security.tls.rehearsal import connect_in_memory
from barnabas.security.tls.settings import TlsSettings, read_tls_settings
from barnabas.security.tls.stores import STORE_BYTES_MAX, read_stores
from support.certificates import PASSWORD, CertificateFiles


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


def text(path: Path) -> str:
    return path.read_text()


def server_formats(files: CertificateFiles) -> list[dict[str, str]]:
    location, kind = "ssl.keystore.location", "ssl.keystore.type"
    certificate = files.server_identity.certificate.decode()
    return [
        {location: str(files.server), kind: "PEM"},
        {location: str(files.server)},  # the type is JKS
        {location: str(files.server_encrypted), kind: "pem", "ssl.key.password": PASSWORD},
        {location: str(files.server_pkcs12), kind: "PKCS12", "ssl.keystore.password": PASSWORD},
        {location: str(files.server_pkcs12), "ssl.keystore.password": PASSWORD},
        {
            kind: "PEM",
            "ssl.keystore.key": files.server_identity.key.decode(),
            "ssl.keystore.certificate.chain": certificate,
        },
        {
            kind: "PEM",
            "ssl.keystore.key": text(files.server_encrypted).partition("-----BEGIN CERT")[0],
            "ssl.key.password": PASSWORD,
            "ssl.keystore.certificate.chain": certificate + files.authority.certificate.decode(),
        },
    ]


def client_formats(files: CertificateFiles) -> list[dict[str, str]]:
    location = "ssl.truststore.location"
    return [
        {location: str(files.ca), "ssl.truststore.type": "PEM"},
        {location: str(files.ca_pkcs12), "ssl.truststore.password": PASSWORD},
        {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text(files.ca)},
        {location: str(files.server)},  # the certificate of one server, not of an authority
    ]


def test_all_formats_work_together(files: CertificateFiles) -> None:
    servers = []
    for properties in server_formats(files):
        settings = read_tls_settings(properties.get)
        servers.append(build_server_context(settings, read_stores(settings, read_file)))
    for properties in client_formats(files):
        hosts = {"ssl.endpoint.identification.algorithm": ""}
        client = client_context(read_tls_settings({**properties, **hosts}.get))
        for server in servers:
            connect_in_memory(server, client)


@pytest.mark.parametrize(
    ("changes", "key", "expected"),
    [
        (
            {"keystore.location": "/none"},
            "ssl.keystore.location",
            "cannot read /none: No such file",
        ),
        ({"keystore.location": "/"}, "ssl.keystore.location", "Is a directory"),
        ({"keystore.location": "@ca"}, "ssl.keystore.location", "has no private key"),
        ({"keystore.location": "@client_key"}, "ssl.keystore.location", "has no certificate"),
        ({"keystore.location": "@server_encrypted"}, "ssl.key.password", "is encrypted"),
        (
            {"keystore.location": "@server_encrypted", "key.password": "wrong"},
            "ssl.key.password",
            "wrong password",
        ),
        ({"keystore.location": "@server_pkcs12"}, "ssl.keystore.location", "ssl.keystore.password"),
        (
            {"keystore.location": "@server_pkcs12", "keystore.password": "wrong"},
            "ssl.keystore.location",
            "wrong password",
        ),
        (
            {"keystore.location": "@ca_pkcs12", "keystore.password": PASSWORD},
            "ssl.keystore.location",
            "has no private key",
        ),
        ({"truststore.location": "@client_key"}, "ssl.truststore.location", "has no certificate"),
        ({"truststore.type": "BCFKS"}, "ssl.truststore.type", "use PEM or PKCS12"),
        ({"keystore.key": "x"}, "ssl.keystore.key", "needs ssl.keystore.certificate.chain"),
        ({"keystore.certificate.chain": "x"}, "ssl.keystore.certificate.chain", "needs"),
        (
            {"keystore.key": "x", "keystore.location": "y"},
            "ssl.keystore.key",
            "cannot be set together",
        ),
        (
            {"truststore.certificates": "x", "truststore.location": "y"},
            "ssl.truststore.certificates",
            "cannot be set together",
        ),
        ({"client.auth": "maybe"}, "ssl.client.auth", "'maybe' is not one of"),
        ({"enabled.protocols": "TLSv1.9"}, "ssl.enabled.protocols", "'TLSv1.9' is not"),
        ({"enabled.protocols": "TLSv1,TLSv1.1"}, "ssl.enabled.protocols", "not secure"),
        ({"cipher.suites": "TLS_NULL_WITH_X"}, "ssl.cipher.suites", "is not supported"),
        (
            {"cipher.suites": "TLS_AES_256_GCM_SHA384", "enabled.protocols": "TLSv1.2"},
            "ssl.cipher.suites",
            "no cipher suite fits",
        ),
        (
            {"endpoint.identification.algorithm": "LDAPS"},
            "ssl.endpoint.identification.algorithm",
            "'LDAPS' is not supported",
        ),
    ],
)
def test_unusable_settings_name_the_setting(
    files: CertificateFiles, changes: dict[str, str], key: str, expected: str
) -> None:
    properties = {
        f"ssl.{name}": str(getattr(files, value[1:])) if value.startswith("@") else value
        for name, value in changes.items()
    }
    with pytest.raises(ConfigError) as caught:
        client_context(read_tls_settings(properties.get))
    assert caught.value.key == key
    assert expected in caught.value.why


def test_key_of_another_certificate_is_rejected(files: CertificateFiles) -> None:
    mixed = files.write("mixed.pem", files.client_identity.key + files.server_identity.certificate)
    with pytest.raises(ConfigError, match="key values mismatch"):
        client_context(TlsSettings(keystore_location=str(mixed)))


def test_jks_file_is_rejected_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "server.jks"
    path.write_bytes(bytes.fromhex("feedfeed00000002"))
    expected = f"keytool -importkeystore -srckeystore {path} -destkeystore {tmp_path}/server.p12"
    with pytest.raises(ConfigError, match="format JKS") as caught:
        client_context(TlsSettings(keystore_location=str(path)))
    assert expected in str(caught.value)


@pytest.mark.skipif(shutil.which("keytool") is None, reason="needs keytool of a JDK")
def test_converted_jks_file_is_read(tmp_path: Path, files: CertificateFiles) -> None:
    jks = tmp_path / "trust.jks"
    options = ["-storetype", "JKS", "-alias", "ca", "-storepass", PASSWORD, "-noprompt"]
    subprocess.run(
        ["keytool", "-importcert", "-keystore", jks, "-file", files.ca, *options],
        check=True,
        capture_output=True,
    )
    with pytest.raises(ConfigError) as caught:
        client_context(TlsSettings(truststore_location=str(jks)))
    command = str(caught.value).rpartition("convert it: ")[2].split()
    passwords = ["-srcstorepass", PASSWORD, "-deststorepass", PASSWORD, "-noprompt"]
    subprocess.run([*command, *passwords], check=True, capture_output=True)
    settings = TlsSettings(
        truststore_location=str(tmp_path / "trust.p12"), truststore_password=PASSWORD
    )
    assert read_stores(settings, read_file).trusted == (ssl.PEM_cert_to_DER_cert(text(files.ca)),)


def test_large_files_and_many_iterations_are_rejected(
    tmp_path: Path, files: CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = tmp_path / "large.pem"
    large.write_bytes(bytes(STORE_BYTES_MAX + 1))
    with pytest.raises(ConfigError, match="more than 1048576 bytes"):
        client_context(TlsSettings(truststore_location=str(large)))
    monkeypatch.setattr(stores, "ITERATIONS_MAX", 1000)
    for settings in (
        TlsSettings(keystore_location=str(files.server_pkcs12), keystore_password=PASSWORD),
        TlsSettings(keystore_location=str(files.server_encrypted), key_password=PASSWORD),
        TlsSettings(truststore_location=str(files.ca_pkcs12), truststore_password=PASSWORD),
    ):
        with pytest.raises(ConfigError, match="at most 1000 are allowed"):
            client_context(settings)


def test_iterations_of_the_key_and_of_the_checksum_are_found(files: CertificateFiles) -> None:
    encryption = (
        PrivateFormat.PKCS12.encryption_builder()
        .kdf_rounds(12_345)
        .key_cert_algorithm(pkcs12.PBES.PBESv2SHA256AndAES256CBC)
        .build(b"x")
    )
    identity = files.server_identity
    certificate = x509.load_pem_x509_certificate(identity.certificate)
    data = pkcs12.serialize_key_and_certificates(
        b"x", load_key(identity), certificate, None, encryption
    )
    assert find_iterations(data) == 12_345
    plain = BestAvailableEncryption(b"x")
    data = pkcs12.serialize_key_and_certificates(None, load_key(identity), None, None, plain)
    assert find_iterations(data) > 1000


def test_pkcs12_without_cryptography_names_the_package(
    files: CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = builtins.__import__

    def load_without(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return load(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", load_without)
    settings = TlsSettings(truststore_location=str(files.ca_pkcs12), truststore_password=PASSWORD)
    with pytest.raises(ConfigError, match=r"pip install 'barnabas\[security\]'"):
        client_context(settings)
    client_context(TlsSettings(truststore_location=str(files.ca)))  # PEM needs no package


def test_secrets_are_not_shown(files: CertificateFiles) -> None:
    settings = TlsSettings(
        keystore_location=str(files.server_pkcs12),
        keystore_password=PASSWORD,
        key_password=PASSWORD,
        keystore_certificate_chain="PRIVATE",
    )
    assert PASSWORD not in f"{settings} {settings!r}"
    assert "PRIVATE" not in f"{settings} {settings!r}"
    assert "PRIVATE KEY" not in repr(read_stores(settings, read_file))
    assert "PRIVATE KEY" not in repr(files.server_identity)


def test_cipher_suites_limit_the_tls_versions() -> None:
    modern = "TLS_AES_256_GCM_SHA384"
    older = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    tls_1_2, tls_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    for suites, versions in (
        ((modern,), (tls_1_3, tls_1_3)),
        ((older,), (tls_1_2, tls_1_2)),
        ((modern, older), (tls_1_2, tls_1_3)),
    ):
        settings = TlsSettings(cipher_suites=suites)
        context = build_client_context(settings, stores.Stores(None, None))
        assert (context.minimum_version, context.maximum_version) == versions
    context = build_client_context(TlsSettings(cipher_suites=(older,)), stores.Stores(None, None))
    names = {each["name"] for each in context.get_ciphers()}
    assert "ECDHE-RSA-AES256-GCM-SHA384" in names
    assert "ECDHE-RSA-AES128-GCM-SHA256" not in names


def test_encrypted_key_is_never_asked_for_on_the_terminal(files: CertificateFiles) -> None:
    """OpenSSL asks for a password if a key of the older format is encrypted."""
    legacy = b"-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END EC PRIVATE KEY-----\n"
    path = files.write("legacy.pem", legacy + files.server_identity.certificate)
    with pytest.raises(ConfigError, match="is encrypted"):
        client_context(TlsSettings(keystore_location=str(path)))
    with pytest.raises(ConfigError, match="wrong password"):
        client_context(TlsSettings(keystore_location=str(path), key_password="x"))
