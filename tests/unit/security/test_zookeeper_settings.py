"""Settings of secured ZooKeeper connections."""

from __future__ import annotations

import pytest

from barnabas.errors import ConfigError
from barnabas.security.zookeeper import (
    DIGEST_MODULE,
    JAAS_CONFIG,
    TLS_SOCKET,
    ZooKeeperSettings,
    parse_zookeeper_properties,
    read_zookeeper_settings,
)

LINE = f'{DIGEST_MODULE} required username="kafka" password="hidden";'
FILE_OPTION = {"KAFKA_OPTS": "-Djava.security.auth.login.config=/etc/jaas.conf"}
FILE = f"Client {{ {LINE} }}; Other {{ {LINE.replace('kafka', 'other')} }};"


def read(
    properties: dict[str, str], environment: dict[str, str] | None = None, file: str = FILE
) -> ZooKeeperSettings:
    values = parse_zookeeper_properties(properties)
    return read_zookeeper_settings(values, environment or {}, lambda _: file)


def test_nothing_is_secured_by_default() -> None:
    settings = read({"log.dirs": "/x", "zookeeper.ssl.keystore.location": "/k"})
    assert settings == ZooKeeperSettings(tls=None, user=None, set_acl=False)
    assert not settings.has_identity


def test_tls_settings_are_read() -> None:
    settings = read(
        {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": TLS_SOCKET,
            "zookeeper.ssl.keystore.location": "/k.p12",
            "zookeeper.ssl.keystore.password": "hidden",
            "zookeeper.ssl.truststore.location": "/t.pem",
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.set.acl": "true",
        }
    )
    assert settings.tls is not None
    assert settings.tls.keystore_location == "/k.p12"
    assert settings.tls.keystore_password == settings.tls.key_password == "hidden"
    assert settings.tls.enabled_protocols == ("TLSv1.2", "TLSv1.3")
    assert settings.tls.endpoint_identification_algorithm == "HTTPS"
    assert settings.set_acl
    assert settings.has_identity
    assert "hidden" not in repr(settings)


def test_only_the_named_version_is_allowed() -> None:
    settings = read({"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.protocol": "TLSv1.2"})
    assert settings.tls is not None
    assert settings.tls.enabled_protocols == ("TLSv1.2",)


def test_enabled_versions_override_the_version() -> None:
    settings = read(
        {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.protocol": "TLSv1.2",
            "zookeeper.ssl.enabled.protocols": "TLSv1.2, TLSv1.3",
            "zookeeper.ssl.endpoint.identification.algorithm": "",
        }
    )
    assert settings.tls is not None
    assert settings.tls.enabled_protocols == ("TLSv1.2", "TLSv1.3")
    assert settings.tls.endpoint_identification_algorithm == ""
    assert not settings.has_identity  # no client certificate


def test_login_is_read_from_the_setting() -> None:
    user = read({JAAS_CONFIG: LINE}, FILE_OPTION, "").user
    assert user is not None
    assert (user.name, user.password) == ("kafka", "hidden")
    assert "hidden" not in repr(user)


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("", "kafka"),
        (" -Dzookeeper.sasl.clientconfig=Other", "other"),
        (" -Dzookeeper.sasl.clientconfig=Missing", None),
        (" -Dzookeeper.sasl.client=false", None),
    ],
)
def test_login_is_read_from_the_jaas_file(option: str, name: str | None) -> None:
    user = read({}, {"KAFKA_OPTS": FILE_OPTION["KAFKA_OPTS"] + option}).user
    assert (user and user.name) == name


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl: needs a login"),
        (
            {
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO",
            },
            "zookeeper.clientCnxnSocket: .*NIO does not support TLS",
        ),
        (
            {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.keystore.type": "BCFKS"},
            "zookeeper.ssl.keystore.type",
        ),
        ({JAAS_CONFIG: 'org.example.Krb5 required password="hidden";'}, "is not supported"),
        ({JAAS_CONFIG: f'{DIGEST_MODULE} required password="hidden";'}, "needs a username"),
    ],
)
def test_unusable_settings_are_rejected(properties: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        read(properties)
    assert "hidden" not in str(raised.value)


def test_unreadable_jaas_file_is_rejected() -> None:
    def fail(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    with pytest.raises(ConfigError, match=r"cannot read /etc/jaas\.conf: Permission denied"):
        read_zookeeper_settings({}, FILE_OPTION, fail)
