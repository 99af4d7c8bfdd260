"""The fetchers of one broker: one per source broker and fetcher id, made when needed and ended when idle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.errors import StorageError
from barnabas.model import BrokerId, TopicPartition
from barnabas.replication import following
from barnabas.replication.alter_partition import RegisteredBroker
from barnabas.replication.fetcher_settings import FetcherSettings
from barnabas.replication.partition import Partition
from barnabas.tasks import Tasks
from barnabas.world.ports import Network

if TYPE_CHECKING:
    from barnabas.replication.fetcher import Fetcher, Replicas


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

        return Fetcher(
            source,
            number,
            replicas=self.replicas,
            network=self.network,
            control=self.control,
            settings=self.settings,
            on_given_up=self.remove,
        )

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
