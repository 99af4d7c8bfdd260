"""Registry sessions that expire while a broker starts: the broker retries and registers."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from barnabas.broker import broker as starting
from barnabas.broker.broker import BrokerServer
from barnabas.config.load import load_broker_config
from barnabas.errors import DirectoryLocked, RegistrySessionExpired
from barnabas.metadata import znodes
from barnabas.model import BrokerId
from barnabas.world.clock import SystemClock
from barnabas.world.network import SocketNetwork
from barnabas.world.ports import World
from barnabas.world.registry.embedded import EmbeddedRegistry
from simulator.disk import ForgetfulDisk
from tests.lifecycle.trap import CrashPoint, Kind, Trap, TrappedRegistry, When

CONFIG, _ = load_broker_config(
    {"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "/data"}
)
BROKER_ZNODE = znodes.broker_path(BrokerId(1))


class BrokerStand:
    """Registry and disk that outlive the brokers started on them."""

    def __init__(self) -> None:
        self.trap = Trap()
        self.registry = EmbeddedRegistry(None, SystemClock())
        self.disk = ForgetfulDisk()
        self.ended = 0

    def broker(self) -> BrokerServer:
        return BrokerServer(
            CONFIG,
            World(
                clock=SystemClock(),
                network=SocketNetwork(),
                disk=self.disk,
                registry=TrappedRegistry(self.registry, self.trap),
                random=Random(),
            ),
        )

    def expire_sessions(self) -> bool:
        for session in list(self.registry.sessions.values()):
            self.registry.end_session(session)
            self.ended += 1
        return False

    async def writes_of_start(self) -> list[str]:
        """Return the registry writes of a start once all persistent znodes exist."""
        written: list[str] = []
        for _ in range(2):
            self.trap.set(None, self.expire_sessions)
            broker = self.broker()
            await broker.start()
            written = [label for _, label in self.trap.labels]
            await broker.stop()
        return written


async def test_session_expiry_at_any_write_costs_one_retry() -> None:
    stand = BrokerStand()
    try:
        labels = await stand.writes_of_start()
        begin = len(znodes.PERSISTENT_PATHS)
        assert any(BROKER_ZNODE in label for label in labels[begin:])
        for number in range(begin, len(labels) + 1):
            for when in When:
                stand.trap.set(CrashPoint(when, Kind.WRITE, number), stand.expire_sessions)
                broker = stand.broker()
                async with asyncio.timeout(30):
                    await broker.start()
                    # It may be registering again.
                    while stand.registry.tree.find(BROKER_ZNODE) is None:
                        await asyncio.sleep(0.001)
                assert broker.registry is not None
                await broker.stop()
        assert stand.ended == 2 * (len(labels) + 1 - begin)
    finally:
        await stand.registry.close()


async def test_start_fails_if_every_session_expires() -> None:
    stand = BrokerStand()
    attempts = 0

    class ExpiringDisk(ForgetfulDisk):
        def lock(self, path: str):  # type: ignore[no-untyped-def]
            nonlocal attempts
            attempts += 1
            stand.expire_sessions()
            return super().lock(path)

    stand.disk = ExpiringDisk()
    try:
        with pytest.raises(RegistrySessionExpired):
            await stand.broker().start()
        assert attempts == starting.START_ATTEMPTS
    finally:
        await stand.registry.close()


async def test_second_broker_on_locked_directory_fails_at_once() -> None:
    """The lock is checked before waiting for the znode of the other broker, which has the same id."""
    stand = BrokerStand()
    first, second = stand.broker(), stand.broker()
    try:
        await first.start()
        async with asyncio.timeout(first.registration_timeout_s / 2):
            with pytest.raises(DirectoryLocked, match="another broker is using"):
                await second.start()
        assert stand.disk.locks, "the first broker keeps the lock"
        await first.stop()
        await second.start()
        await second.stop()
    finally:
        await stand.registry.close()
