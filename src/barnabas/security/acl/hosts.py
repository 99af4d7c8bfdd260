"""Addresses of clients in the form that Java and so Kafka's ACLs use."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address


@lru_cache(maxsize=1024)
def format_host(address: str) -> str:
    """Return the address as Java formats it: IPv6 without `::`, and an IPv4-mapped address as IPv4.

    >>> format_host("127.0.0.1"), format_host("::1"), format_host("::ffff:10.0.0.7")
    ('127.0.0.1', '0:0:0:0:0:0:0:1', '10.0.0.7')
    """
    if ":" not in address:
        return address
    plain, percent, scope = address.partition("%")
    try:
        parsed = IPv6Address(plain)
    except AddressValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    groups = (f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
    return ":".join(groups) + percent + scope
