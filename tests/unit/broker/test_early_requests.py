"""Requests that arrive while a broker is starting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from barnabas.broker.broker import BrokerServer
from barnabas.broker.connection import BUSY_BUFFER_BYTES
from barnabas.config.load import load_broker_config
from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.wire.apis import APIS
from barnabas.wire.codec import Message
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.produce import ProduceResponse
from barnabas.world.clock import SystemClock
from barnabas.world.network import SocketNetwork
from barnabas.world.ports import World
from barnabas.world.registry.embedded import EmbeddedRegistry
from simulator.disk import ForgetfulDisk
from tests.compatibility.raw import Raw, batch_of, produce_request
from tests.raw_connection import frame

ABSENT_BROKER = 9
TOPIC = "orders"
DEADLINE_S = 20.0


class StartingBroker:
    """Broker that waits for its first request from the controller: `/controller` names a broker
    that does not run.
    """

    def __init__(self, **settings: str) -> None:
        properties = {
            "broker.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": "/data",
            "offsets.topic.replication.factor": "1",
            "barnabas.history.topic.enable": "false",
        }
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.config, _ = load_broker_config(properties | named)
        self.registry = EmbeddedRegistry(None, SystemClock())
        self.disk = ForgetfulDisk()
        self.broker = self.new_broker()

    def new_broker(self) -> BrokerServer:
        return BrokerServer(
            self.config,
            World(
                clock=SystemClock(),
                network=SocketNetwork(),
                disk=self.disk,
                registry=self.registry,
                random=Random(),
            ),
        )

    @property
    def address(self) -> str:
        (endpoint,) = self.broker.endpoints
        return f"{endpoint.host}:{endpoint.port}"

    async def create_topic(self) -> None:
        first = self.broker
        await first.start()
        with Raw(self.address) as raw:
            await asyncio.to_thread(raw.create_topic, TOPIC)
        await first.stop()
        self.broker = self.new_broker()

    @asynccontextmanager
    async def starting(self) -> AsyncIterator[asyncio.Event]:
        """Start the broker. It finishes its start when the event is set."""
        session = await self.registry.connect(10_000)
        controller = znodes.encode_controller(ABSENT_BROKER, timestamp_ms=0)
        await session.create(znodes.CONTROLLER, controller)
        proceed = asyncio.Event()

        async def delete_controller_znode() -> None:
            await proceed.wait()
            await session.delete(znodes.CONTROLLER)

        released = asyncio.create_task(delete_controller_znode())
        start = asyncio.create_task(self.broker.start())
        try:
            async with asyncio.timeout(DEADLINE_S):
                while self.registry.tree.find(znodes.broker_path(self.broker.broker_id)) is None:
                    await asyncio.sleep(0.001)
                yield proceed
                proceed.set()
                await released
                await start
        finally:
            released.cancel()
            start.cancel()
            await asyncio.gather(start, released, return_exceptions=True)
            await self.broker.stop()
            await self.registry.close()

    async def wait_for_pending(self, frames: int) -> None:
        """Wait until `frames` connections have a pending request."""
        async with asyncio.timeout(DEADLINE_S):
            while self.pending_connections() < frames:
                await asyncio.sleep(0.001)

    def pending_connections(self) -> int:
        assert self.broker.listeners is not None
        return sum(each.in_progress is not None for each in self.broker.listeners.connections)


def newest(message: type[Message]) -> int:
    return APIS[message.API_KEY].versions[-1]


def metadata_frame(correlation_id: int) -> bytes:
    request = MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),))
    return frame(request, newest(MetadataRequest), correlation_id)


@pytest.mark.parametrize("value_bytes", [10, 2 * BUSY_BUFFER_BYTES])
async def test_early_produce_is_appended_after_start(
    value_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    setup = StartingBroker()
    await setup.create_topic()
    values = [bytes([65 + number]) * value_bytes for number in range(3)]
    async with setup.starting() as proceed:
        with Raw(setup.address) as raw:
            version = newest(ProduceResponse)
            request = produce_request(TOPIC, batch_of(values[0]))
            await asyncio.to_thread(raw.send, frame(request, version, 1))
            await setup.wait_for_pending(1)
            proceed.set()
            answer = await asyncio.to_thread(raw.answer, ProduceResponse, version, 1)
            (partition,) = answer.responses[0].partition_responses
            assert (partition.error_code, partition.base_offset) == (ErrorCode.NONE, 0)
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


async def test_early_pipelined_requests_are_answered_in_order() -> None:
    setup = StartingBroker()
    await setup.create_topic()
    version = newest(ProduceResponse)
    produced = [frame(produce_request(TOPIC, batch_of(b"%d" % n)), version, n) for n in (1, 2, 4)]
    # The last frame arrives in two parts, the second after the start.
    data = b"".join([*produced[:2], metadata_frame(3), produced[2]])
    async with setup.starting() as proceed:
        with Raw(setup.address) as raw:
            await asyncio.to_thread(raw.send, data[:-7])
            await setup.wait_for_pending(1)
            proceed.set()
            for number, offset in ((1, 0), (2, 1)):
                answer = await asyncio.to_thread(raw.answer, ProduceResponse, version, number)
                (partition,) = answer.responses[0].partition_responses
                assert (partition.error_code, partition.base_offset) == (ErrorCode.NONE, offset)
            metadata = await asyncio.to_thread(
                raw.answer, MetadataResponse, newest(MetadataResponse), 3
            )
            assert metadata.topics[0].partitions[0].leader_id == 1
            await asyncio.to_thread(raw.send, data[-7:])
            answer = await asyncio.to_thread(raw.answer, ProduceResponse, version, 4)
            (partition,) = answer.responses[0].partition_responses
            assert (partition.error_code, partition.base_offset) == (ErrorCode.NONE, 2)
            found = await asyncio.to_thread(raw.fetch, TOPIC, 0)
            assert found.high_watermark == 3


async def test_early_requests_leave_half_of_request_memory_free() -> None:
    limit = 6 * BUSY_BUFFER_BYTES
    setup = StartingBroker(queued_max_request_bytes=str(limit), socket_request_max_bytes=str(limit))
    await setup.create_topic()
    version = newest(ProduceResponse)
    request = frame(produce_request(TOPIC, batch_of(bytes(2 * BUSY_BUFFER_BYTES))), version, 1)
    async with setup.starting() as proceed:
        listeners = setup.broker.listeners
        assert listeners is not None
        with Raw(setup.address) as first, Raw(setup.address) as second:
            await asyncio.to_thread(first.send, request)
            await setup.wait_for_pending(1)
            await asyncio.to_thread(second.send, request)
            assert await asyncio.to_thread(second.is_hung_up), (
                "two requests would hold more than half of the memory"
            )
            assert listeners.memory.used_bytes <= limit // 2
            proceed.set()
            answer = await asyncio.to_thread(first.answer, ProduceResponse, version, 1)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
