"""Brokers connected by real sockets, without a registry. The test acts as the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

from msgspec.structs import replace

from barnabas.batch.header import BatchHeader
from barnabas.broker.client_quotas import ClientQuotas
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.control_plane import ControlPlane
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.handlers.leader_and_isr import handle as handle_leader_and_isr
from barnabas.broker.handlers.stop_replica import handle as handle_stop_replica
from barnabas.broker.handlers.update_metadata import handle as handle_update_metadata
from barnabas.broker.lazy_groups import LazyGroups
from barnabas.broker.lazy_transactions import LazyTransactions
from barnabas.broker.listener import Listeners
from barnabas.broker.memory_budget import MemoryBudget
from barnabas.broker.request_metrics import RequestMetrics
from barnabas.broker.router import Router
from barnabas.broker.security.broker_security import BrokerSecurity
from barnabas.config import BrokerConfig, TopicConfig
from barnabas.config.current import CurrentConfig
from barnabas.controller.events import AlterPartitionReceived
from barnabas.metadata.cache import MetadataCache
from barnabas.model import BrokerId
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager, loop_ms
from barnabas.storage.log import AppendInfo
from barnabas.wire.apis import ApiKey
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.alter_partition import (
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResponse,
)
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from barnabas.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from barnabas.world.disk import RealDisk
from barnabas.world.network import SocketNetwork
from barnabas.world.ports import World
from tests.unit.storage.builders import batch, open_log_manager

NOW_MS = 1_700_000_000_000
TOPIC = "orders"
NO_CONNECTION = cast(Connection, None)


def create_connection() -> Connection:
    """Return a connection without a socket. A compiled handler accepts no other class."""
    return Connection(
        cast(Any, SimpleNamespace(peer=("127.0.0.1", 5000))),
        listener_name="PLAINTEXT",
        serve=lambda frame, connection: None,
        on_closed=lambda connection: None,
        memory=MemoryBudget(1 << 20),
        frame_bytes_max=1 << 20,
        metrics=RequestMetrics(),
    )


class FixedClock:
    def now_ms(self) -> int:
        return NOW_MS


class FakeController:
    """Controller that accepts every AlterPartition request, unless a test sets another `answer`."""

    def __init__(self) -> None:
        self.is_active = True
        self.queue = self
        self.requests: list[AlterPartitionRequest] = []
        self.answer: Callable[[AlterPartitionRequest], AlterPartitionResponse] = accept_changes

    def put(self, event: AlterPartitionReceived) -> None:
        self.requests.append(event.request)
        event.answer(self.answer(event.request))


def accept_changes(request: AlterPartitionRequest) -> AlterPartitionResponse:
    return AlterPartitionResponse(
        topics=tuple(
            AlterPartitionTopicResponse(
                topic_id=topic.topic_id,
                partitions=tuple(
                    AlterPartitionPartitionResponse(
                        partition_index=change.partition_index,
                        leader_id=request.broker_id,
                        leader_epoch=change.leader_epoch,
                        isr=tuple(each.broker_id for each in change.new_isr_with_epochs),
                        partition_epoch=change.partition_epoch + 1,
                    )
                    for change in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


class FakeTopics:
    """Topic settings without a registry."""

    def __init__(self) -> None:
        self.config = TopicConfig()
        self.learnt: list[str] = []

    async def refresh(self, names: list[str]) -> None:
        self.learnt += names

    def forget(self, names: set[str]) -> None:
        pass

    def config_of(self, name: str) -> TopicConfig:
        return self.config


class Node:
    """One broker: logs, replicas and sockets."""

    def __init__(self, broker: int, **settings: Any) -> None:
        self.id = BrokerId(broker)
        self.config = replace(
            BrokerConfig(), broker_id=broker, **{"replica_fetch_backoff_ms": 50, **settings}
        )
        # A real disk: large reads go from its files to the sockets without passing through Python.
        self.disk = RealDisk()
        self.temporary = TemporaryDirectory()
        self.directory = self.temporary.name
        self.directories: list[str] = []
        """Log directories, if there are several."""
        self.network = SocketNetwork()
        self.control = ControlPlane()
        self.metadata = MetadataCache("cluster")
        self.topics = FakeTopics()
        self.controller = FakeController()
        self.port = 0

    async def start(self) -> None:
        self.logs = open_log_manager(
            self.disk,
            self.directories or [self.directory],
            broker_id=self.id,
            cluster_id="cluster",
            config_of=self.topics.config_of,
            random=Random(self.id),
            now_ms=NOW_MS,
        )
        self.replicas = ReplicaManager(
            self.id,
            self.logs,
            self.disk,
            FixedClock(),
            network=self.network,
            metadata=self.metadata,
            registration=self.control,
            config=self.config,
        )
        self.context = BrokerContext(
            current_config=CurrentConfig(self.config),
            clock=FixedClock(),
            network=self.network,
            registry=cast(Any, None),
            control=self.control,
            controller=cast(Any, self.controller),
            metadata=self.metadata,
            replicas=self.replicas,
            sessions=FetchSessions(100, Random(self.id)),
            producer_ids=cast(Any, None),
            topics=cast(Any, self.topics),
            mutation_quotas=cast(Any, None),
            client_quotas=ClientQuotas(self.config, loop_ms),
            features=cast(Any, None),
            lazy_groups=LazyGroups(self.replicas, Random(self.id)),
            lazy_transactions=LazyTransactions(self.replicas, self.network),
            metrics=RequestMetrics(),
            security=self.build_security(),
        )
        self.router = Router(self.context)
        self.listeners = Listeners(
            self.network, self.config, self.router.serve, self.context.metrics
        )
        _, self.port = await self.listeners.listen("PLAINTEXT", "127.0.0.1", 0)
        self.listeners.open_to_clients()
        self.replicas.start()

    def build_security(self) -> BrokerSecurity:
        world = World(
            clock=FixedClock(),
            network=self.network,
            disk=self.disk,
            registry=cast(Any, None),
            random=Random(self.id),
        )
        return BrokerSecurity(CurrentConfig(self.config), world, cast(Any, None))

    async def stop(self, *, clean: bool = False) -> None:
        await self.listeners.close()
        await self.replicas.stop()
        if clean:
            self.logs.shutdown()
        else:
            self.logs.release()

    # ---- requests of the controller

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        header = RequestHeader(ApiKey.LEADER_AND_ISR, 7, 0, None)
        return await handle_leader_and_isr(self.context, request, header, NO_CONNECTION)

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        header = RequestHeader(ApiKey.UPDATE_METADATA, 8, 0, None)
        return await handle_update_metadata(self.context, request, header, NO_CONNECTION)

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        header = RequestHeader(ApiKey.STOP_REPLICA, 4, 0, None)
        return await handle_stop_replica(self.context, request, header, NO_CONNECTION)

    # ---- access for tests

    def partition(self, index: int = 0, topic: str = TOPIC) -> Partition:
        return self.replicas.partitions[topic, index]

    def append(self, *values: bytes, index: int = 0, acks: int = 1) -> AppendInfo:
        data = batch(values)
        return self.partition(index).append(data, BatchHeader(data), acks=acks, now_ms=NOW_MS)


class Nodes:
    """Several brokers, and the requests the test sends them as their controller."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.topic_id = uuid4()
        self.controller_epoch = 1

    def __getitem__(self, broker: int) -> Node:
        return self.nodes[BrokerId(broker)]

    async def start(self) -> None:
        for node in self.nodes.values():
            await node.start()
        await self.send_metadata()

    async def stop(self) -> None:
        for node in self.nodes.values():
            await node.stop()
            node.disk.close()
            node.temporary.cleanup()

    async def send_metadata(self, *alive: int, partitions: int = 0) -> None:
        """Send UpdateMetadata to the `alive` brokers, or to all: live brokers and existing
        partitions.
        """
        live = tuple(
            UpdateMetadataBroker(
                id=node.id,
                endpoints=(UpdateMetadataEndpoint(node.port, "127.0.0.1", "PLAINTEXT"),),
            )
            for node in self.nodes.values()
            if not alive or node.id in alive
        )
        states = tuple(
            UpdateMetadataPartitionState(
                partition_index=index, leader=1, replicas=tuple(self.nodes)
            )
            for index in range(partitions)
        )
        topics = (UpdateMetadataTopicState(TOPIC, self.topic_id, states),) if states else ()
        for node in self.nodes.values():
            if not alive or node.id in alive:
                await node.update_metadata(
                    UpdateMetadataRequest(
                        controller_id=1,
                        controller_epoch=self.controller_epoch,
                        topic_states=topics,
                        live_brokers=live,
                    )
                )

    async def lead(
        self,
        leader: int,
        *,
        epoch: int = 0,
        isr: tuple[int, ...] | None = None,
        to: tuple[int, ...] | None = None,
        partitions: int = 1,
        version: int | None = None,
    ) -> None:
        """Send LeaderAndIsr. All brokers are replicas."""
        replicas = tuple(self.nodes)
        for broker in to or replicas:
            request = leader_and_isr(
                *(
                    LeaderAndIsrPartitionState(
                        partition_index=index,
                        leader=leader,
                        leader_epoch=epoch,
                        isr=replicas if isr is None else isr,
                        partition_epoch=epoch if version is None else version,
                        replicas=replicas,
                        is_new=epoch == 0,
                    )
                    for index in range(partitions)
                ),
                topic_id=self.topic_id,
            )
            response = await self[broker].leader_and_isr(request)
            assert all(not each.error_code for t in response.topics for each in t.partition_errors)


def leader_and_isr(
    *states: LeaderAndIsrPartitionState, topic_id: UUID, controller_epoch: int = 1
) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=controller_epoch,
        topic_states=(LeaderAndIsrTopicState(TOPIC, topic_id, states),),
    )


async def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until the condition holds. It is checked every millisecond."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)
