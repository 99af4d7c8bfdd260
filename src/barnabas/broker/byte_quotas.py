"""Byte quotas of clients: producer_byte_rate and consumer_byte_rate, as stored in /config/users and /config/clients.

    start     ─► read_quotas ─► StoredQuotas ◄─ change notifications (config_admin/apply.py)
                                     │ find
    Produce, Fetch ─► ByteQuotas.charge ─► throttle time of the response, and no reading from the connection meanwhile

Which quota applies to a client is described in mutation_quotas.py. A request is never rejected: its bytes are counted,
and if the rate of the last windows is too high, the next request of the connection waits until it is not, at most for
all windows. The rate counts per broker, as in Kafka. Fetches of followers have no quota.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping

from barnabas.broker.connection import Connection
from barnabas.broker.mutation_quotas import ANONYMOUS, BucketKey, RateLimit, quota_places
from barnabas.config import BrokerConfig
from barnabas.replication.quota import ReplicationQuota

logger = logging.getLogger("barnabas.quotas")

PRODUCE_RATE = "producer_byte_rate"
FETCH_RATE = "consumer_byte_rate"
CLIENTS_MAX = 10_000
"""Above this number of clients, what is known about idle ones is dropped."""


class StoredQuotas:
    """Byte rates by the path of their znode, and the one that applies to each client."""

    def __init__(self) -> None:
        self.by_path: dict[str, dict[str, float]] = {}
        self.found: dict[tuple[str, str], RateLimit | None] = {}
        """Quotas that were looked up, by setting and client id."""

    def update(self, path: str, settings: Mapping[str, str]) -> None:
        """Use the settings of one znode. Without a byte rate it is forgotten."""
        rates = parse_byte_rates(path, settings)
        if rates:
            self.by_path[path] = rates
        else:
            self.by_path.pop(path, None)
        self.found.clear()

    def replace_all(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        self.by_path.clear()
        for path, each in settings.items():
            self.update(path, each)

    def find(self, setting: str, client_id: str) -> RateLimit | None:
        """Return the rate of a client; None if it has none."""
        key = (setting, client_id)
        if key not in self.found:
            if len(self.found) >= CLIENTS_MAX:
                self.found.clear()
            self.found[key] = next(
                (
                    RateLimit(rates[setting], bucket)
                    for path, bucket in quota_places(ANONYMOUS, client_id)
                    if setting in (rates := self.by_path.get(path, {}))
                ),
                None,
            )
        return self.found[key]


class ByteQuotas:
    """Counts the bytes of clients that have a quota. `stored` has the quotas, and `now_ms` returns a monotonic time."""

    def __init__(self, config: BrokerConfig, now_ms: Callable[[], float]) -> None:
        self.now_ms = now_ms
        self.stored = StoredQuotas()
        self.windows = config.quota_window_num
        self.window_ms = config.quota_window_size_seconds * 1000.0
        self.rates: dict[tuple[str, BucketKey], ReplicationQuota] = {}

    @property
    def is_active(self) -> bool:
        return bool(self.stored.by_path)

    def charge(self, connection: Connection, setting: str, client_id: str | None, size: int) -> int:
        """Count `size` bytes of a client. Returns the throttle time in ms, for which the connection is not read."""
        limit = self.stored.find(setting, client_id or "")
        if limit is None:
            return 0
        rate = self.rate_of(setting, limit)
        rate.record(size)
        throttle_ms = math.ceil(rate.wait_ms())
        connection.throttle_seconds = throttle_ms / 1000
        return throttle_ms

    def rate_of(self, setting: str, limit: RateLimit) -> ReplicationQuota:
        key = (setting, limit.bucket)
        rate = self.rates.get(key)
        if rate is None:
            if len(self.rates) >= CLIENTS_MAX:
                self.rates = {key: each for key, each in self.rates.items() if each.wait_ms() > 0}
            rate = self.rates[key] = ReplicationQuota(
                0, self.now_ms, windows=self.windows, window_ms=self.window_ms
            )
        rate.bytes_per_second = int(limit.rate)
        return rate


def parse_byte_rates(path: str, settings: Mapping[str, str]) -> dict[str, float]:
    """Return the byte rates in the settings of a znode. An invalid rate is ignored, and logged."""
    rates = {}
    for setting in (PRODUCE_RATE, FETCH_RATE):
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
