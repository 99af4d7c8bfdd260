"""The components of a broker that its request handlers use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from barnabas.broker.client_quotas import ClientQuotas
from barnabas.broker.control_plane import ControlPlane
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.init_producer_id import ProducerIds
from barnabas.broker.lazy_groups import LazyGroups
from barnabas.broker.lazy_transactions import LazyTransactions
from barnabas.broker.mutation_quotas import MutationQuotas
from barnabas.broker.request_metrics import RequestMetrics
from barnabas.broker.security.broker_security import BrokerSecurity
from barnabas.broker.topic_admin.topics import Topics
from barnabas.broker.transaction_verification import TransactionVerifier
from barnabas.config import BrokerConfig
from barnabas.config.current import CurrentConfig
from barnabas.controller.controller import Controller
from barnabas.history.coordinator_recorder import CoordinatorRecorder
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.features import FinalizedFeatures
from barnabas.metadata.registry_client import RegistryClient
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.world.ports import Clock, Network

if TYPE_CHECKING:
    from barnabas.groups.coordinator import GroupCoordinator
    from barnabas.groups.store import GroupStore
    from barnabas.transactions.coordinator import TransactionCoordinator


class BrokerContext(Struct, frozen=True, kw_only=True):
    """Created once by broker.py and passed to every handler."""

    current_config: CurrentConfig
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
    mutation_quotas: MutationQuotas
    client_quotas: ClientQuotas
    features: FinalizedFeatures
    lazy_groups: LazyGroups
    lazy_transactions: LazyTransactions
    metrics: RequestMetrics
    security: BrokerSecurity
    verifier: TransactionVerifier | None = None
    """Verifies produced batches of transactions. Without it they are not verified."""
    recorder: CoordinatorRecorder | None = None
    """Records events of groups and transactions. None if the history is disabled."""

    @property
    def config(self) -> BrokerConfig:
        """The effective settings. Read them again after an await: they may have changed."""
        return self.current_config.value

    @property
    def groups(self) -> GroupCoordinator:
        return self.lazy_groups.ensure_created().coordinator

    @property
    def group_store(self) -> GroupStore:
        return self.lazy_groups.ensure_created().coordinator.store

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.lazy_transactions.ensure_created().coordinator
