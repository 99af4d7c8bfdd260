"""Settings of the fetchers of one broker."""

from __future__ import annotations

from msgspec import Struct

from barnabas.config import BrokerConfig


class FetcherSettings(Struct, frozen=True, kw_only=True):
    """See the replica.fetch.* broker settings."""

    listener: str
    fetchers: int = 1
    wait_max_ms: int = 500
    min_bytes: int = 1
    partition_bytes: int = 1 << 20
    response_bytes: int = 10 << 20
    backoff_s: float = 1.0
    timeout_s: float = 30.0


def build_fetcher_settings(config: BrokerConfig) -> FetcherSettings:
    return FetcherSettings(
        listener=config.inter_broker_listener,
        fetchers=max(config.num_replica_fetchers, 1),
        wait_max_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        partition_bytes=config.replica_fetch_max_bytes,
        response_bytes=config.replica_fetch_response_max_bytes,
        backoff_s=config.replica_fetch_backoff_ms / 1000,
        timeout_s=config.replica_socket_timeout_ms / 1000,
    )
