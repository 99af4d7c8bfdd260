"""Security settings of clients: names, sources, checks, and secrets that are not shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.errors import ConfigError
from barnabas.model import SecurityProtocol
from barnabas.security.client_settings import (
    SECRET_SETTINGS,
    SETTINGS,
    TOKEN,
    TOKEN_FILE,
    Login,
    environment_variable,
    merge_settings,
    parse_assignment,
    parse_client_security,
    select_security_settings,
)
from barnabas.security.client_sources import (
    load_security,
    read_environment,
    read_settings_file,
    read_token,
)
from barnabas.security.tls.settings import TlsSettings
from barnabas.security.token_request import TOKEN_URL, TokenRequest
from barnabas.security.zookeeper import ZooKeeperUser

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def test_default_is_plaintext() -> None:
    security = parse_client_security({"client.id": "me"})
    assert (security.protocol, security.login, security.settings) == (
        SecurityProtocol.PLAINTEXT,
        None,
        {},
    )


@pytest.mark.parametrize(
    "credentials",
    [
        {"sasl.username": "alice", "sasl.password": "secret 1"},
        {"sasl.jaas.config": f'{SCRAM} required username="alice" password="secret 1";'},
    ],
)
def test_user_and_password_come_from_settings_or_jaas(credentials: dict[str, str]) -> None:
    login = parse_client_security({**LOGIN, **credentials}).login
    assert login is not None
    assert (login.mechanism, login.username, login.password) == (
        "SCRAM-SHA-512",
        "alice",
        "secret 1",
    )
    assert not login.is_delegation_token


def test_names_of_librdkafka_are_accepted() -> None:
    found = select_security_settings(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "PLAIN",
            "ssl.ca.location": "/ca.pem",
            "ssl.key.pem": "KEY",
            "ssl.certificate.pem": "CHAIN",
            "group.id": "g",
        }
    )
    assert found == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.key": "KEY",
        "ssl.keystore.certificate.chain": "CHAIN",
    }


def test_delegation_token_logs_in_with_scram() -> None:
    line = f'{SCRAM} required username="id" password="hmac" tokenauth="true";'
    login = parse_client_security({**LOGIN, "sasl.jaas.config": line}).login
    assert login is not None
    assert login.is_delegation_token


@pytest.mark.parametrize(
    ("settings", "key", "why"),
    [
        ({"security.protocol": "TLS"}, "security.protocol", "'TLS' is not one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism", "is missing; set PLAIN, SCRAM"),
        ({**LOGIN, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism", "'GSSAPI' is not supported"),
        (LOGIN, "sasl.username", "is missing; .* [$]BARNABAS_SASL_USERNAME"),
        (
            {**LOGIN, "sasl.username": "a"},
            "sasl.password",
            "is missing; .* [$]BARNABAS_SASL_PASSWORD",
        ),
        (
            {**LOGIN, "sasl.jaas.config": f'{PLAIN} required username="a" password="b";'},
            "sasl.jaas.config",
            "PlainLoginModule is not the login module of SCRAM-SHA-512",
        ),
        (
            {**LOGIN, "sasl.jaas.config": f'{SCRAM} required username="a";'},
            "sasl.jaas.config",
            "the line has no password",
        ),
        (
            {**LOGIN, "sasl.mechanism": "OAUTHBEARER"},
            "sasl.oauthbearer.token.file",
            "is missing; set",
        ),
        (
            {"security.protocol": "SSL", "ssl.key.location": "k.pem"},
            "ssl.certificate.location",
            "is missing; ssl.key.location needs it",
        ),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldap"},
            "ssl.endpoint.identification.algorithm",
            "'ldap' is not supported",
        ),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, str], key: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        parse_client_security(settings)
    assert error.value.key == key


def test_secrets_are_not_shown() -> None:
    line = f'{SCRAM} required username="alice" password="hunter2";'
    security = parse_client_security(
        {**LOGIN, "sasl.jaas.config": line, "ssl.key.password": "hunter2"}
    )
    assert "hunter2" not in f"{security!r} {security.login!r} {security}"
    assert repr(security) == "ClientSecurity(SASL_SSL SCRAM-SHA-512 alice)"
    with pytest.raises(ConfigError) as error:
        parse_client_security({**LOGIN, "sasl.jaas.config": line.replace("required", "hunter2")})
    assert "hunter2" not in str(error.value)


def test_later_layers_have_precedence() -> None:
    jaas = f'{SCRAM} required username="a" password="b";'
    merged = merge_settings([{"sasl.jaas.config": jaas}, {"sasl.username": "c"}])
    assert merged == {"sasl.username": "c"}
    merged = merge_settings(
        [{"sasl.mechanisms": "PLAIN", "sasl.password": "x"}, {"sasl.jaas.config": jaas}]
    )
    assert merged == {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}


def test_token_of_a_later_layer_replaces_all_tokens_of_earlier_ones() -> None:
    sources = {TOKEN: "a.b.c", TOKEN_FILE: "/token", TOKEN_URL: "file:///other"}
    for name, value in sources.items():
        assert merge_settings([sources, {name: value}]) == {name: value}
    assert merge_settings([sources, {"sasl.username": "x"}]) == {**sources, "sasl.username": "x"}


def test_rich_shows_no_secrets() -> None:
    secrets = {"sasl.username": "alice", "sasl.password": "hunter2"}
    security = parse_client_security({**LOGIN, **secrets})
    login = Login("PLAIN", "alice", "hunter2", token="hunter2")
    tls = TlsSettings(keystore_password="hunter2", keystore_location="/key")
    for each in (security, login, tls, ZooKeeperUser("alice", "hunter2")):
        fields = dict(each.__rich_repr__())
        assert any(fields.values())
        assert "hunter2" not in str(fields)


def test_environment_has_precedence_over_its_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\n")
    environment = {
        "BARNABAS_CLIENT_CONFIG": str(file),
        "BARNABAS_SASL_USERNAME": "bob",
        "BARNABAS_SASL_PASSWORD": "pw",
        "BARNABAS_BOOTSTRAP_SERVERS": "x:1",
    }
    login = parse_client_security(read_environment(environment)).login
    assert login is not None
    assert (login.username, login.password) == ("bob", "pw")


def test_every_setting_has_a_variable() -> None:
    names = {environment_variable(name) for name in SETTINGS}
    assert len(names) == len(SETTINGS)
    assert "BARNABAS_SSL_TRUSTSTORE_LOCATION" in names


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties: cannot be read: No such file"):
        read_settings_file(tmp_path / "none.properties")


def test_assignment_of_a_command_line() -> None:
    assert parse_assignment("security.protocol=SSL") == ("security.protocol", "SSL")
    assert parse_assignment("ssl.endpoint.identification.algorithm=")[1] == ""
    with pytest.raises(ConfigError, match="write NAME=VALUE"):
        parse_assignment("security.protocol")
    with pytest.raises(ConfigError, match=r"did you mean security\.protocol\?"):
        parse_assignment("security.protocols=SSL")


@pytest.mark.parametrize("name", sorted(SECRET_SETTINGS))
def test_secret_on_a_command_line_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(ConfigError, match="other users can see the command line") as error:
        parse_assignment(f"{name}=hunter2")
    assert "hunter2" not in str(error.value)


def bearer_settings(**more: str) -> dict[str, str]:
    named = {f"sasl.oauthbearer.{name}": value for name, value in more.items()}
    return {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **named}


def test_token_comes_from_a_callback_a_setting_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from.file\n")
    sources = [
        load_security(bearer_settings(token="from.setting")),
        load_security(bearer_settings(**{"token.file": str(file)})),
        load_security(bearer_settings(**{"token.endpoint.url": file.as_uri()})),
        load_security(bearer_settings(), token_callback=lambda: "from.call"),
    ]
    tokens = [read_token(each.login) for each in sources if each.login is not None]
    assert tokens == ["from.setting", "from.file", "from.file", "from.call"]
    file.write_bytes(b"\xff\0")
    login = sources[1].login
    assert login is not None
    with pytest.raises(ConfigError, match="does not contain a token"):
        read_token(login)


def test_extensions_of_a_token_come_from_jaas() -> None:
    line = f'{BEARER} required extension_logicalCluster="lkc-1";'
    login = load_security({**bearer_settings(token="t"), "sasl.jaas.config": line}).login
    assert login is not None
    assert login.extensions == (("logicalCluster", "lkc-1"),)


def test_token_endpoint_needs_the_credentials_of_the_jaas_line() -> None:
    url = {"token.endpoint.url": "https://idp/token"}
    with pytest.raises(ConfigError, match="needs the options clientId and clientSecret"):
        load_security(bearer_settings(**url))
    line = f'{BEARER} required clientId="me" clientSecret="hidden" scope="all";'
    security = load_security({**bearer_settings(**url), "sasl.jaas.config": line})
    assert security.login is not None
    assert security.login.token_request == TokenRequest("https://idp/token", "me", "hidden", "all")
    assert "hidden" not in repr(security) + repr(security.login)
    with pytest.raises(ConfigError, match="must begin with https://"):
        load_security(bearer_settings(**{"token.endpoint.url": "idp/token"}))
