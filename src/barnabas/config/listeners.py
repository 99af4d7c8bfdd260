"""Parser and validation of listeners: `INSIDE://10.0.0.1:9092,OUTSIDE://[::1]:9093`.

listener.security.protocol.map maps a listener name to a security protocol.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from barnabas.config.setting import SECURITY_PROTOCOL
from barnabas.errors import ConfigError
from barnabas.model import Endpoint, SecurityProtocol

HTTP_ADDRESS = re.compile(r"\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]{1,5})")
ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]{1,5})")


def split_by_comma(text: str) -> tuple[str, ...]:
    """Split at commas. Parts are trimmed, and empty parts are left out."""
    return tuple(part for each in text.split(",") if (part := each.strip()))


def split_pairs(name: str, text: str) -> tuple[tuple[str, str], ...]:
    """Parse `a:1, ::1:2` as (a, 1) and (::1, 2). The last colon is the separator: IPv6 addresses contain colons."""
    pairs = []
    for part in split_by_comma(text):
        key, colon, value = part.rpartition(":")
        if not colon:
            raise ConfigError(name, f"{part!r} is not of the form key:value")
        pairs.append((key.strip(), value.strip()))
    return tuple(pairs)


def parse_protocols(name: str, text: str) -> dict[str, str]:
    """Return the security protocol of each listener name, in upper case."""
    protocols = {}
    for listener, protocol in split_pairs(name, text):
        if not SECURITY_PROTOCOL.holds(protocol):
            raise ConfigError(name, f"{protocol!r} is not {SECURITY_PROTOCOL.allowed}")
        protocols[listener.upper()] = protocol
    return protocols


def parse_listeners(name: str, text: str, protocols: dict[str, str]) -> tuple[Endpoint, ...]:
    """Parse and validate listeners. Keeps their order. An empty host means all interfaces."""
    endpoints = tuple(parse_listener(name, part) for part in split_by_comma(text))
    if not endpoints:
        raise ConfigError(name, f"{text!r} names no listener")
    for endpoint in endpoints:
        if endpoint.listener not in protocols:
            why = f"listener {endpoint.listener} has no protocol in listener.security.protocol.map"
            raise ConfigError(name, why)
    names = [endpoint.listener for endpoint in endpoints]
    if len(set(names)) < len(names):
        raise ConfigError(name, f"{text!r} uses a listener name twice")
    return tuple(
        replace(endpoint, protocol=SecurityProtocol[protocols[endpoint.listener]])
        for endpoint in endpoints
    )


def parse_listener(name: str, text: str) -> Endpoint:
    match = ENDPOINT.fullmatch(text)
    if not match or int(match[3]) > 65535:
        raise ConfigError(name, f"{text!r} is not of the form NAME://host:port")
    return Endpoint(listener=match[1].upper(), host=match[2], port=int(match[3]))


def parse_http_listener(name: str, text: str) -> Endpoint | None:
    """Parse `host:port`. An empty text is None: no listener."""
    if not text:
        return None
    match = HTTP_ADDRESS.fullmatch(text)
    if not match or int(match[2]) > 65535:
        why = f"{text!r} is not of the form host:port, as in 127.0.0.1:9308"
        raise ConfigError(name, why)
    return Endpoint(listener="HTTP", host=match[1], port=int(match[2]))


def check_distinct_ports(name: str, endpoints: Sequence[Endpoint]) -> None:
    """Reject two listeners on one port, unless one address is IPv4 and the other IPv6."""
    by_port: dict[int, list[str]] = {}
    for endpoint in endpoints:
        by_port.setdefault(endpoint.port, []).append(ip_family(endpoint.host))
    for port, families in by_port.items():
        if port != 0 and len(families) > 1 and sorted(families) != ["IPv4", "IPv6"]:
            why = f"port {port} is used twice; only one IPv4 and one IPv6 address may share a port"
            raise ConfigError(name, why)


def ip_family(host: str) -> str:
    """Return `IPv4`, `IPv6`, or `name` for a host name."""
    if re.fullmatch(r"\d{1,3}(\.\d{1,3}){3}", host):
        return "IPv4"
    return "IPv6" if ":" in host else "name"


def check_advertised(advertised: Sequence[Endpoint], bound: Sequence[Endpoint]) -> None:
    """Reject advertised listeners that are not in listeners, and the address 0.0.0.0. Raises ConfigError."""
    key = "advertised.listeners"
    names = [endpoint.listener for endpoint in bound]
    for endpoint in advertised:
        if endpoint.listener not in names:
            why = f"{endpoint.listener} is not one of listeners: {','.join(names)}"
            raise ConfigError(key, why)
        if endpoint.host == "0.0.0.0":
            raise ConfigError(key, "0.0.0.0 cannot be reached by a client: give a real address")
