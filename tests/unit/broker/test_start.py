"""A broker whose registry session ends while it starts, at whichever write: it begins anew, and is registered."""

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
ENTRY = znodes.broker_path(BrokerId(1))


class Stand:
    """What a broker stands on, for one life after the other."""

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

    def end_session(self) -> bool:
        for session in list(self.registry.sessions.values()):
            self.registry.expire(session)
            self.ended += 1
        return False

    async def writes(self) -> list[str]:
        """What a start writes, once all that stays is there."""
        written: list[str] = []
        for _ in range(2):
            self.trap.set(None, self.end_session)
            broker = self.broker()
            await broker.start()
            written = [label for _, label in self.trap.labels]
            await broker.stop()
        return written


async def test_a_session_that_ends_at_any_write_of_a_start_costs_a_second_attempt() -> None:
    stand = Stand()
    try:
        labels = await stand.writes()
        begin = len(znodes.PERSISTENT_PATHS)
        assert any(ENTRY in label for label in labels[begin:])
        for number in range(begin, len(labels) + 1):
            for when in When:
                stand.trap.set(CrashPoint(when, Kind.WRITE, number), stand.end_session)
                broker = stand.broker()
                async with asyncio.timeout(30):
                    await broker.start()
                    while stand.registry.tree.find(ENTRY) is None:  # it may be registering again
                        await asyncio.sleep(0.001)
                assert broker.registry is not None
                await broker.stop()
        assert stand.ended == 2 * (len(labels) + 1 - begin)
    finally:
        await stand.registry.close()


async def test_where_no_session_lasts_long_enough_the_start_fails() -> None:
    stand = Stand()
    attempts = 0

    class Hopeless(ForgetfulDisk):
        def lock(self, path: str):  # type: ignore[no-untyped-def]
            nonlocal attempts
            attempts += 1
            stand.end_session()
            return super().lock(path)

    stand.disk = Hopeless()
    try:
        with pytest.raises(RegistrySessionExpired):
            await stand.broker().start()
        assert attempts == starting.START_ATTEMPTS
    finally:
        await stand.registry.close()


async def test_who_starts_on_a_directory_in_use_hears_so_at_once_whatever_its_id() -> None:
    """And not when the one that uses it, registered under the same id, could as well have been a former self."""
    stand = Stand()
    first, second = stand.broker(), stand.broker()
    try:
        await first.start()
        async with asyncio.timeout(first.registration_timeout_s / 2):
            with pytest.raises(DirectoryLocked, match="another broker is using"):
                await second.start()
        assert stand.disk.locks, "the first one keeps it"
        await first.stop()
        await second.start()
        await second.stop()
    finally:
        await stand.registry.close()
