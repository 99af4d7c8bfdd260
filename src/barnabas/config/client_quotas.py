"""Client quotas: names, types and documentation."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.config.setting import DOUBLE, INT, LONG, Kind


class ClientQuota(NamedTuple):
    kind: Kind
    doc: str


MUTATION_RATE = "controller_mutation_rate"
CONNECTION_RATE = "connection_creation_rate"
CLIENT_QUOTAS = {
    "producer_byte_rate": ClientQuota(
        LONG, "Bytes per second that these clients may produce to each broker"
    ),
    "consumer_byte_rate": ClientQuota(
        LONG, "Bytes per second that these clients may fetch from each broker"
    ),
    "request_percentage": ClientQuota(
        DOUBLE, "Time that each broker works for these clients, in percent of its event loop"
    ),
    MUTATION_RATE: ClientQuota(
        DOUBLE, "Partitions per second that may be created, added or deleted"
    ),
}
"""Quotas of users and client ids, by name."""
IP_QUOTAS = {
    CONNECTION_RATE: ClientQuota(
        INT, "Connections per second that each broker accepts from an address"
    )
}
"""Quotas of IP addresses, by name."""
