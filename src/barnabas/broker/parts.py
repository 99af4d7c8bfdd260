"""The parts of one broker, as its handlers see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from barnabas.broker.control_plane import ControlPlane
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.group_parts import GroupParts
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.topics import Topics
from barnabas.config import BrokerConfig
from barnabas.controller.controller import Controller
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.registry_client import RegistryClient
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.world.ports import Clock, Network, Watchdog

if TYPE_CHECKING:
    from barnabas.groups.coordinator import GroupCoordinator
    from barnabas.groups.store import GroupStore


class BrokerParts(Struct, frozen=True, kw_only=True):
    """Built once by broker.py and handed to every handler."""

    config: BrokerConfig
    clock: Clock
    network: Network
    registry: RegistryClient
    control: ControlPlane
    controller: Controller
    metadata: MetadataCache
    replicas: ReplicaManager
    sessions: FetchSessions
    producer_ids: ProducerIds
    topics: Topics
    group_parts: GroupParts
    watchdog: Watchdog

    @property
    def groups(self) -> GroupCoordinator:
        return self.group_parts.coordinator

    @property
    def group_store(self) -> GroupStore:
        return self.group_parts.store
