"""Controller mutation quotas of clients, as stored in /config/users and /config/clients.

The first setting controller_mutation_rate in this order applies:

    /config/users/<user>/clients/<client-id>        one bucket per user and client id
    /config/users/<user>/clients/<default>
    /config/users/<user>                            one bucket per user
    /config/users/<default>/clients/<client-id>
    /config/users/<default>/clients/<default>
    /config/users/<default>
    /config/clients/<client-id>                     one bucket per client id
    /config/clients/<default>

Names in paths are percent-encoded. Without authentication every client is the user ANONYMOUS. As in Kafka, a quota of
client ids does not apply to a client without an id.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import NamedTuple, Protocol

from barnabas.broker.config_admin.quota_entities import RELATIVE_NAMES
from barnabas.broker.connection import Connection
from barnabas.config import BrokerConfig
from barnabas.config.client_quotas import MUTATION_RATE
from barnabas.controller.mutation_quota import UNLIMITED_MUTATIONS, MutationQuota, TokenBucket
from barnabas.errors import RegistryError, StorageError, reason
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient

logger = logging.getLogger("barnabas.quotas")

BUCKETS_MAX = 10_000
"""Above this number, buckets that are full are dropped. They are the same as new ones."""

BucketKey = tuple[str, str]  # user and client id; an empty one does not matter


class RateLimit(NamedTuple):
    """A stored rate per second, and the bucket that it applies to."""

    rate: float
    bucket: BucketKey


class RateSource(Protocol):
    """Finds the rate of a client."""

    async def find_rate(self, user: str, client_id: str) -> RateLimit | None:
        """Return the rate that applies to the client; None if there is none."""


class RegistryRates:
    """Reads rates from the registry, at each request. Two reads if no quota is stored."""

    def __init__(self, registry: RegistryClient) -> None:
        self.registry = registry

    async def find_rate(self, user: str, client_id: str) -> RateLimit | None:
        try:
            users, clients = await asyncio.gather(
                self.registry.children(znodes.CONFIG_USERS),
                self.registry.children(znodes.CONFIG_CLIENTS),
            )
            if not users and not clients:
                return None
            places = quota_places(user, client_id)
            found = await self.registry.get_many([path for path, _ in places])
        except (RegistryError, StorageError) as error:
            # The registry operations of the request itself fail as well.
            logger.warning("cannot read quotas client=%s error=%s", client_id, error)
            return None
        for (path, bucket), znode in zip(places, found, strict=True):
            rate = None if znode is None else read_rate(path, znode[0])
            if rate is not None:
                return RateLimit(rate, bucket)
        return None


class MutationQuotas:
    """The buckets of all clients that have a quota."""

    def __init__(self, source: RateSource, config: BrokerConfig) -> None:
        self.source = source
        self.window_seconds = (
            config.controller_quota_window_num * config.controller_quota_window_size_seconds
        )
        self.buckets: dict[BucketKey, TokenBucket] = {}

    async def open(self, user: str, client_id: str | None, *, is_strict: bool) -> MutationQuota:
        """Return the quota of one request of this client."""
        limit = await self.source.find_rate(user, client_id or "")
        if limit is None:
            return UNLIMITED_MUTATIONS
        loop = asyncio.get_running_loop()
        now_ms = loop.time() * 1000
        bucket = self.bucket_of(limit, now_ms)
        return MutationQuota(bucket, lambda: loop.time() * 1000, is_strict=is_strict)

    def bucket_of(self, limit: RateLimit, now_ms: float) -> TokenBucket:
        """Return the bucket with the current rate. A changed rate keeps the tokens, up to the new burst."""
        burst = limit.rate * self.window_seconds
        bucket = self.buckets.get(limit.bucket)
        if bucket is None:
            if len(self.buckets) >= BUCKETS_MAX:
                self.drop_full_buckets(now_ms)
            bucket = self.buckets[limit.bucket] = TokenBucket(limit.rate, burst, now_ms)
        elif bucket.rate != limit.rate:
            bucket.refill(now_ms)
            bucket.rate, bucket.burst = limit.rate, burst
        return bucket

    def drop_full_buckets(self, now_ms: float) -> None:
        full = [key for key, bucket in self.buckets.items() if bucket.is_full(now_ms)]
        for key in full:
            del self.buckets[key]


def throttle_connection(connection: Connection, quota: MutationQuota) -> int:
    """Read no more requests from a client that has exceeded its quota. Return the throttle time for the response."""
    throttle_ms = quota.throttle_ms()
    connection.throttle_seconds = max(connection.throttle_seconds, throttle_ms / 1000)
    return throttle_ms


def quota_places(user: str, client_id: str) -> list[tuple[str, BucketKey]]:
    """Return the paths that may have the rate of a client, in order of precedence, with the bucket of each."""
    clients = [znodes.DEFAULT_ENTITY] if client_id else []
    if client_id not in ("", *RELATIVE_NAMES):
        clients.insert(0, znodes.sanitise(client_id))
    places: list[tuple[str, BucketKey]] = []
    users = [znodes.DEFAULT_ENTITY]
    if user not in RELATIVE_NAMES:
        users.insert(0, znodes.sanitise(user))
    for stored_user in users:
        path = f"{znodes.CONFIG_USERS}/{stored_user}"
        places += [(f"{path}/clients/{client}", (user, client_id)) for client in clients]
        places.append((path, (user, "")))
    places += [(f"{znodes.CONFIG_CLIENTS}/{client}", ("", client_id)) for client in clients]
    return places


def read_rate(path: str, data: bytes) -> float | None:
    """Return the rate in a znode. None if it has none, or an invalid one, which is logged."""
    try:
        text = znodes.decode_config(path, data).get(MUTATION_RATE)
        if text is None:
            return None
        rate = float(text)
        if not (rate > 0 and math.isfinite(rate)):
            raise ValueError(f"{MUTATION_RATE} must be positive: {text}")
    except (RegistryError, ValueError) as error:
        logger.warning("ignoring quota path=%s error=%s", path, reason(error))
        return None
    return rate
