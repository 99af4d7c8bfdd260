"""A coordinator of this broker, created on first use: many brokers never coordinate a group or a transaction.

    this broker becomes leader of a partition of the internal topic  ─┐
    first request to the coordinator                                 ─┴─► store, coordinator, loader ─► load the state

At the start of a broker the package of the coordinator is not imported before clients are served. Earlier leadership
changes are kept until then. Until the state is loaded, clients get COORDINATOR_LOAD_IN_PROGRESS and retry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.tasks import Tasks


class Loader(Protocol):
    def leadership_changed(self, partition: Partition) -> None: ...


class StoppableCoordinator(Protocol):
    async def stop(self) -> None: ...


class Components(Protocol):
    @property
    def coordinator(self) -> StoppableCoordinator: ...

    @property
    def loader(self) -> Loader: ...


C = TypeVar("C", bound=Components)


class LazyCoordinator(ABC, Generic[C]):
    """Creates the coordinator on first use, and passes leadership changes to its loader."""

    def __init__(self, replicas: ReplicaManager, topic: str) -> None:
        self.replicas = replicas
        self.topic = topic
        self.tasks = Tasks()
        self.is_open = False
        self.changed: dict[int, Partition] = {}
        """Partitions whose leadership changed before the loader was created, by index."""
        self.components: C | None = None
        replicas.on_leadership[topic] = self.leadership_changed

    @abstractmethod
    def create(self) -> C:
        """Create the components and start their tasks."""

    def ensure_created(self) -> C:
        """Return the components, which are created at the first call."""
        if self.components is None:
            self.components = self.create()
            for partition in self.changed.values():
                self.components.loader.leadership_changed(partition)
            self.changed.clear()
        return self.components

    def open(self) -> None:
        """Load the state of the partitions that this broker leads, now that clients are served."""
        self.is_open = True
        if any(partition.leader == partition.broker_id for partition in self.changed.values()):
            self.tasks.start(f"create-coordinator-{self.topic}", self.create_soon())

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

    async def stop(self) -> None:
        await self.tasks.stop()
        if self.components is not None:
            await self.components.coordinator.stop()
