"""Limits on new connections per second: of an IP address, of a listener, and of the broker.

    connection_creation_rate        /config/ips/<address> and /config/ips/<default>: a connection above the rate is
                                    closed unserved, after a delay of at most one window, so that its client slows down
    max.connection.creation.rate    of the broker, or of one listener with its prefix: connections above the rate wait
                                    in the backlog of the listener

The rate of the broker does not apply to the listener for other brokers, if clients have one of their own.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final

from barnabas.broker.sampled_rate import SampledRate
from barnabas.config import BrokerConfig
from barnabas.config.client_quotas import CONNECTION_RATE
from barnabas.config.setting import INT_MAX
from barnabas.metadata import znodes

logger = logging.getLogger("barnabas.quotas")

MAX_CREATION_RATE: Final = "max.connection.creation.rate"
ADDRESSES_MAX = 10_000
"""Above this number of addresses, what is known about idle ones is dropped."""


class ConnectionRates:
    """Counts the new connections of one broker. `now_ms` returns a monotonic time."""

    def __init__(self, config: BrokerConfig, now_ms: Callable[[], float]) -> None:
        self.config = config
        self.now_ms = now_ms
        self.limits: dict[str | None, float] = {}
        """By address; None is the default of all others."""
        self.of_addresses: dict[str, SampledRate] = {}
        self.of_listeners: dict[str | None, SampledRate] = {}
        """By listener name; None is the broker."""

    def reconfigure(self, config: BrokerConfig) -> None:
        self.config = config

    def update(self, path: str, settings: Mapping[str, str]) -> None:
        """Use the settings of one znode in /config/ips. An invalid rate is ignored, and logged."""
        name = znodes.desanitise(path.rpartition("/")[2])
        address = None if name is None else normalize_address(name)
        self.limits.pop(address, None)
        text = settings.get(CONNECTION_RATE)
        if text is None:
            return
        try:
            self.limits[address] = parse_limit(text)
        except ValueError:
            logger.warning("ignoring quota path=%s value=%s", path, text[:100])

    def limit_of(self, address: str) -> float | None:
        return self.limits.get(address, self.limits.get(None))

    def hold_seconds(self, host: str) -> float:
        """Count a new connection of a host. If it exceeds the rate, return the time after which it must be closed."""
        if not self.limits:
            return 0.0
        address = normalize_address(host)
        limit = self.limit_of(address)
        if limit is None:
            return 0.0
        rate = self.of_addresses.get(address)
        if rate is None:
            if len(self.of_addresses) >= ADDRESSES_MAX:
                self.drop_addresses()
            rate = self.of_addresses[address] = self.new_rate()
        seconds = self.count(rate, limit)
        if seconds:
            rate.record(-1)  # it is not served, so it does not count
        return seconds

    def pause_seconds(self, listener: str) -> float:
        """Count a new connection of a listener. Return the time for which the listener must accept no further one."""
        seconds = self.count_for(listener)
        if not self.is_protected(listener):
            seconds = max(seconds, self.count_for(None))
        return seconds

    def count_for(self, listener: str | None) -> float:
        limit = self.config.security_value(MAX_CREATION_RATE, listener)
        if not isinstance(limit, int) or limit >= INT_MAX:
            return 0.0
        rate = self.of_listeners.get(listener)
        if rate is None:
            rate = self.of_listeners[listener] = self.new_rate()
        return self.count(rate, limit)

    def is_protected(self, listener: str) -> bool:
        """Whether the rate of the broker does not apply: clients must not keep brokers from connecting."""
        return listener == self.config.inter_broker_listener and len(self.config.listeners) > 1

    def count(self, rate: SampledRate, limit: float) -> float:
        rate.limit = limit
        rate.record(1)
        return min(rate.wait_ms(), rate.window_ms) / 1000

    def new_rate(self) -> SampledRate:
        config = self.config
        window_ms = config.quota_window_size_seconds * 1000.0
        return SampledRate(0, self.now_ms, windows=config.quota_window_num, window_ms=window_ms)

    def drop_addresses(self) -> None:
        """Drop the idle addresses, and all if that is not enough."""
        busy = {key: each for key, each in self.of_addresses.items() if not each.is_idle()}
        self.of_addresses = busy if len(busy) < ADDRESSES_MAX else {}


def parse_limit(text: str) -> float:
    limit = float(text)
    if not (limit >= 0 and math.isfinite(limit)):
        raise ValueError(text)
    return limit


def normalize_address(host: str) -> str:
    """Return one text for each address. A host name, which no peer has, stays as it is.

    >>> normalize_address("0:0:0:0:0:0:0:1"), normalize_address("::ffff:10.0.0.1"), normalize_address("fe80::1%eth0")
    ('::1', '10.0.0.1', 'fe80::1')
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
