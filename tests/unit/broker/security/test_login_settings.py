from __future__ import annotations

import sys

import pytest
from msgspec.structs import replace

from barnabas.broker.security.login_settings import check_logins, read_peer_login
from barnabas.config import BrokerConfig
from barnabas.config.load import load_broker_config
from barnabas.errors import ConfigError
from barnabas.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from barnabas.security.sasl.mechanism import MECHANISMS, PLAIN, SCRAM_SHA_256

USERS = f'{PLAIN_MODULE} required username="b" password="p" user_b="p" user_alice="a";'


def load(**settings: str) -> BrokerConfig:
    """Load a config with a listener CLIENTS that has SASL. `__` in a name is a dot."""
    properties = {
        "broker.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    return load_broker_config(properties)[0]


@pytest.mark.parametrize(
    ("settings", "key", "why"),
    [
        (
            {},
            "sasl.enabled.mechanisms",
            "GSSAPI has no mechanism .* set it to one or more of PLAIN",
        ),
        ({"sasl__enabled__mechanisms": ""}, "sasl.enabled.mechanisms", "an empty list"),
        (
            {"sasl__enabled__mechanisms": "PLAIN"},
            "listener.name.clients.plain.sasl.jaas.config",
            "PLAIN needs users",
        ),
        (
            {
                "sasl__enabled__mechanisms": "PLAIN",
                "listener__name__clients__plain__sasl__jaas__config": f'{PLAIN_MODULE} required user_a="";',
            },
            "listener.name.clients.plain.sasl.jaas.config",
            "PLAIN needs users",
        ),
        (
            {
                "sasl__enabled__mechanisms": "PLAIN",
                "listener__name__clients__plain__sasl__jaas__config": f"{SCRAM_MODULE} required;",
            },
            "listener.name.clients.plain.sasl.jaas.config",
            "names another login module",
        ),
        (
            {"sasl__enabled__mechanisms": "OAUTHBEARER"},
            "sasl.oauthbearer.jwks.endpoint.url",
            "tokens without a signature are not accepted",
        ),
        (
            {
                "sasl__enabled__mechanisms": "OAUTHBEARER",
                "sasl__oauthbearer__jwks__endpoint__url": "ftp://example/keys",
            },
            "sasl.oauthbearer.jwks.endpoint.url",
            "must begin with one of",
        ),
    ],
)
def test_listener_without_usable_login_is_refused(
    settings: dict[str, str], key: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        check_logins(load(**settings))
    assert raised.value.key == key


def test_bearer_tokens_need_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    config = load(
        sasl__enabled__mechanisms="OAUTHBEARER",
        sasl__oauthbearer__jwks__endpoint__url="file:///keys.json",
    )
    with pytest.raises(ConfigError, match="OAUTHBEARER needs more packages"):
        check_logins(config)


def test_settings_of_the_listener_and_the_mechanism_take_precedence() -> None:
    config = load(
        sasl__enabled__mechanisms="GSSAPI",
        listener__name__clients__sasl__enabled__mechanisms="PLAIN,SCRAM-SHA-256,GSSAPI",
        listener__name__clients__plain__sasl__jaas__config=USERS,
        connections__max__reauth__ms="100",
        **{"listener__name__clients__scram-sha-256__connections__max__reauth__ms": "200"},
    )
    logins = check_logins(config)["CLIENTS"]
    assert logins.mechanisms == (PLAIN, SCRAM_SHA_256)
    assert logins.plain_users == {"b": "p", "alice": "a"}
    assert logins.reauth_ms == {PLAIN: 100, SCRAM_SHA_256: 200}


def test_scram_needs_no_jaas_line() -> None:
    logins = check_logins(load(sasl__enabled__mechanisms="SCRAM-SHA-256"))
    assert logins.keys() == {"CLIENTS"}


def test_line_of_another_mechanism_without_prefix_is_ignored() -> None:
    config = load(sasl__enabled__mechanisms="PLAIN,SCRAM-SHA-256", sasl__jaas__config=USERS)
    assert check_logins(config)["CLIENTS"].plain_users["alice"] == "a"


def test_mechanism_between_brokers_must_be_enabled() -> None:
    config = load(
        inter__broker__listener__name="CLIENTS",
        sasl__enabled__mechanisms="SCRAM-SHA-256",
        sasl__mechanism__inter__broker__protocol="PLAIN",
        listener__name__clients__plain__sasl__jaas__config=USERS,
    )
    with pytest.raises(ConfigError, match="must contain PLAIN, the mechanism between brokers"):
        check_logins(config)


def test_peer_login_is_that_of_the_listener() -> None:
    config = load(
        inter__broker__listener__name="CLIENTS",
        sasl__enabled__mechanisms="PLAIN",
        sasl__mechanism__inter__broker__protocol="PLAIN",
        listener__name__clients__plain__sasl__jaas__config=USERS,
    )
    check_logins(config)
    peer = read_peer_login(config, "CLIENTS")
    assert peer is not None
    assert (peer.mechanism, peer.user, peer.password) == (PLAIN, "b", "p")
    assert read_peer_login(config, "PLAINTEXT") is None


def test_every_mechanism_is_listed_in_the_error() -> None:
    with pytest.raises(ConfigError) as raised:
        check_logins(load())
    assert all(each in str(raised.value) for each in MECHANISMS)


SECTION = f"""
  com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;
  {PLAIN_MODULE} required username="file" password="f" user_file="f";
  {SCRAM_MODULE} required username="scram" password="s";
"""
BETWEEN_BROKERS = {
    "inter__broker__listener__name": "CLIENTS",
    "sasl__enabled__mechanisms": "PLAIN,SCRAM-SHA-256",
}


@pytest.mark.parametrize(
    ("mechanism", "login"), [("PLAIN", ("file", "f")), ("SCRAM-SHA-256", ("scram", "s"))]
)
def test_section_of_the_jaas_file_has_the_lines_of_all_mechanisms(
    mechanism: str, login: tuple[str, str]
) -> None:
    config = load(sasl__mechanism__inter__broker__protocol=mechanism, **BETWEEN_BROKERS)
    config = replace(config, jaas_sections={"KafkaServer": SECTION})
    assert check_logins(config)["CLIENTS"].plain_users == {"file": "f"}
    peer = read_peer_login(config, "CLIENTS")
    assert peer is not None
    assert (peer.user, peer.password) == login


def test_line_in_the_properties_takes_precedence_over_the_jaas_file() -> None:
    config = load(sasl__enabled__mechanisms="PLAIN", sasl__jaas__config=USERS)
    config = replace(config, jaas_sections={"clients.KafkaServer": SECTION})
    assert check_logins(config)["CLIENTS"].plain_users == {"b": "p", "alice": "a"}


def test_section_of_the_listener_hides_that_of_all_listeners() -> None:
    sections = {"KafkaServer": SECTION, "clients.KafkaServer": f"{SCRAM_MODULE} required;"}
    config = replace(load(sasl__enabled__mechanisms="PLAIN"), jaas_sections=sections)
    with pytest.raises(ConfigError, match="PLAIN needs users"):
        check_logins(config)


def test_invalid_section_is_named_without_its_secrets() -> None:
    config = replace(
        load(sasl__enabled__mechanisms="PLAIN"),
        jaas_sections={"KafkaServer": f"{PLAIN_MODULE} required user_a hidden;"},
    )
    with pytest.raises(ConfigError, match="section KafkaServer of the JAAS file") as raised:
        check_logins(config)
    assert "hidden" not in str(raised.value)
