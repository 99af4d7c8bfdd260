"""Fetchers of one broker: one per leader and fetcher id, created when needed and stopped when idle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from barnabas.errors import StorageError
from barnabas.model import BrokerId, TopicPartition
from barnabas.replication import follower
from barnabas.replication.alter_partition import RegisteredBroker
from barnabas.replication.partition import Partition
from barnabas.tasks import Tasks
from barnabas.world.ports import Network

if TYPE_CHECKING:
    from barnabas.replication.fetcher import Fetcher, FetcherReplicaManager


class FetcherManager:
    def __init__(
        self,
        replica_manager: FetcherReplicaManager,
        network: Network,
        registration: RegisteredBroker,
    ) -> None:
        self.replica_manager = replica_manager
        self.network = network
        self.registration = registration
        self.fetchers: dict[tuple[BrokerId, int], Fetcher] = {}
        self.by_partition: dict[TopicPartition, Fetcher] = {}
        self.tasks = Tasks()

    def add(self, partitions: Iterable[Partition]) -> None:
        now_ms = self.replica_manager.clock.now_ms()
        fetchers_per_leader = max(self.replica_manager.config.num_replica_fetchers, 1)
        for partition in partitions:
            tp = TopicPartition(partition.topic, partition.index)
            try:
                follower.prepare_log(partition.log, now_ms)
            except StorageError as error:
                self.replica_manager.fail(partition, error)
                continue
            fetcher_id = follower.select_fetcher(*tp, fetchers_per_leader)
            key = (partition.leader, fetcher_id)
            fetcher = self.fetchers.get(key)
            if fetcher is None:
                fetcher = self.fetchers[key] = self.new_fetcher(*key)
                self.tasks.start(f"fetcher-{key[0]}-{fetcher_id}", fetcher.run())
            fetcher.add(partition)
            self.by_partition[tp] = fetcher

    def new_fetcher(self, leader: BrokerId, fetcher_id: int) -> Fetcher:
        # Imported on first use: a broker that follows nothing starts faster without it.
        from barnabas.replication.fetcher import Fetcher

        return Fetcher(
            leader,
            fetcher_id,
            replica_manager=self.replica_manager,
            network=self.network,
            registration=self.registration,
            on_failed=self.remove,
        )

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching the partitions. Nothing is appended to them after this call."""
        for tp in partitions:
            fetcher = self.by_partition.pop(tp, None)
            if fetcher is not None:
                fetcher.remove(tp)

    def redistribute(self, partitions: Mapping[tuple[str, int], Partition]) -> None:
        """Assign the followed partitions to fetchers again, after num.replica.fetchers has changed."""
        followed = [partitions[tp] for tp in self.by_partition if tp in partitions]
        self.remove(list(self.by_partition))
        self.add(followed)
        self.stop_idle()

    def stop_idle(self) -> None:
        for key, fetcher in list(self.fetchers.items()):
            if not fetcher.partitions:
                del self.fetchers[key]
                fetcher.stop()

    async def stop(self) -> None:
        self.fetchers.clear()
        self.by_partition.clear()
        await self.tasks.stop()
