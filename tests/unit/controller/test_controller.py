"""Controller with a real registry and real sockets: elections, failures and retries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest

from barnabas.config import BrokerConfig
from barnabas.controller import controller as controller_module
from barnabas.controller import execution as execution_module
from barnabas.controller.controller import Controller
from barnabas.controller.events import ControlledShutdownReceived
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.errors import ApiError, ErrorCode, NodeExists
from barnabas.history.recorder import EventLine
from barnabas.metadata import registration, znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import Broker, BrokerId, Endpoint, TopicPartition
from barnabas.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from barnabas.world.clock import SystemClock
from barnabas.world.network import SocketNetwork
from barnabas.world.registry.embedded import EmbeddedRegistry
from tests.unit.controller.cluster import replica, replica_assignment, state, topic_id

DEADLINE_S = 30
US = BrokerId(1)
CONFIG = BrokerConfig(controller_socket_timeout_ms=5000, auto_leader_rebalance_enable=False)


class MemoryJournal:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def append(self, events: Sequence[EventLine]) -> None:
        self.lines += [event.line for event in events]


def broker_at(number: int, port: int = 1) -> Broker:
    """Broker at a port without a listener, so that requests to it stay queued."""
    endpoint = Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=port)
    return Broker(id=BrokerId(number), endpoints=(endpoint,))


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await asyncio.sleep(0.002)


@asynccontextmanager
async def running_controller() -> AsyncIterator[
    tuple[Controller, RegistryClient, EmbeddedRegistry]
]:
    embedded = EmbeddedRegistry(None, SystemClock())
    registry = RegistryClient(embedded, 18_000)
    network = SocketNetwork()
    await registry.open()
    await registration.create_persistent_paths(registry)

    async def register() -> None:
        await registration.register(registry, broker_at(US), 1000)

    await register()
    controller = Controller(
        US,
        registry,
        network,
        SystemClock(),
        Random(3),
        config=CONFIG,
        history=MemoryJournal(),
        register=register,
    )
    try:
        yield controller, registry, embedded
    finally:
        await controller.stop()
        await registry.close()
        await embedded.close()
        network.close()


async def test_failed_failover_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "TAKE_OVER_PAUSE_SECONDS", (0, 0))
    async with running_controller() as (controller, registry, _):
        failures = iter([RuntimeError("first attempt")])
        delete_children = controller.store.delete_children

        async def fail_once(path: str, names: list[str]) -> None:
            for failure in failures:
                raise failure
            await delete_children(path, names)

        monkeypatch.setattr(controller.store, "delete_children", fail_once)
        controller.start()
        await eventually(lambda: controller.has_taken_over)
        assert controller.epoch == 2
        data, _ = await registry.get(znodes.CONTROLLER)
        assert znodes.decode_controller(data) == US


async def test_deposed_controller_is_elected_again() -> None:
    async with running_controller() as (controller, registry, _):
        controller.start()
        await eventually(lambda: controller.has_taken_over)
        await registry.delete(znodes.CONTROLLER)
        await eventually(lambda: controller.has_taken_over and controller.epoch == 2)


async def test_unsent_requests_end_the_controller_epoch() -> None:
    """Some broker may have missed a request. The next controller sends the full state to all brokers."""
    async with running_controller() as (controller, registry, _):
        controller.start()
        await eventually(lambda: controller.has_taken_over and controller.queue.is_idle)
        # As if a step had failed after it collected its requests.
        controller.batch.add_update_metadata((US,))
        topic = znodes.TopicAssignment(
            topic_id=topic_id("t"), partitions={0: replica_assignment(1)}
        )
        await registry.create(znodes.topic_path("t"), znodes.encode_topic(topic))
        await eventually(lambda: controller.has_taken_over and controller.epoch == 2)
        assert controller.context.leadership[TopicPartition("t", 0)].leader == US


async def test_topic_removed_by_hand_leaves_no_state() -> None:
    """Its name can be used again: the partition starts as a new one."""
    partition = TopicPartition("t", 0)
    async with running_controller() as (controller, registry, _):
        controller.start()
        await eventually(lambda: controller.has_taken_over)
        for number in (1, 2):
            topic = znodes.TopicAssignment(
                topic_id=topic_id(f"t{number}"), partitions={0: replica_assignment(1)}
            )
            await registry.create(znodes.topic_path("t"), znodes.encode_topic(topic))
            await eventually(
                lambda: controller.context.partition_state(partition) is PartitionState.ONLINE
            )
            assert controller.context.topic_ids["t"] == topic.topic_id
            for path in await controller.store.subtree(znodes.topic_path("t")):
                await registry.delete(path)
            await eventually(lambda: not controller.context.all_topics)
            assert controller.context.partition_state(partition) is PartitionState.NON_EXISTENT
            assert (
                controller.context.replica_state(replica(partition, 1)) is ReplicaState.NON_EXISTENT
            )


async def test_broker_restarted_elsewhere_gets_full_state() -> None:
    """Its znode has a new epoch, so it gets all state, not only a new connection."""
    async with running_controller() as (controller, registry, embedded):
        other = RegistryClient(embedded, 18_000)
        await other.open()
        await registration.register(other, broker_at(2, port=2), 1000)
        topic = znodes.TopicAssignment(
            topic_id=topic_id("t"), partitions={0: replica_assignment(2, 1)}
        )
        await registry.create(znodes.topic_path("t"), znodes.encode_topic(topic))
        controller.start()
        partition = TopicPartition("t", 0)
        await eventually(lambda: controller.has_taken_over)
        assert controller.context.leadership[partition].leader == 2
        before = controller.context.broker_epochs[BrokerId(2)]
        execution = controller.execution
        assert execution is not None
        await registry.delete(znodes.broker_path(2))
        await registration.register(other, broker_at(2, port=3), 2000)
        await controller.handle_broker_modified(execution, BrokerId(2), "test")
        epochs = controller.context.broker_epochs
        await eventually(lambda: epochs.get(BrokerId(2), 0) > before and controller.queue.is_idle)
        sender = controller.channels.senders[BrokerId(2)]
        assert sender.broker.endpoints[0].port == 3
        sent_requests = [type(sent.request).__name__ for sent in sender.requests]
        assert "LeaderAndIsrRequest" in sent_requests
        await other.close()


@pytest.mark.parametrize("returned", [1, 2], ids=["controller", "other broker"])
async def test_leader_restarted_without_controller_is_treated_as_failed_first(
    returned: int,
) -> None:
    """It may have lost the end of its log in a power failure, while other in-sync replicas kept
    running.
    """
    partition = TopicPartition("t", 0)
    stayed = 3 - returned
    async with running_controller() as (controller, registry, embedded):
        other = RegistryClient(embedded, 18_000)
        await other.open()
        await registration.register(other, broker_at(2, port=2), 1000)
        topic = znodes.TopicAssignment(
            topic_id=topic_id("t"), partitions={0: replica_assignment(returned, stayed)}
        )
        await registry.create(znodes.topic_path("t"), znodes.encode_topic(topic))
        parts = znodes.state_path(partition).split("/")
        for depth in range(5, len(parts)):
            await registry.create("/".join(parts[:depth]))
        written = znodes.encode_state(state(returned, [returned, stayed], epoch=4))
        await registry.create(znodes.state_path(partition), written)
        await registry.delete(znodes.broker_path(returned))
        session = registry if returned == US else other
        await registration.register(session, broker_at(returned, port=3), 2000)

        controller.start()
        await eventually(lambda: controller.has_taken_over and controller.queue.is_idle)
        known = controller.context.leadership[partition]
        assert (known.leader, known.isr) == (stayed, (stayed,))
        assert controller.context.broker_epochs.keys() == {1, 2}
        assert controller.context.replica_state(replica(partition, returned)) is ReplicaState.ONLINE
        assert controller.channels.senders.keys() == {1, 2}
        await other.close()


async def test_moved_broker_gets_its_queued_requests() -> None:
    async with running_controller() as (controller, registry, _):
        controller.start()
        await eventually(lambda: controller.has_taken_over)
        sender = controller.channels.senders[US]
        waiting = list(sender.requests)
        assert waiting
        data = znodes.encode_broker(broker_at(US, port=2), timestamp_ms=3000)
        await registry.set(znodes.broker_path(US), data)

        def has_moved() -> bool:
            found = controller.channels.senders.get(US)
            return found is not None and found.broker.endpoints[0].port == 2

        await eventually(has_moved)
        await eventually(lambda: controller.queue.is_idle)
        assert list(controller.channels.senders[US].requests)[: len(waiting)] == waiting


@pytest.mark.parametrize("other", [-1, 0, 1, 1 << 62])
async def test_controlled_shutdown_requires_current_broker_epoch(other: int) -> None:
    async with running_controller() as (controller, _, _):
        controller.start()
        await eventually(lambda: controller.has_taken_over)
        registered = controller.context.broker_epochs[US]
        # 0 and 1 stand for one below and one above the current epoch; the others were never
        # assigned.
        epoch = registered + 2 * other - 1 if other in (0, 1) else other
        assert await request_controlled_shutdown(controller, epoch) == ErrorCode.STALE_BROKER_EPOCH
        assert controller.context.is_live(US)
        assert await request_controlled_shutdown(controller, registered) == ErrorCode.NONE
        assert not controller.context.is_live(US)


async def request_controlled_shutdown(controller: Controller, epoch: int) -> int:
    answered: asyncio.Future[ControlledShutdownResponse | ApiError]
    answered = asyncio.get_running_loop().create_future()
    request = ControlledShutdownRequest(broker_id=US, broker_epoch=epoch)
    controller.queue.put(ControlledShutdownReceived(request, answered.set_result))
    async with asyncio.timeout(DEADLINE_S):
        answer = await answered
    assert isinstance(answer, ControlledShutdownResponse)
    return answer.error_code


async def test_large_step_yields_to_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Leaders are sent in several requests, the metadata in one."""
    monkeypatch.setattr(execution_module, "TRANSITIONS_PER_CHUNK", 10)
    async with running_controller() as (controller, registry, _):
        controller.start()
        await eventually(lambda: controller.has_taken_over)
        partitions = {index: replica_assignment(1) for index in range(35)}
        topic = znodes.TopicAssignment(topic_id=topic_id("t"), partitions=partitions)
        await registry.create(znodes.topic_path("t"), znodes.encode_topic(topic))
        online = controller.context.partitions_by_state[PartitionState.ONLINE]
        seen: set[int] = set()
        async with asyncio.timeout(DEADLINE_S):
            while len(online) < len(partitions):
                seen.add(len(online))
                await asyncio.sleep(0)
        assert {10, 20, 30} <= seen
        await eventually(lambda: controller.queue.is_idle)
        sender = controller.channels.senders[US]
        sent_requests = [
            (type(sent.request).__name__, len(sent.request.topic_states[0].partition_states))
            for sent in sender.requests
            if sent.request.topic_states
        ]
        leaders = ("LeaderAndIsrRequest", 10)
        rest = [("LeaderAndIsrRequest", 5), ("UpdateMetadataRequest", 35)]
        assert sent_requests == [leaders, leaders, leaders, *rest]


async def test_corrupt_topic_znode_does_not_block_others() -> None:
    async with running_controller() as (controller, registry, _):
        controller.start()
        await eventually(lambda: controller.has_taken_over)
        await registry.create(znodes.topic_path("bad"), b"{")
        topic = znodes.TopicAssignment(
            topic_id=topic_id("t"), partitions={0: replica_assignment(1)}
        )
        await registry.create(znodes.topic_path("t"), znodes.encode_topic(topic))
        await eventually(lambda: TopicPartition("t", 0) in controller.context.leadership)
        mended = znodes.TopicAssignment(
            topic_id=topic_id("bad"), partitions={0: replica_assignment(1)}
        )
        await registry.set(znodes.topic_path("bad"), znodes.encode_topic(mended))
        await eventually(lambda: TopicPartition("bad", 0) in controller.context.leadership)
        with pytest.raises(NodeExists):
            await registry.create(znodes.state_path(TopicPartition("bad", 0)))
