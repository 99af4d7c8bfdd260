"""The fetchers of one broker: one per source broker and fetcher id, made when needed and ended when idle."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from barnabas.config import BrokerConfig
from barnabas.errors import StorageError
from barnabas.metadata.cache import MetadataCache
from barnabas.model import BrokerId, TopicPartition
from barnabas.replication import following
from barnabas.replication.alter_partition import RegisteredBroker
from barnabas.replication.partition import Partition
from barnabas.replication.quota import ReplicationQuota
from barnabas.tasks import Tasks
from barnabas.world.ports import Clock, Network

if TYPE_CHECKING:
    from barnabas.replication.fetcher import Fetcher


class FetcherSettings(Struct, frozen=True, kw_only=True):
    listener: str
    fetchers: int = 1
    wait_max_ms: int = 500
    min_bytes: int = 1
    partition_bytes: int = 1 << 20
    response_bytes: int = 10 << 20
    backoff_s: float = 1.0
    timeout_s: float = 30.0


def settings_of(config: BrokerConfig) -> FetcherSettings:
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


class Replicas(Protocol):
    """What a fetcher needs of the replica manager."""

    broker_id: BrokerId
    metadata: MetadataCache
    clock: Clock
    follower_quota: ReplicationQuota | None

    def fail(self, partition: Partition, error: StorageError) -> None: ...

    def flush(self, partition: Partition) -> asyncio.Future[None]: ...


class FetcherManager:
    def __init__(
        self,
        replicas: Replicas,
        network: Network,
        control: RegisteredBroker,
        settings: FetcherSettings,
    ) -> None:
        self.replicas = replicas
        self.network = network
        self.control = control
        self.settings = settings
        self.fetchers: dict[tuple[BrokerId, int], Fetcher] = {}
        self.by_partition: dict[TopicPartition, Fetcher] = {}
        self.tasks = Tasks()

    def add(self, partitions: Iterable[Partition]) -> None:
        """Follow each partition's leader of the moment."""
        now_ms = self.replicas.clock.now_ms()
        for partition in partitions:
            tp = TopicPartition(partition.topic, partition.index)
            try:
                following.prepare(partition.log, now_ms)
            except StorageError as error:
                self.replicas.fail(partition, error)
                continue
            number = following.fetcher_of(*tp, self.settings.fetchers)
            key = (partition.leader, number)
            fetcher = self.fetchers.get(key)
            if fetcher is None:
                fetcher = self.fetchers[key] = self.new_fetcher(*key)
                self.tasks.start(f"fetcher-{key[0]}-{number}", fetcher.run())
            fetcher.add(partition)
            self.by_partition[tp] = fetcher

    def new_fetcher(self, source: BrokerId, number: int) -> Fetcher:
        # A broker without followers starts without this code and the messages it speaks.
        from barnabas.replication.fetcher import Fetcher

        return Fetcher(self, source, number)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """From here on nothing more is appended to them."""
        for tp in partitions:
            fetcher = self.by_partition.pop(tp, None)
            if fetcher is not None:
                fetcher.remove(tp)

    def stop_idle(self) -> None:
        for key, fetcher in list(self.fetchers.items()):
            if not fetcher.followed:
                del self.fetchers[key]
                fetcher.stop()

    async def stop(self) -> None:
        self.fetchers.clear()
        self.by_partition.clear()
        await self.tasks.stop()
