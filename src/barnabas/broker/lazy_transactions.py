"""The transaction coordinator of a broker, created on first use.

The connections to other coordinators, for verifications, are created at the first transactional batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.lazy_coordinator import LazyCoordinator
from barnabas.errors import ErrorCode
from barnabas.history.coordinator_recorder import CoordinatorRecorder
from barnabas.metadata.topic_names import TRANSACTION_STATE
from barnabas.model import TopicPartition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.world.ports import Network

if TYPE_CHECKING:
    from barnabas.transactions.coordinator import TransactionCoordinator
    from barnabas.transactions.loading import TransactionLoader
    from barnabas.transactions.verification_channels import VerificationChannels


class TransactionComponents(NamedTuple):
    coordinator: TransactionCoordinator
    loader: TransactionLoader


class LazyTransactions(LazyCoordinator[TransactionComponents]):
    def __init__(
        self,
        replicas: ReplicaManager,
        network: Network,
        recorder: CoordinatorRecorder | None = None,
    ) -> None:
        super().__init__(replicas, TRANSACTION_STATE)
        self.network = network
        self.recorder = recorder
        self.verification: VerificationChannels | None = None

    def create(self) -> TransactionComponents:
        from barnabas.transactions.coordinator import TransactionCoordinator
        from barnabas.transactions.coordinator_checks import (
            abort_timed_out_periodically,
            expire_ids_periodically,
        )
        from barnabas.transactions.loading import TransactionLoader
        from barnabas.transactions.store import TransactionStore

        replicas = self.replicas
        config, clock = replicas.config, replicas.clock
        store = TransactionStore(config, replicas, replicas.metadata, clock)
        coordinator = TransactionCoordinator(
            config=config,
            store=store,
            clock=clock,
            network=self.network,
            recorder=self.recorder,
        )
        loader = TransactionLoader(store, coordinator)
        self.tasks.start("load-transactions", loader.run())
        self.tasks.start("abort-transactions", abort_timed_out_periodically(coordinator))
        self.tasks.start("expire-transactional-ids", expire_ids_periodically(coordinator))
        return TransactionComponents(coordinator, loader)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> asyncio.Future[Mapping[TopicPartition, ErrorCode]]:
        """Ask the coordinator, which may be another broker, whether the partitions are in the ongoing transaction."""
        if self.verification is None:
            self.verification = self.create_verification()
        return self.verification.verify(transactional_id, producer_id, producer_epoch, partitions)

    def create_verification(self) -> VerificationChannels:
        from barnabas.transactions.verification_channels import VerificationChannels

        replicas = self.replicas
        return VerificationChannels(
            broker_id=replicas.broker_id,
            network=self.network,
            metadata=replicas.metadata,
            listener=replicas.config.inter_broker_listener,
            timeout_s=replicas.config.request_timeout_ms / 1000,
            local=lambda: self.ensure_created().coordinator,
        )

    async def stop(self) -> None:
        if self.verification is not None:
            await self.verification.stop()
        await super().stop()
