"""Quotas of clients on bytes and on request time, as stored in /config/users and /config/clients.

    start     ─► read_quotas ─► StoredQuotas ◄─ change notifications (config_admin/apply.py)
                                     │ find
    requests ─► ClientQuotas.charge… ─► throttle time of the response, and no reading from the connection meanwhile

    producer_byte_rate     bytes of Produce requests per second
    consumer_byte_rate     bytes of fetched records per second; fetches of followers do not count
    request_percentage     time of the event loop, in percent; requests that only brokers send do not count

mutation_quotas.py describes which quota applies to a client. A request is never rejected: it is counted, and if the
rate of the last windows is too high, the next request of the connection waits until it is not. A Fetch above the rate
gets no records, so a client gains nothing from new connections. The rate counts per broker, as in Kafka.

Requests of clients with a quota do not take the fast path of repeated_requests.py.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from barnabas.broker.connection import Connection
from barnabas.broker.connection_rates import ConnectionRates
from barnabas.broker.mutation_quotas import BucketKey, RateLimit, quota_places
from barnabas.broker.sampled_rate import SampledRate
from barnabas.broker.work_meter import WorkMeter
from barnabas.config import BrokerConfig
from barnabas.metadata import znodes

logger = logging.getLogger("barnabas.quotas")

PRODUCE_RATE: Final = "producer_byte_rate"
FETCH_RATE: Final = "consumer_byte_rate"
REQUEST_TIME: Final = "request_percentage"
ENFORCED: Final = (PRODUCE_RATE, FETCH_RATE, REQUEST_TIME)
CLIENTS_MAX = 10_000
"""Above this number of clients, what is known about idle ones is dropped."""


class FetchCharge(NamedTuple):
    throttle_ms: int
    is_withheld: bool
    """Whether the response must have no records."""


class StoredQuotas:
    """Rates by the path of their znode, and the ones that apply to each client."""

    def __init__(self) -> None:
        self.by_path: dict[str, dict[str, float]] = {}
        self.found: dict[tuple[str, str], dict[str, RateLimit]] = {}
        """Quotas by user and client id, as far as they were looked up."""
        self.version = 0
        """Number of changes since the start."""

    def update(self, path: str, settings: Mapping[str, str]) -> None:
        """Use the settings of one znode. Without a rate it is forgotten."""
        rates = parse_rates(path, settings)
        if rates == self.by_path.get(path, {}):
            return
        if rates:
            self.by_path[path] = rates
        else:
            self.by_path.pop(path, None)
        self.found.clear()
        self.version += 1

    def clear(self) -> None:
        self.by_path.clear()
        self.found.clear()
        self.version += 1

    def find(self, user: str, client_id: str) -> dict[str, RateLimit]:
        """Return the rates of a client by the names of their settings."""
        key = (user, client_id)
        limits = self.found.get(key)
        if limits is None:
            if len(self.found) >= CLIENTS_MAX:
                self.found.clear()
            limits = self.found[key] = self.look_up(user, client_id)
        return limits

    def look_up(self, user: str, client_id: str) -> dict[str, RateLimit]:
        limits: dict[str, RateLimit] = {}
        for path, bucket in quota_places(user, client_id):
            for setting, rate in self.by_path.get(path, {}).items():
                limits.setdefault(setting, RateLimit(rate, bucket))
        return limits


class ClientQuotas:
    """Counts the bytes and the time of clients that have a quota. `now_ms` returns a monotonic time."""

    def __init__(self, config: BrokerConfig, now_ms: Callable[[], float]) -> None:
        self.now_ms = now_ms
        self.stored = StoredQuotas()
        self.windows = config.quota_window_num
        self.window_ms = config.quota_window_size_seconds * 1000.0
        self.rates: dict[tuple[str, BucketKey], SampledRate] = {}
        self.connections = ConnectionRates(config, now_ms)
        """Quotas of IP addresses, and limits of listeners."""

    def update(self, path: str, settings: Mapping[str, str]) -> None:
        """Use the settings of one znode of a user, a client id or an address."""
        if path.startswith(f"{znodes.CONFIG_IPS}/"):
            self.connections.update(path, settings)
        else:
            self.stored.update(path, settings)

    def replace_all(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        """Use the settings of all these znodes, and forget all others."""
        self.stored.clear()
        self.connections.limits.clear()
        for path, each in settings.items():
            self.update(path, each)

    @property
    def is_active(self) -> bool:
        return bool(self.stored.by_path)

    def has_quota(self, connection: Connection, client_id: str | None) -> bool:
        """Whether any quota applies to the client."""
        return self.is_active and bool(self.limits_of(connection, client_id))

    def limits_of(self, connection: Connection, client_id: str | None) -> dict[str, RateLimit]:
        return self.stored.find(connection.principal.name, client_id or "")

    def select_meter(self, connection: Connection, client_id: str | None) -> WorkMeter | None:
        """Return the meter of the connection. It has one only if a request_percentage applies to the client."""
        if REQUEST_TIME not in self.limits_of(connection, client_id):
            connection.meter = None
        elif connection.meter is None:
            connection.meter = WorkMeter(connection.loop.time)
        return connection.meter

    # ---- counting. The connection is not read for the throttle time in ms.

    def charge_produce(self, connection: Connection, client_id: str | None, *, acks: int) -> int:
        """Count the request that the connection serves now. Its time does not count with acks=0, as in Kafka."""
        size = connection.frame_bytes_last - 4
        throttle_ms = self.charge(connection, PRODUCE_RATE, client_id, size)
        if acks != 0:
            return max(throttle_ms, self.charge_work(connection, client_id))
        if connection.meter is not None:
            connection.meter.take()
        return throttle_ms

    def charge_fetch(self, connection: Connection, client_id: str | None, size: int) -> FetchCharge:
        """Count the records of a response. If they exceed the rate, they are withheld and do not count.

        The first records in all windows are never withheld, even if they alone exceed the rate.
        """
        work_ms = self.charge_work(connection, client_id)
        limit = self.limits_of(connection, client_id).get(FETCH_RATE)
        if limit is None:
            return FetchCharge(work_ms, is_withheld=False)
        rate = self.rate_of(FETCH_RATE, limit)
        throttle_ms = rate.wait_ms(size)
        is_withheld = throttle_ms > 0 and size > 0 and rate.amount() > 0
        if not is_withheld:
            rate.record(size)
        throttle(connection, throttle_ms)
        return FetchCharge(max(throttle_ms, work_ms), is_withheld)

    def charge_work(self, connection: Connection, client_id: str | None) -> int:
        """Count the time that the event loop has worked for the connection since the last call.

        The throttle time is at most one window: work of few milliseconds may be a large percentage.
        """
        meter = connection.meter
        if meter is None:
            return 0
        percent_seconds = 100.0 * meter.take()
        return self.charge(
            connection, REQUEST_TIME, client_id, percent_seconds, wait_ms_max=self.window_ms
        )

    def charge(
        self,
        connection: Connection,
        setting: str,
        client_id: str | None,
        amount: float,
        *,
        wait_ms_max: float = math.inf,
    ) -> int:
        limit = self.limits_of(connection, client_id).get(setting)
        if limit is None:
            return 0
        rate = self.rate_of(setting, limit)
        rate.record(amount)
        throttle_ms = math.ceil(min(rate.wait_ms(), wait_ms_max))
        throttle(connection, throttle_ms)
        return throttle_ms

    def fetch_bytes_max(self, connection: Connection, client_id: str | None) -> float:
        """Return the largest response of a Fetch that need not be throttled. A first batch may be larger."""
        limit = self.limits_of(connection, client_id).get(FETCH_RATE)
        if limit is None:
            return math.inf
        return limit.rate * max(self.windows - 1, 1) * self.window_ms / 1000

    def rate_of(self, setting: str, limit: RateLimit) -> SampledRate:
        key = (setting, limit.bucket)
        rate = self.rates.get(key)
        if rate is None:
            if len(self.rates) >= CLIENTS_MAX:
                self.drop_rates()
            rate = self.rates[key] = SampledRate(
                0, self.now_ms, windows=self.windows, window_ms=self.window_ms
            )
        rate.limit = limit.rate
        return rate

    def drop_rates(self) -> None:
        """Drop the rates that are met, and all if that is not enough: a client may use a new id for each request."""
        self.rates = {key: each for key, each in self.rates.items() if each.wait_ms() > 0}
        if len(self.rates) >= CLIENTS_MAX:
            self.rates.clear()


def throttle(connection: Connection, throttle_ms: int) -> None:
    """Read no further request from a connection for this time, unless another quota requires a longer one."""
    connection.throttle_seconds = max(connection.throttle_seconds, throttle_ms / 1000)


def parse_rates(path: str, settings: Mapping[str, str]) -> dict[str, float]:
    """Return the rates in the settings of a znode. An invalid rate is ignored, and logged."""
    rates = {}
    for setting in ENFORCED:
        text = settings.get(setting)
        if text is None:
            continue
        try:
            rates[setting] = parse_rate(text)
        except ValueError:
            logger.warning("ignoring quota path=%s setting=%s value=%s", path, setting, text[:100])
    return rates


def parse_rate(text: str) -> float:
    rate = float(text)
    if not (rate >= 0 and math.isfinite(rate)):
        raise ValueError(text)
    return rate
