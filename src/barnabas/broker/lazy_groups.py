"""The group coordinator of a broker, created on first use."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.lazy_coordinator import LazyCoordinator
from barnabas.history.coordinator_recorder import CoordinatorRecorder
from barnabas.log_rate_limiter import LogRateLimiter
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.model import TopicPartition
from barnabas.replication.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from barnabas.groups.coordinator import GroupCoordinator
    from barnabas.groups.loading import GroupLoader

ERROR_LOG_INTERVAL_S = 60.0


class GroupComponents(NamedTuple):
    coordinator: GroupCoordinator
    loader: GroupLoader


class LazyGroups(LazyCoordinator[GroupComponents]):
    def __init__(
        self,
        replicas: ReplicaManager,
        random: Random,
        recorder: CoordinatorRecorder | None = None,
    ) -> None:
        super().__init__(replicas, CONSUMER_OFFSETS)
        self.random = random
        self.recorder = recorder
        self.error_log_limiter = LogRateLimiter(ERROR_LOG_INTERVAL_S)
        """For the error that an internal topic cannot be created. Clients retry ten times a second."""

    def create(self) -> GroupComponents:
        from barnabas.groups.coordinator import GroupCoordinator
        from barnabas.groups.expiry import expire_periodically
        from barnabas.groups.loading import GroupLoader
        from barnabas.groups.store import GroupStore

        replicas = self.replicas
        config, clock = replicas.config, replicas.clock
        store = GroupStore(config, replicas, replicas.metadata, clock)
        coordinator = GroupCoordinator(
            config=config, store=store, clock=clock, random=self.random, recorder=self.recorder
        )
        loader = GroupLoader(store, coordinator)
        self.tasks.start("load-groups", loader.run())
        self.tasks.start("expire-offsets", expire_periodically(coordinator))
        return GroupComponents(coordinator, loader)

    def partitions_deleted(self, partitions: Collection[TopicPartition]) -> None:
        """Delete the committed offsets of deleted partitions."""
        if self.components is not None:
            from barnabas.groups.expiry import delete_offsets_of_partitions

            work = delete_offsets_of_partitions(self.components.coordinator, partitions)
            self.tasks.start("delete-offsets", work)
