"""Warning about listeners that other machines can reach without authentication."""

from __future__ import annotations

import ipaddress

from barnabas.config.broker import BrokerConfig
from barnabas.model import Endpoint, SecurityProtocol


def open_listeners_warning(config: BrokerConfig) -> str | None:
    """Return one line that names the open listeners and the setting that closes them, or None if there are none."""
    open_ones = [each for each in config.listeners if is_open(config, each)]
    if not open_ones:
        return None
    names = ", ".join(f"{each.listener}://{each.address}" for each in open_ones)
    how = closing_setting(open_ones[0])
    return f"open to all machines that reach it, without authentication: {names}; {how} (docs/security.md)"


def closing_setting(endpoint: Endpoint) -> str:
    """Return the setting that closes an open listener."""
    if endpoint.protocol is SecurityProtocol.SSL:
        return f"set listener.name.{endpoint.listener.lower()}.ssl.client.auth=required"
    if endpoint.listener in SecurityProtocol.__members__:
        return f"in listeners, write SASL_SSL:// instead of {endpoint.listener}://, or a loopback address"
    return f"set {endpoint.listener}:SASL_SSL in listener.security.protocol.map, or a loopback address in listeners"


def is_open(config: BrokerConfig, endpoint: Endpoint) -> bool:
    """Return whether clients on other machines can connect without a password, token or certificate."""
    protocol = config.protocol_of(endpoint.listener)
    if protocol.has_sasl or is_loopback(endpoint.host):
        return False
    if protocol is SecurityProtocol.SSL:
        return config.security_value("ssl.client.auth", endpoint.listener) != "required"
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address. An empty host means all addresses.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
