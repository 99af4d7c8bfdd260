"""Power failures: a broker on a disk that loses all data that was not fsynced.

As in Kafka, the flush settings define the meaning of an acknowledgement. With log.flush.interval.messages=1 it means
"on the disk": no crash at any moment may lose an acknowledged record. With the default it means "in the page cache",
and closed segments are on the disk soon after.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from barnabas.broker.broker import BrokerServer
from barnabas.config.load import load_broker_config
from barnabas.metadata import znodes
from barnabas.model import TopicPartition
from barnabas.wire.codec import decode
from barnabas.wire.headers import decode_response_header
from barnabas.wire.messages.produce import ProduceResponse
from barnabas.world.clock import SystemClock
from barnabas.world.network import SocketNetwork
from barnabas.world.ports import World
from barnabas.world.registry.embedded import EmbeddedRegistry
from simulator.disk import ForgetfulDisk
from support.seed import choose_seed
from tests.faults.raw_client import PRODUCE_VERSION, RawClient, produce_frame

TOPIC = "orders"
PARTITIONS = 3
PRODUCERS = 6
LIVES = 25
Acknowledged = dict[tuple[int, int], bytes]  # (partition, offset) → value


class Machine:
    """A broker, its disk, and a registry that survives."""

    def __init__(self, **settings: str) -> None:
        self.clock = SystemClock()
        self.registry = EmbeddedRegistry(None, self.clock)
        self.disk = ForgetfulDisk(now_ms=self.clock.now_ms)
        self.settings = {key.replace("_", "."): value for key, value in settings.items()}
        self.broker: BrokerServer

    async def start(self) -> None:
        config, _ = load_broker_config(
            {
                "broker.id": "1",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": "/data",
                **self.settings,
            }
        )
        world = World(
            clock=self.clock,
            network=SocketNetwork(),
            disk=self.disk,
            registry=self.registry,
            random=Random(),
        )
        self.broker = BrokerServer(config, world)
        await self.broker.start()

    async def lose_power(self, random: Random | None) -> None:
        """Restart on the current disk state; later writes of the old broker are lost."""
        after = self.disk.crash(random)
        await self.broker.stop(clean=False)
        self.disk = after
        await self.start()

    @property
    def address(self) -> tuple[str, int]:
        endpoint = self.broker.endpoints[0]
        return endpoint.host, endpoint.port

    def recovery_point(self, partition: int) -> int:
        assert self.broker.logs is not None
        log = self.broker.logs.get(TopicPartition(TOPIC, partition))
        assert log is not None
        return log.recovery_point

    async def wait_until_deleted(self) -> None:
        """Wait until the controller removes the deletion marker, its last step. Clients are answered long before."""
        async with asyncio.timeout(20):
            while self.registry.tree.find(znodes.delete_topic_path(TOPIC)) is not None:
                await asyncio.sleep(0.005)

    async def values(self) -> Acknowledged:
        return await asyncio.to_thread(read_all, self.address)


@asynccontextmanager
async def machine(**settings: str) -> AsyncIterator[Machine]:
    built = Machine(**settings)
    await built.start()
    try:
        await asyncio.to_thread(create_topic, built.address)
        yield built
    finally:
        await built.broker.stop()
        await built.registry.close()


def create_topic(address: tuple[str, int]) -> None:
    with RawClient(address) as client:
        assert client.create_topic(TOPIC, PARTITIONS) == 0


def read_all(address: tuple[str, int]) -> Acknowledged:
    with RawClient(address) as client:
        return {
            (partition, record.offset): record.value or b""
            for partition in range(PARTITIONS)
            for record in client.read_all(TOPIC, partition, max_bytes=8000)
        }


async def produce_on(
    address: tuple[str, int], name: str, acks: int, acknowledged: Acknowledged
) -> None:
    """Produce one batch after the other until the broker is gone."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        for number in range(1_000_000):
            partition = number % PARTITIONS
            values = [b"%s %d %d" % (name.encode(), number, at) for at in range(3)]
            writer.write(produce_frame(TOPIC, partition, values, acks))
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            data = memoryview(await reader.readexactly(size))
            _, at = decode_response_header(0, PRODUCE_VERSION, data)
            answer = decode(ProduceResponse, PRODUCE_VERSION, data, at)
            (answered,) = answer.responses[0].partition_responses
            assert answered.error_code == 0, answered
            for at, value in enumerate(values):
                acknowledged[partition, answered.base_offset + at] = value
    except (ConnectionError, asyncio.IncompleteReadError):
        return
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize("tears", [False, True], ids=["all unsynced bytes gone", "torn writes"])
async def test_flush_per_message_survives_power_loss(
    tears: bool,
) -> None:
    random = Random(choose_seed())
    kept: Acknowledged = {}
    life = segments = 0
    async with machine(log_flush_interval_messages="1", log_segment_bytes="4000") as stand:
        # A slow machine needs more restarts to write as much.
        while life < LIVES or len(kept) <= 500 or segments <= 10:
            life += 1
            stand.disk.sync_seconds = random.choice((0.0, 0.0005, 0.005))
            acknowledged: Acknowledged = {}
            producers = [
                asyncio.create_task(
                    produce_on(stand.address, f"{life}-{n}", random.choice((-1, 1)), acknowledged)
                )
                for n in range(PRODUCERS)
            ]
            await asyncio.sleep(random.uniform(0.01, 0.12))
            kept |= acknowledged  # later acknowledgements come from a broker that lost its power already
            await stand.lose_power(random if tears else None)
            await asyncio.gather(*producers)
            found = await stand.values()
            missing = {at: value for at, value in kept.items() if found.get(at) != value}
            assert not missing, (
                f"life {life}: {len(missing)} lost or altered: {sorted(missing)[:5]}"
            )
            kept = found  # records that a consumer has read must stay as well
            names = stand.disk.list(f"/data/{TOPIC}-0")
            segments = sum(name.endswith(".log") for name in names)
    print(f"lives={life} records={len(kept)} segments={segments}")


async def test_default_flush_loses_at_most_last_segment() -> None:
    async with machine(log_segment_bytes="4000") as stand:
        acknowledged: Acknowledged = {}
        producer = asyncio.create_task(produce_on(stand.address, "p", -1, acknowledged))
        async with asyncio.timeout(20):
            while min(map(stand.recovery_point, range(PARTITIONS))) == 0:
                await asyncio.sleep(0.01)
            durable = [stand.recovery_point(partition) for partition in range(PARTITIONS)]
            while len(acknowledged) < sum(durable) + 30:
                await asyncio.sleep(0.01)
        acknowledged_before = dict(acknowledged)
        await stand.lose_power(None)
        await producer
        found = await stand.values()
    for at, value in acknowledged_before.items():
        partition, offset = at
        if offset < durable[partition]:
            assert found[at] == value
    assert len(found) < len(acknowledged_before), (
        "the disk lost nothing: the tests above prove nothing"
    )


async def test_records_read_by_consumer_survive_power_loss() -> None:
    """With a flush for every message, no consumer sees a record before it is on the disk."""
    random = Random(choose_seed())
    async with machine(log_flush_interval_messages="1") as stand:
        stand.disk.sync_seconds = 0.01
        for life in range(5):
            acknowledged: Acknowledged = {}
            producers = [
                asyncio.create_task(produce_on(stand.address, f"{life}-{n}", 1, acknowledged))
                for n in range(PRODUCERS)
            ]
            await asyncio.sleep(random.uniform(0.02, 0.1))
            seen = await stand.values()
            await stand.lose_power(None)
            await asyncio.gather(*producers)
            found = await stand.values()
            assert seen.items() <= found.items()


async def test_deleted_topic_does_not_return_after_power_loss() -> None:
    async with machine(log_flush_interval_messages="1") as stand:
        for life in range(3):
            await asyncio.to_thread(produce_and_delete, stand.address)
            await stand.wait_until_deleted()
            if life == 1:  # here the topic is recreated before the crash, otherwise after it
                await asyncio.to_thread(create_topic, stand.address)
            await stand.lose_power(None)
            names = stand.disk.list("/data")
            assert sum(name.endswith("-stray") for name in names) == PARTITIONS * (life + 1)
            if life != 1:
                await asyncio.to_thread(create_topic, stand.address)
            assert await stand.values() == {}


def produce_and_delete(address: tuple[str, int]) -> None:
    with RawClient(address) as client:
        for partition in range(PARTITIONS):
            assert client.produce(TOPIC, partition, b"of the old topic").base_offset == 0
        assert client.delete_topic(TOPIC) == 0


async def test_interrupted_deletion_completes_after_power_loss() -> None:
    """The crash comes at any step of the deletion. The next topic of that name starts empty."""
    async with machine(log_flush_interval_messages="1") as stand:
        for _ in range(5):
            await asyncio.to_thread(produce_and_delete, stand.address)
            await stand.lose_power(None)
            await stand.wait_until_deleted()
            await asyncio.to_thread(create_topic, stand.address)
            assert await stand.values() == {}
