"""A broker trusts its controller even if the broker's registry server lags behind the controller's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from random import Random

import pytest

from barnabas.broker.control_plane import ControlPlane
from barnabas.broker.topic_admin.topics import Topics
from barnabas.config import BrokerConfig, TopicConfig
from barnabas.errors import ErrorCode, NoNode
from barnabas.metadata import registration, znodes
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import Broker, BrokerEpoch, BrokerId, Endpoint
from barnabas.world.clock import SystemClock
from barnabas.world.ports import Op, RegistrySession, Watch, ZnodeStat
from barnabas.world.registry.embedded import EmbeddedRegistry
from tests.lifecycle.trap import Trap, TrappedSession

SESSION_TIMEOUT_MS = 10_000
OURS = BrokerId(1)


class LaggingRegistry:
    def __init__(self, registry: EmbeddedRegistry) -> None:
        self.registry = registry

    async def connect(self, session_timeout_ms: int) -> RegistrySession:
        return LaggingSession(await self.registry.connect(session_timeout_ms), Trap())


class LaggingSession(TrappedSession):
    """Connected to a server that gets no updates from the others until it sends a transaction to them."""

    def __init__(self, session: RegistrySession, trap: Trap) -> None:
        super().__init__(session, trap)
        self.seen: dict[str, tuple[bytes, ZnodeStat]] = {}
        self.stats: dict[str, ZnodeStat | None] = {}
        self.missing: set[str] = set()

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]:
        if path in self.missing:
            raise NoNode(path)
        if path not in self.seen:
            try:
                self.seen[path] = await super().get(path, watch)
            except NoNode:
                self.missing.add(path)
                raise
        return self.seen[path]

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        if path not in self.stats:
            self.stats[path] = await super().exists(path, watch)
        return self.stats[path]

    async def multi(self, ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        try:
            return await super().multi(ops)
        finally:
            self.seen.clear()
            self.stats.clear()
            self.missing.clear()


@pytest.fixture
async def registry() -> AsyncIterator[EmbeddedRegistry]:
    opened = EmbeddedRegistry(None, SystemClock())
    yield opened
    await opened.close()


@pytest.fixture
async def lagging(registry: EmbeddedRegistry) -> AsyncIterator[RegistryClient]:
    client = RegistryClient(LaggingRegistry(registry), SESSION_TIMEOUT_MS)
    await client.open()
    await registration.create_persistent_paths(client)
    yield client
    await client.close()


async def become_controller(session: RegistrySession, broker: int, epoch: int) -> None:
    await session.create(znodes.CONTROLLER, znodes.encode_controller(broker, timestamp_ms=0))
    data = znodes.encode_controller_epoch(epoch)
    if await session.exists(znodes.CONTROLLER_EPOCH) is None:
        await session.create(znodes.CONTROLLER_EPOCH, data)
    else:
        await session.set(znodes.CONTROLLER_EPOCH, data)


async def test_newer_controller_is_recognised(
    registry: EmbeddedRegistry, lagging: RegistryClient
) -> None:
    ahead = await registry.connect(SESSION_TIMEOUT_MS)
    await become_controller(ahead, broker=2, epoch=1)
    control = ControlPlane(OURS, lagging)
    assert await control.recognises("UpdateMetadata", 2, 1)
    assert control.controller_error("UpdateMetadata", 2, 1) is ErrorCode.NONE
    await lagging.get(znodes.CONTROLLER_EPOCH)
    await lagging.get(znodes.CONTROLLER)
    await ahead.delete(znodes.CONTROLLER)
    await become_controller(ahead, broker=3, epoch=2)
    assert await control.recognises("UpdateMetadata", 3, 2)


async def test_unknown_controller_epoch_is_not_recognised(
    registry: EmbeddedRegistry, lagging: RegistryClient
) -> None:
    await become_controller(await registry.connect(SESSION_TIMEOUT_MS), broker=2, epoch=1)
    control = ControlPlane(OURS, lagging)
    assert not await control.recognises("UpdateMetadata", 2, 7)
    assert not await control.recognises("UpdateMetadata", 3, 1)


async def test_registration_known_first_to_controller_is_accepted(
    registry: EmbeddedRegistry, lagging: RegistryClient
) -> None:
    control = ControlPlane(OURS, lagging)
    control.broker_epoch = BrokerEpoch(1)
    assert await lagging.exists(znodes.broker_path(OURS)) is None
    endpoint = Endpoint(listener="PLAINTEXT", host="localhost", port=9092)
    epoch = await registration.register(
        await registry.connect(SESSION_TIMEOUT_MS), Broker(id=OURS, endpoints=(endpoint,)), 0
    )
    assert await control.broker_error("LeaderAndIsr", 2, epoch) is ErrorCode.NONE
    later = await control.broker_error("LeaderAndIsr", 2, epoch + 1)
    assert later is ErrorCode.STALE_BROKER_EPOCH


async def test_configs_of_newly_created_topic_are_found(
    registry: EmbeddedRegistry, lagging: RegistryClient
) -> None:
    topics = Topics(lagging, MetadataCache("cluster"), BrokerConfig(), Random(1))
    await topics.refresh(["orders"])
    assert topics.config_of("orders").retention_ms == TopicConfig().retention_ms
    ahead = await registry.connect(SESSION_TIMEOUT_MS)
    settings = znodes.encode_config({"retention.ms": "1234"})
    await ahead.create(znodes.topic_config_path("orders"), settings)
    with pytest.raises(NoNode):
        await lagging.get(znodes.topic_config_path("orders"))
    await topics.refresh(["orders"])
    assert topics.config_of("orders").retention_ms == 1234
