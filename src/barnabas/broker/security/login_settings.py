"""Settings of logins: on the listeners of this broker, and at other brokers.

Objects with passwords have no repr.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from barnabas.config import BrokerConfig
from barnabas.config.security import candidate_names
from barnabas.config.setting import Value
from barnabas.errors import ConfigError
from barnabas.security.bearer_token import require_packages
from barnabas.security.jaas import JAAS_CONFIG, JaasLine, parse_jaas, parse_jaas_lines
from barnabas.security.jaas_file import server_section
from barnabas.security.sasl.mechanism import (
    LOGIN_MODULES,
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
)
from barnabas.security.sasl.plain import read_plain_users
from barnabas.security.token_request import (
    TOKEN_URL,
    TokenRequest,
    parse_extensions,
    parse_token_request,
    token_path,
    web_server,
)

logger = logging.getLogger("barnabas.security")

ENABLED = "sasl.enabled.mechanisms"
INTER_BROKER = "sasl.mechanism.inter.broker.protocol"
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
JWKS_SCHEMES = ("file://", "https://", "http://")


class BearerSettings:
    """How OAuth tokens are verified."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        def find(name: str) -> Value:
            return config.security_value(f"sasl.oauthbearer.{name}", listener, OAUTHBEARER)

        def find_seconds(name: str) -> float:
            return find_number(config, f"sasl.oauthbearer.{name}", listener, OAUTHBEARER) / 1000

        self.url = str(find("jwks.endpoint.url"))
        self.refresh_s = find_seconds("jwks.endpoint.refresh.ms")
        self.retry_s = (
            find_seconds("jwks.endpoint.retry.backoff.ms"),
            find_seconds("jwks.endpoint.retry.backoff.max.ms"),
        )
        self.skew_s = find_number(
            config, "sasl.oauthbearer.clock.skew.seconds", listener, OAUTHBEARER
        )
        audience = find("expected.audience")
        self.audiences: tuple[str, ...] = audience if isinstance(audience, tuple) else ()
        issuer = find("expected.issuer")
        self.issuer = None if issuer is None else str(issuer)
        self.subject_claim = str(find("sub.claim.name"))
        self.scope_claim = str(find("scope.claim.name"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BearerSettings) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class ListenerLogins:
    """The logins that a listener accepts."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        """Raises ConfigError if no client could log in."""
        self.mechanisms = read_mechanisms(config, listener)
        """The enabled mechanisms that are supported."""
        self.plain_users: Mapping[str, str] = {}
        """Passwords of the users of PLAIN."""
        self.bearer: BearerSettings | None = None
        self.frame_bytes_max = find_number(config, "sasl.server.max.receive.size", listener)
        delay_ms = find_number(config, "connection.failed.authentication.delay.ms", listener)
        self.failure_delay_s = delay_ms / 1000
        self.reauth_ms = {
            each: find_number(config, "connections.max.reauth.ms", listener, each)
            for each in self.mechanisms
        }
        """Maximum time until the next login, by mechanism; 0 without a limit."""
        if PLAIN in self.mechanisms:
            self.plain_users = read_users(config, listener)
        if OAUTHBEARER in self.mechanisms:
            check_jwks_url(config, listener)
            require_packages(JWKS_URL)
            self.bearer = BearerSettings(config, listener)


class PeerLogin:
    """The login of this broker at other brokers: with a user and a password, or with an OAuth token."""

    def __init__(
        self,
        mechanism: str,
        user: str = "",
        password: str = "",
        token: TokenRequest | str | None = None,
        extensions: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.mechanism = mechanism
        self.user = user
        self.password = password
        self.token = token
        """The request for a token, or the file:// URL of one. None for other mechanisms."""
        self.extensions = extensions


def check_logins(config: BrokerConfig) -> dict[str, ListenerLogins]:
    """Return the logins of the listeners with SASL, by listener name. Raises ConfigError if a setting is unusable."""
    logins = {
        each.listener: ListenerLogins(config, each.listener)
        for each in config.listeners
        if config.protocol_of(each.listener).has_sasl
    }
    for listener in {config.inter_broker_listener, config.control_plane_listener}:
        peer = read_peer_login(config, listener)
        if peer is not None and listener in logins:
            check_peer_login(peer, logins[listener], listener)
    return logins


def find_number(
    config: BrokerConfig, name: str, listener: str, mechanism: str | None = None
) -> int:
    value = config.security_value(name, listener, mechanism)
    assert isinstance(value, int), name
    return value


def read_mechanisms(config: BrokerConfig, listener: str) -> tuple[str, ...]:
    value = config.security_value(ENABLED, listener)
    enabled = value if isinstance(value, tuple) else ()
    supported = tuple(dict.fromkeys(each for each in enabled if each in MECHANISMS))
    if not supported:
        raise ConfigError(
            ENABLED,
            f"{','.join(enabled) or 'an empty list'} has no mechanism for listener {listener} that Barnabas supports; "
            f"set it to one or more of {', '.join(MECHANISMS)}",
        )
    if len(supported) < len(set(enabled)):
        logger.warning(
            "ignoring SASL mechanisms that are not supported listener=%s mechanisms=%s",
            listener,
            ",".join(sorted({*enabled} - {*supported})),
        )
    return supported


def find_jaas(config: BrokerConfig, listener: str, mechanism: str) -> JaasLine | None:
    """Return the JAAS line of a mechanism: that of the properties, or else of the JAAS file.

    Raises ConfigError for an invalid line or one of another mechanism.
    """
    names = list(candidate_names(JAAS_CONFIG, listener, mechanism))
    for name in names:
        text = config.security.get(name)
        if text is None:
            continue
        line = parse_jaas(str(text), name)
        if line.module == LOGIN_MODULES[mechanism]:
            return line
        if name == names[0]:
            why = f"names another login module; that of {mechanism} is {LOGIN_MODULES[mechanism]}"
            raise ConfigError(name, why)
    section = server_section(config.jaas_sections, listener)
    if section is None:
        return None
    lines = parse_jaas_lines(config.jaas_sections[section], f"section {section} of the JAAS file")
    return next((line for line in lines if line.module == LOGIN_MODULES[mechanism]), None)


def jaas_name(listener: str, mechanism: str) -> str:
    return next(candidate_names(JAAS_CONFIG, listener, mechanism))


def read_users(config: BrokerConfig, listener: str) -> dict[str, str]:
    line = find_jaas(config, listener, PLAIN)
    users = {} if line is None else read_plain_users(line.options)
    if not users:
        example = f'{LOGIN_MODULES[PLAIN]} required user_alice="…";'
        raise ConfigError(
            jaas_name(listener, PLAIN), f"PLAIN needs users with passwords, as in: {example}"
        )
    return users


def check_jwks_url(config: BrokerConfig, listener: str) -> None:
    url = config.security_value(JWKS_URL, listener, OAUTHBEARER)
    if not url:
        why = "OAUTHBEARER needs the keys that verify tokens; tokens without a signature are not accepted"
        raise ConfigError(JWKS_URL, f"{why}; set it to an https:// or file:// URL")
    if not str(url).startswith(JWKS_SCHEMES):
        raise ConfigError(JWKS_URL, f"must begin with one of {', '.join(JWKS_SCHEMES)}")
    if str(url).startswith("http://"):
        server = web_server(str(url))
        logger.warning("keys of OAuth tokens are read without TLS server=%s; use https://", server)


def read_peer_login(config: BrokerConfig, listener: str) -> PeerLogin | None:
    """Return the login at other brokers' `listener`, or None if it has no SASL. Raises ConfigError."""
    if not config.protocol_of(listener).has_sasl:
        return None
    mechanism = str(config.security_value(INTER_BROKER, listener))
    if mechanism not in MECHANISMS:
        why = f"{mechanism} is not supported between brokers"
        raise ConfigError(INTER_BROKER, f"{why}; set it to one of {', '.join(MECHANISMS)}")
    line = find_jaas(config, listener, mechanism)
    options = {} if line is None else line.options
    if mechanism == OAUTHBEARER:
        return read_bearer_login(config, listener, options)
    user, password = options.get("username"), options.get("password")
    if not user or not password:
        example = f'{LOGIN_MODULES[mechanism]} required username="broker" password="…";'
        raise ConfigError(
            jaas_name(listener, mechanism),
            f"brokers need a user name and a password to log in to each other, as in: {example}",
        )
    return PeerLogin(mechanism, user, password)


def read_bearer_login(config: BrokerConfig, listener: str, options: Mapping[str, str]) -> PeerLogin:
    """`options` are those of the JAAS line."""
    url = str(config.security_value(TOKEN_URL, listener, OAUTHBEARER) or "")
    if not url:
        why = "brokers need a token to log in to each other; set it to the URL of an OAuth server"
        raise ConfigError(TOKEN_URL, f"{why}, or to the file:// URL of a token")
    is_file = token_path(url) is not None
    token = url if is_file else parse_token_request(url, options, jaas_name(listener, OAUTHBEARER))
    return PeerLogin(OAUTHBEARER, token=token, extensions=parse_extensions(options))


def check_peer_login(peer: PeerLogin, logins: ListenerLogins, listener: str) -> None:
    """Raise ConfigError if the other brokers, with the same settings, would refuse the login of this one."""
    if peer.mechanism not in logins.mechanisms:
        why = f"must contain {peer.mechanism}, the mechanism between brokers ({INTER_BROKER})"
        raise ConfigError(ENABLED, f"{why}, because brokers connect to listener {listener}")
    if isinstance(peer.token, TokenRequest) and peer.token.url.startswith("http://"):
        server = web_server(peer.token.url)
        logger.warning("the client secret is sent without TLS server=%s; use https://", server)
    if peer.mechanism == PLAIN and logins.plain_users.get(peer.user) != peer.password:
        why = f"user_{peer.user} must have the password of the broker, the value of the option password"
        raise ConfigError(jaas_name(listener, PLAIN), why)
