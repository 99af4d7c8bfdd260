"""The parts of one broker, as its handlers see them."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.broker.control_plane import ControlPlane
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.seldom import Seldom
from barnabas.broker.topics import Topics
from barnabas.config import BrokerConfig
from barnabas.controller.controller import Controller
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.registry_client import RegistryClient
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.world.ports import Clock, Network

GROUP_WARNING_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
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
    group_warning: Seldom = field(default_factory=lambda: Seldom(GROUP_WARNING_INTERVAL_S))
    """Clients take the refusal for a broker that is not ready, and ask again ten times a second."""
