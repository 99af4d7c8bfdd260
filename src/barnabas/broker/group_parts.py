"""What a broker needs for consumer groups, built when it is needed: most brokers of a test never are asked for one.

    a partition of `__consumer_offsets` is led here  ─┐
    the first request about a group                   ├─► store, coordinator, loader ─► what is led is loaded
                                                      ┘
At the start of a broker nothing of it is imported before clients are served: partitions that are led by then are noted
and loaded a moment later. Until then, as while they are loaded, clients hear that it takes a moment.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config import BrokerConfig
from barnabas.log_rate_limiter import LogRateLimiter
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.model import TopicPartition
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.tasks import Tasks
from barnabas.world.ports import Clock

if TYPE_CHECKING:
    from barnabas.groups.coordinator import GroupCoordinator
    from barnabas.groups.loading import GroupLoader
    from barnabas.groups.store import GroupStore

COMPLAINT_INTERVAL_S = 60.0


class Built(NamedTuple):
    store: GroupStore
    coordinator: GroupCoordinator
    loader: GroupLoader


class GroupParts:
    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self.config = config
        self.replicas = replicas
        self.metadata = metadata
        self.clock = clock
        self.random = random
        self.tasks = Tasks()
        self.is_open = False
        self.noted: dict[int, Partition] = {}
        """Partitions whose leadership changed before there was anybody to tell."""
        self.built: Built | None = None
        self.complaint = LogRateLimiter(COMPLAINT_INTERVAL_S)
        """Clients that find no coordinator ask again ten times a second."""
        replicas.on_leadership[CONSUMER_OFFSETS] = self.leadership_changed

    @property
    def coordinator(self) -> GroupCoordinator:
        return self.parts.coordinator

    @property
    def store(self) -> GroupStore:
        return self.parts.store

    @property
    def parts(self) -> Built:
        if self.built is None:
            self.built = self.build()
            for partition in self.noted.values():
                self.built.loader.leadership_changed(partition)
            self.noted.clear()
        return self.built

    def build(self) -> Built:
        from barnabas.groups.coordinator import GroupCoordinator
        from barnabas.groups.expiry import expire
        from barnabas.groups.loading import GroupLoader
        from barnabas.groups.store import GroupStore

        store = GroupStore(self.config, self.replicas, self.metadata, self.clock)
        coordinator = GroupCoordinator(
            config=self.config, store=store, clock=self.clock, random=self.random
        )
        loader = GroupLoader(store, coordinator)
        self.tasks.start("load-groups", loader.run())
        self.tasks.start("expire-offsets", expire(coordinator, store))
        return Built(store, coordinator, loader)

    def open(self) -> None:
        """Clients are served: what is led can be loaded."""
        self.is_open = True
        if any(partition.leader == partition.broker_id for partition in self.noted.values()):
            self.tasks.start("build-groups", self.build_soon())

    async def build_soon(self) -> None:
        """Not before whoever is at work now has ended: to import it all takes a while."""
        assert self.parts is not None

    def leadership_changed(self, partition: Partition) -> None:
        if self.built is not None:
            self.built.loader.leadership_changed(partition)
            return
        self.noted[partition.index] = partition
        if self.is_open:
            self.open()

    def partitions_deleted(self, partitions: Collection[TopicPartition]) -> None:
        """Nobody commits there any more, and what was committed is forgotten."""
        if self.built is not None:
            from barnabas.groups.expiry import forget_deleted

            work = forget_deleted(self.built.coordinator, self.built.store, partitions)
            self.tasks.start("forget-offsets", work)

    async def stop(self) -> None:
        await self.tasks.stop()
        if self.built is not None:
            await self.built.coordinator.stop()
