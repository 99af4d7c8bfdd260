"""SSL contexts of servers and clients, built from settings.

    context = client_context(read_tls_settings(properties.get))

A context holds the certificates that were in the files when it was built.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from barnabas.errors import ConfigError
from barnabas.security.tls.ciphers import is_tls_1_3, to_openssl_name
from barnabas.security.tls.settings import HTTPS, TlsSettings
from barnabas.security.tls.stores import STORE_BYTES_MAX, KeyStore, Stores, read_stores

logger = logging.getLogger("barnabas.tls")

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
OLD_VERSIONS = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")
OPEN_FILES = Path("/proc/self/fd")


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Read the stores and return a context for connections to servers. Raises ConfigError.

    Without a trust store, the certificates of the system are trusted, as in Java.
    """
    return build_client_context(settings, read_stores(settings, read_file))


def read_file(path: str) -> bytes:
    """Return the content of a store, or its first bytes if it is too large."""
    with Path(path).open("rb") as file:
        return file.read(STORE_BYTES_MAX + 1)


def build_client_context(settings: TlsSettings, stores: Stores) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.endpoint_identification_algorithm.lower() == HTTPS
    configure(context, settings, stores)
    return context


def build_server_context(settings: TlsSettings, stores: Stores) -> ssl.SSLContext:
    """Return a context for a listener. Raises ConfigError if there is no key."""
    if stores.key is None:
        raise settings.error("keystore_location", "a TLS listener needs a key store; set this file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = (
        0  # TLS 1.3 sessions are not resumed: each client presents its certificate again
    )
    context.verify_mode = {
        "required": ssl.CERT_REQUIRED,
        "requested": ssl.CERT_OPTIONAL,
        "none": ssl.CERT_NONE,
    }[settings.client_auth]
    configure(context, settings, stores)
    return context


def configure(context: ssl.SSLContext, settings: TlsSettings, stores: Stores) -> None:
    """Apply the settings that servers and clients share."""
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # A trust store may have the certificate of an intermediate authority or of one server, as in Java.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    set_versions(context, settings)
    set_ciphers(context, settings)
    if stores.key is not None:
        load_key(context, settings, stores.key)
    if stores.trusted is not None:
        try:
            context.load_verify_locations(cadata=b"".join(stores.trusted))
        except ssl.SSLError as error:
            field = "truststore_location" if settings.truststore_location else None
            why = f"has an invalid certificate: {describe(error)}"
            raise settings.error(field or "truststore_certificates", why) from error
    elif context.verify_mode != ssl.CERT_NONE:
        context.load_default_certs(
            ssl.Purpose.SERVER_AUTH
            if context.protocol == ssl.PROTOCOL_TLS_CLIENT
            else ssl.Purpose.CLIENT_AUTH
        )


def set_versions(context: ssl.SSLContext, settings: TlsSettings) -> None:
    wanted = settings.enabled_protocols
    name = settings.name("enabled_protocols")
    for each in wanted:
        if each not in VERSIONS and each not in OLD_VERSIONS:
            raise ConfigError(name, f"{each!r} is not a TLS version; use TLSv1.2 and TLSv1.3")
    allowed = [each for each in VERSIONS if each in wanted]
    old = [each for each in wanted if each in OLD_VERSIONS]
    if not allowed:
        raise ConfigError(name, f"{', '.join(old)}: not secure; use TLSv1.2 and TLSv1.3")
    if old:
        logger.warning("ignoring TLS versions that are not secure %s=%s", name, ",".join(old))
    context.minimum_version = VERSIONS[allowed[0]]
    context.maximum_version = VERSIONS[allowed[-1]]


def set_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Allow these cipher suites only. A TLS version without one of them is not allowed any more."""
    suites = settings.cipher_suites
    if not suites:
        return
    field = "cipher_suites"
    names = []
    for suite in suites:
        if is_tls_1_3(suite):
            continue
        name = to_openssl_name(suite)
        if name is None:
            raise settings.error(field, f"{suite!r} is not supported")
        names.append(name)
    if names:
        try:
            context.set_ciphers(":".join(names))
        except ssl.SSLError as error:
            raise settings.error(field, f"OpenSSL does not support {', '.join(names)}") from error
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not any(map(is_tls_1_3, suites)):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif hasattr(context, "set_ciphersuites"):
        context.set_ciphersuites(":".join(each for each in suites if is_tls_1_3(each)))
    if context.minimum_version > context.maximum_version:
        other = settings.name("enabled_protocols")
        raise settings.error(field, f"no cipher suite fits the TLS versions of {other}")


def load_key(context: ssl.SSLContext, settings: TlsSettings, key: KeyStore) -> None:
    field = "keystore_location" if settings.keystore_location else "keystore_key"
    try:
        with private_file(key.pem) as path:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(path, password=key.password)
    except ssl.SSLError as error:
        if key.password:
            why = "wrong password, or the private key does not fit the certificate"
            raise settings.error("key_password", why) from error
        why = f"cannot use the private key and its certificate: {describe(error)}"
        raise settings.error(field, why) from error


@contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file that only this user can read. Python's ssl module loads keys from files only.

    On Linux the file is in memory.
    """
    if OPEN_FILES.exists() and hasattr(os, "memfd_create"):
        descriptor, path = os.memfd_create("barnabas-tls"), ""
    else:
        import tempfile  # rarely needed

        descriptor, path = tempfile.mkstemp(prefix="barnabas-tls-")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield path or f"{OPEN_FILES}/{descriptor}"
    finally:
        os.close(descriptor)
        if path:
            with suppress(OSError):
                Path(path).unlink()


def describe(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason in plain words.

    >>> describe(ssl.SSLError(1, "[X509: KEY_VALUES_MISMATCH] key values mismatch (_ssl.c:4149)"))
    'key values mismatch'
    """
    text = str(error.strerror or error)
    return text.rpartition("] ")[2].partition(" (_ssl")[0]
