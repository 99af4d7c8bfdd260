"""Client quotas: names, types and documentation. Brokers store all of them, and enforce most."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.config.setting import DOUBLE, INT, LONG, Kind


class ClientQuota(NamedTuple):
    kind: Kind
    doc: str
    is_enforced: bool = False


MUTATION_RATE = "controller_mutation_rate"
CLIENT_QUOTAS = {
    "producer_byte_rate": ClientQuota(
        LONG,
        "Bytes per second that these clients may produce to each broker",
        is_enforced=True,
    ),
    "consumer_byte_rate": ClientQuota(
        LONG,
        "Bytes per second that these clients may fetch from each broker",
        is_enforced=True,
    ),
    "request_percentage": ClientQuota(
        DOUBLE,
        "Share of request handling time, in percent of one thread; Barnabas does not enforce it",
    ),
    MUTATION_RATE: ClientQuota(
        DOUBLE, "Partitions per second that may be created, added or deleted", is_enforced=True
    ),
}
"""Quotas of users and client ids, by name."""
IP_QUOTAS = {
    "connection_creation_rate": ClientQuota(
        INT, "Connections per second that each broker accepts; Barnabas does not enforce it"
    )
}
"""Quotas of IP addresses, by name."""
