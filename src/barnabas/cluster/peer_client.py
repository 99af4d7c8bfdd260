"""A client with the settings with which a broker connects to others, for checks of a node by its supervisor."""

from __future__ import annotations

from barnabas.broker.security.login_settings import PeerLogin, read_peer_login
from barnabas.cluster.client_settings import jaas_line
from barnabas.config import BrokerConfig
from barnabas.config.security import SECURITY_SETTINGS
from barnabas.security.client_settings import (
    MECHANISM,
    PROTOCOL,
    SETTINGS,
    ClientSecurity,
    parse_client_security,
)
from barnabas.security.jaas import JAAS_CONFIG
from barnabas.security.token_request import TOKEN_URL


def peer_client_security(config: BrokerConfig) -> ClientSecurity:
    """Return the security settings of the inter-broker listener, as those of a client. Raises ConfigError."""
    listener = config.inter_broker_listener
    settings = {PROTOCOL: config.protocol_of(listener).name}
    for name in SETTINGS.keys() & SECURITY_SETTINGS.keys():
        value = config.security_value(name, listener) if name.startswith("ssl.") else None
        if value is not None:
            settings[name] = ",".join(value) if isinstance(value, tuple) else str(value)
    login = read_peer_login(config, listener)
    if login is not None:
        settings[MECHANISM] = login.mechanism
        settings |= login_settings(login)
    return parse_client_security(settings)


def login_settings(login: PeerLogin) -> dict[str, str]:
    """Return the credentials of a login, as settings of a client."""
    if login.token is None:
        line = jaas_line(login.mechanism, username=login.user, password=login.password)
        return {JAAS_CONFIG: line}
    options = {f"extension_{name}": value for name, value in login.extensions}
    if isinstance(login.token, str):
        return {TOKEN_URL: login.token, JAAS_CONFIG: jaas_line(login.mechanism, **options)}
    request = login.token
    options |= {
        "clientId": request.client_id,
        "clientSecret": request.client_secret,
        "scope": request.scope,
    }
    return {TOKEN_URL: request.url, JAAS_CONFIG: jaas_line(login.mechanism, **options)}
