"""The group coordinator of a broker, created on first use: many brokers never coordinate a group.

    this broker becomes leader of a partition of `__consumer_offsets`  ─┐
    first request about a group                                        ─┴─► store, coordinator, loader ─► load groups

At the start of a broker the groups package is not imported before clients are served. Earlier leadership changes are
kept until then. Until the groups are loaded, clients get COORDINATOR_LOAD_IN_PROGRESS and retry.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log_rate_limiter import LogRateLimiter
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.model import TopicPartition
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.tasks import Tasks

if TYPE_CHECKING:
    from barnabas.groups.coordinator import GroupCoordinator
    from barnabas.groups.loading import GroupLoader

ERROR_LOG_INTERVAL_S = 60.0


class GroupComponents(NamedTuple):
    coordinator: GroupCoordinator
    loader: GroupLoader


class LazyGroups:
    """Creates the group coordinator and its store on first use, and passes leadership changes to its loader."""

    def __init__(self, replicas: ReplicaManager, random: Random) -> None:
        self.replicas = replicas
        self.random = random
        self.tasks = Tasks()
        self.is_open = False
        self.changed: dict[int, Partition] = {}
        """Partitions whose leadership changed before the loader was created, by index."""
        self.components: GroupComponents | None = None
        self.error_log_limiter = LogRateLimiter(ERROR_LOG_INTERVAL_S)
        """For the error that an internal topic cannot be created. Clients retry ten times a second."""
        replicas.on_leadership[CONSUMER_OFFSETS] = self.leadership_changed

    def ensure_created(self) -> GroupComponents:
        """Return the components, which are created at the first call."""
        if self.components is None:
            self.components = self.create()
            for partition in self.changed.values():
                self.components.loader.leadership_changed(partition)
            self.changed.clear()
        return self.components

    def create(self) -> GroupComponents:
        from barnabas.groups.coordinator import GroupCoordinator
        from barnabas.groups.expiry import expire_periodically
        from barnabas.groups.loading import GroupLoader
        from barnabas.groups.store import GroupStore

        replicas = self.replicas
        config, clock = replicas.config, replicas.clock
        store = GroupStore(config, replicas, replicas.metadata, clock)
        coordinator = GroupCoordinator(config=config, store=store, clock=clock, random=self.random)
        loader = GroupLoader(store, coordinator)
        self.tasks.start("load-groups", loader.run())
        self.tasks.start("expire-offsets", expire_periodically(coordinator))
        return GroupComponents(coordinator, loader)

    def open(self) -> None:
        """Load the groups of the partitions that this broker leads, now that clients are served."""
        self.is_open = True
        if any(partition.leader == partition.broker_id for partition in self.changed.values()):
            self.tasks.start("create-groups", self.create_soon())

    async def create_soon(self) -> None:
        """Create the components in a task of its own, since the imports take a while."""
        self.ensure_created()

    def leadership_changed(self, partition: Partition) -> None:
        if self.components is not None:
            self.components.loader.leadership_changed(partition)
            return
        self.changed[partition.index] = partition
        if self.is_open:
            self.open()

    def partitions_deleted(self, partitions: Collection[TopicPartition]) -> None:
        """Delete the committed offsets of deleted partitions."""
        if self.components is not None:
            from barnabas.groups.expiry import delete_offsets_of_partitions

            work = delete_offsets_of_partitions(self.components.coordinator, partitions)
            self.tasks.start("delete-offsets", work)

    async def stop(self) -> None:
        await self.tasks.stop()
        if self.components is not None:
            await self.components.coordinator.stop()
