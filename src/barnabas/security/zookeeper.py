"""Settings of secured connections to ZooKeeper, of brokers and of commands.

TLS      zookeeper.ssl.client.enable=true and zookeeper.ssl.*
login    barnabas.zookeeper.sasl.jaas.config, or the section Client of the JAAS file that KAFKA_OPTS names
ACLs     zookeeper.set.acl=true; needs a login or a client certificate
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from barnabas.config.security import SECURITY_SETTINGS, find_value
from barnabas.config.setting import Value
from barnabas.errors import ConfigError
from barnabas.security.jaas import JaasLine, parse_jaas
from barnabas.security.jaas_file import ReadText, jaas_path, java_properties, read_sections
from barnabas.security.tls.settings import TlsSettings, read_tls_settings

JAAS_CONFIG = "barnabas.zookeeper.sasl.jaas.config"
SET_ACL = "zookeeper.set.acl"
TLS_SOCKET = "org.apache.zookeeper.ClientCnxnSocketNetty"
DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
EXAMPLE = f'{DIGEST_MODULE} required username="…" password="…";'
SECTION_PROPERTY = "zookeeper.sasl.clientconfig"
SECTION = "Client"
LOGIN_PROPERTY = "zookeeper.sasl.client"


class ZooKeeperUser(Struct, frozen=True):
    name: str
    password: str

    def __repr__(self) -> str:
        return f"ZooKeeperUser({self.name!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("name", self.name)]


class ZooKeeperSettings(Struct, frozen=True, kw_only=True):
    tls: TlsSettings | None
    user: ZooKeeperUser | None
    set_acl: bool

    @property
    def has_identity(self) -> bool:
        """Whether ZooKeeper knows this client, by a login or by a certificate."""
        return self.user is not None or (self.tls is not None and self.tls.has_key)


def parse_zookeeper_properties(properties: Mapping[str, str]) -> dict[str, Value]:
    """Return the values of all settings of ZooKeeper connections. Others are ignored. Raises ConfigError."""
    return {
        name: SECURITY_SETTINGS[name].parse(text)
        for name, text in properties.items()
        if name in SECURITY_SETTINGS and name.startswith(("zookeeper.", "barnabas.zookeeper."))
    }


def read_zookeeper_settings(
    values: Mapping[str, Value], environment: Mapping[str, str], read_text: ReadText
) -> ZooKeeperSettings:
    """`values` are the settings that are set. `read_text` reads the JAAS file. Raises ConfigError."""
    settings = ZooKeeperSettings(
        tls=read_tls(values),
        user=read_user(values, environment, read_text),
        set_acl=bool(find_value(values, SET_ACL, None)),
    )
    if settings.set_acl and not settings.has_identity:
        raise ConfigError(
            SET_ACL,
            f"needs a login to ZooKeeper or a client certificate: set {JAAS_CONFIG} or "
            "zookeeper.ssl.keystore.location, or name a JAAS file in KAFKA_OPTS",
        )
    return settings


def read_tls(values: Mapping[str, Value]) -> TlsSettings | None:
    def find(name: str) -> Value:
        return find_value(values, f"zookeeper.{name}", None)

    if not find("ssl.client.enable"):
        return None
    socket_class = find("clientCnxnSocket")
    if socket_class not in (None, "", TLS_SOCKET):
        raise ConfigError(
            "zookeeper.clientCnxnSocket",
            f"{socket_class} does not support TLS: set {TLS_SOCKET}, or remove this setting",
        )

    def find_tls(name: str) -> Value:
        if name == "ssl.enabled.protocols":
            return find(name) or tls_versions(values.get("zookeeper.ssl.protocol"))
        if name == "ssl.key.password":
            name = "ssl.keystore.password"  # ZooKeeper has one password for both
        return find(name) if f"zookeeper.{name}" in SECURITY_SETTINGS else None

    return read_tls_settings(find_tls, "zookeeper.")


def tls_versions(protocol: Value) -> str:
    """Return the versions that zookeeper.ssl.protocol allows; `protocol` is None if it is not set.

    The default of Kafka is TLSv1.2 only. ZooKeeper 3.9 accepts TLSv1.3 only by default.

    >>> tls_versions("TLSv1.2"), tls_versions("TLS"), tls_versions(None)
    ('TLSv1.2', 'TLSv1.2,TLSv1.3', 'TLSv1.2,TLSv1.3')
    """
    return "TLSv1.2,TLSv1.3" if protocol in (None, "TLS") else str(protocol)


def read_user(
    values: Mapping[str, Value], environment: Mapping[str, str], read_text: ReadText
) -> ZooKeeperUser | None:
    line = find_value(values, JAAS_CONFIG, None)
    if line:
        return to_user(parse_jaas(str(line), JAAS_CONFIG), JAAS_CONFIG)
    options = java_properties(environment)
    path = jaas_path(options)
    if path is None or options.get(LOGIN_PROPERTY, "true").lower() == "false":
        return None
    section = options.get(SECTION_PROPERTY, SECTION)
    text = read_sections(path, read_text, options).get(section)
    if text is None:
        return None
    source = f"{path}, section {section}"
    return to_user(parse_jaas(text, source), source)


def to_user(line: JaasLine, source: str) -> ZooKeeperUser:
    """Return the user of a JAAS line. `source` is the setting or the file, for errors."""
    if line.module != DIGEST_MODULE:
        raise ConfigError(source, f"{line.module} is not supported for ZooKeeper; use {EXAMPLE}")
    name, password = line.options.get("username"), line.options.get("password")
    if not name or not password:
        raise ConfigError(source, f"needs a username and a password, as in: {EXAMPLE}")
    return ZooKeeperUser(name, password)
