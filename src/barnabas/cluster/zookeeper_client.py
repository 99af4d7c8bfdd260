"""Security of ZooKeeper connections, from settings, files and the environment."""

from __future__ import annotations

import logging
import os
import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path

from barnabas.cluster.jaas_sections import read_text
from barnabas.config.setting import Value
from barnabas.errors import ConfigError
from barnabas.security.digest_md5 import DigestMd5Client
from barnabas.security.tls.context import client_context
from barnabas.security.tls.settings import TlsSettings
from barnabas.security.zookeeper import ZooKeeperSettings, ZooKeeperUser, read_zookeeper_settings
from barnabas.world.registry.zookeeper_security import ZooKeeperSecurity

logger = logging.getLogger("barnabas.registry")

# ZooKeeper uses this name for all hosts.
SERVICE, HOST = "zookeeper", "zk-sasl-md5"
NONCE_BYTES = 16


def read_settings(values: Mapping[str, Value]) -> ZooKeeperSettings:
    """Read the settings of a process. `values` are those that are set. Raises ConfigError."""
    return read_zookeeper_settings(values, os.environ, read_text)


def build_security(settings: ZooKeeperSettings) -> ZooKeeperSecurity:
    """Read the certificates. Raises ConfigError."""
    user = settings.user
    return ZooKeeperSecurity(
        tls=None if settings.tls is None else CurrentContext(settings.tls),
        start_login=None if user is None else lambda: start_login(user),
        set_acl=settings.set_acl,
    )


def start_login(user: ZooKeeperUser) -> DigestMd5Client:
    nonce = secrets.token_hex(NONCE_BYTES)
    return DigestMd5Client(user.name, user.password, service=SERVICE, host=HOST, client_nonce=nonce)


class CurrentContext:
    """Returns the TLS settings of the next connection. Reads the certificates again when their files change."""

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self.versions = file_versions(settings.files)
        self.context = read_context(settings)

    def __call__(self) -> ssl.SSLContext:
        versions = file_versions(self.settings.files)
        if versions != self.versions:
            self.versions = versions
            try:
                self.context = read_context(self.settings)
            except ConfigError as error:
                logger.error("cannot use the new certificates for ZooKeeper error=%s", error)
            else:
                logger.info("using new certificates for ZooKeeper %r", self.settings)
        return self.context


def read_context(settings: TlsSettings) -> ssl.SSLContext:
    """Read the certificates. Raises ConfigError."""
    try:
        return client_context(settings)
    except ConfigError as error:
        if error.key == settings.name("key_password"):
            # ZooKeeper has no such setting: the key has the password of its store.
            raise ConfigError(settings.name("keystore_password"), error.why) from error
        raise


def file_versions(paths: tuple[str, ...]) -> list[tuple[int, int] | None]:
    """Return modification time and size of each file; None for a missing one."""
    found: list[tuple[int, int] | None] = []
    for path in paths:
        try:
            stat = Path(path).stat()
            found.append((stat.st_mtime_ns, stat.st_size))
        except OSError:
            found.append(None)
    return found
