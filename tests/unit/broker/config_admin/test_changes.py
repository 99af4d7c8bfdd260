"""Notifications of config changes: order, coalescing, old formats, purging, and new registry sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest

from barnabas.broker.config_admin.changes import PURGE_AGE_MS, ConfigChanges
from barnabas.errors import RegistryUnreachable
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.world.clock import SystemClock
from barnabas.world.registry.embedded import EmbeddedRegistry, EmbeddedSession

DEADLINE_S = 20.0


class SettableClock:
    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return SystemClock().now_ms() + self.ahead_ms


class RecordingApplier:
    """Records what is applied. `failures` is the number of next calls that fail."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.failures = 0
        self.broken = ""
        """Entity that cannot be applied because of a bug."""

    async def apply(self, entity_type: str, entity: str) -> None:
        if self.failures:
            self.failures -= 1
            raise RegistryUnreachable("", "no server")
        if f"{entity_type}/{entity}" == self.broken:
            raise RuntimeError("a bug")
        self.applied.append(f"{entity_type}/{entity}")

    async def apply_all(self) -> None:
        self.applied.append("all")


@pytest.fixture
def applier() -> RecordingApplier:
    return RecordingApplier()


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
async def changes(
    registry: RegistryClient, applier: RecordingApplier, clock: SettableClock
) -> AsyncIterator[ConfigChanges]:
    changes = ConfigChanges(registry, applier, clock, Random(1))
    yield changes


async def notify(registry: RegistryClient, data: bytes) -> str:
    path, _ = await registry.create(znodes.CONFIG_CHANGE_PREFIX, data, sequential=True)
    return path.rpartition("/")[2]


async def change(registry: RegistryClient, entity_path: str) -> str:
    return await notify(registry, znodes.encode_config_change(entity_path))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


async def test_notifications_are_applied_in_order_and_once(
    registry: RegistryClient, changes: ConfigChanges, applier: RecordingApplier
) -> None:
    for name in ("b", "a", "c"):
        await change(registry, f"topics/{name}")
    await changes.process()
    await change(registry, "brokers/<default>")
    await changes.process()
    await changes.process()
    assert applier.applied == ["topics/b", "topics/a", "topics/c", "brokers/<default>"]


async def test_notifications_of_one_entity_are_applied_together(
    registry: RegistryClient, changes: ConfigChanges, applier: RecordingApplier
) -> None:
    for name in ("a", "b", "a", "a"):
        await change(registry, f"topics/{name}")
    await changes.process()
    assert applier.applied == ["topics/a", "topics/b"]


async def test_old_and_hierarchical_notifications_are_understood(
    registry: RegistryClient, changes: ConfigChanges, applier: RecordingApplier
) -> None:
    await notify(registry, b'{"version":1,"entity_type":"topics","entity_name":"old"}')
    await change(registry, "users/anna/clients/reports")
    await changes.process()
    assert applier.applied == ["topics/old", "users/anna/clients/reports"]


@pytest.mark.parametrize(
    "data", [b"", b"orders", b"[]", b'{"version":2}', b'{"version":2,"entity_path":"topics"}']
)
async def test_invalid_notification_does_not_block_later_ones(
    registry: RegistryClient, changes: ConfigChanges, applier: RecordingApplier, data: bytes
) -> None:
    await notify(registry, data)
    await registry.create(f"{znodes.CONFIG_CHANGES}/note")
    await change(registry, "topics/a")
    await changes.process()
    assert applier.applied == ["topics/a"]


@pytest.mark.parametrize("number", ["9999999999", "9" * 5000, "-2147483648"])
async def test_number_of_a_notification_does_not_hide_later_ones(
    registry: RegistryClient, changes: ConfigChanges, applier: RecordingApplier, number: str
) -> None:
    data = znodes.encode_config_change("topics/a")
    await registry.create(f"{znodes.CONFIG_CHANGE_PREFIX}{number}", data)
    await changes.process()
    await change(registry, "topics/b")
    await changes.process()
    assert applier.applied == ["topics/a", "topics/b"]


async def test_unexpected_failure_does_not_block_later_changes(
    registry: RegistryClient, changes: ConfigChanges, applier: RecordingApplier
) -> None:
    applier.broken = "topics/a"
    for name in ("a", "b"):
        await change(registry, f"topics/{name}")
    await changes.process()
    await change(registry, "topics/c")
    await changes.process()
    assert applier.applied == ["topics/b", "topics/c"]


async def test_old_notifications_are_purged(
    registry: RegistryClient,
    changes: ConfigChanges,
    applier: RecordingApplier,
    clock: SettableClock,
) -> None:
    await change(registry, "topics/a")
    await changes.process()
    assert len(await registry.children(znodes.CONFIG_CHANGES)) == 1
    clock.ahead_ms = PURGE_AGE_MS + 60_000
    await changes.process()
    assert await registry.children(znodes.CONFIG_CHANGES) == []
    assert applier.applied == ["topics/a"]


async def test_run_applies_each_new_notification(
    registry: RegistryClient, changes: ConfigChanges, applier: RecordingApplier
) -> None:
    task = asyncio.create_task(changes.run())
    try:
        for number in range(5):
            await change(registry, f"topics/t{number}")
            await until(lambda number=number: len(applier.applied) == number + 1)  # type: ignore[misc]
    finally:
        task.cancel()
    assert applier.applied == [f"topics/t{number}" for number in range(5)]


async def test_failed_change_is_retried_before_later_ones(
    registry: RegistryClient, changes: ConfigChanges, applier: RecordingApplier
) -> None:
    applier.failures = 2
    await change(registry, "topics/a")
    await change(registry, "topics/b")
    task = asyncio.create_task(changes.run())
    try:
        await until(lambda: len(applier.applied) == 2)
    finally:
        task.cancel()
    assert applier.applied == ["topics/a", "topics/b"]


async def test_new_session_reads_everything_and_watches_again(
    registry: RegistryClient, changes: ConfigChanges, applier: RecordingApplier
) -> None:
    opened = asyncio.Event()

    def on_new_session() -> None:
        changes.session_opened()
        opened.set()

    registry.on_new_session = on_new_session
    task = asyncio.create_task(changes.run())
    try:
        await change(registry, "topics/a")
        await until(lambda: applier.applied == ["topics/a"])
        embedded = registry.registry
        assert isinstance(embedded, EmbeddedRegistry)
        assert isinstance(registry.session, EmbeddedSession)
        embedded.time_out(registry.session)
        async with asyncio.timeout(DEADLINE_S):
            await opened.wait()
        await change(registry, "topics/b")
        await until(lambda: "topics/b" in applier.applied)
    finally:
        task.cancel()
    assert applier.applied == ["topics/a", "all", "topics/b"]
