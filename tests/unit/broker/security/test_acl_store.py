"""ACLs in the registry: two brokers, concurrent changes, and invalid znodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest

from barnabas.broker.security import acl_store
from barnabas.broker.security.acl_store import AclStore
from barnabas.errors import ApiError, RegistryError
from barnabas.metadata.registry_client import RegistryClient
from barnabas.security.acl import znodes
from barnabas.security.acl.authorizer import AclAuthorizer
from barnabas.security.acl.decision import AuthorizerRules
from barnabas.security.acl.filters import AclFilter, EntryFilter, PatternFilter
from barnabas.security.acl.model import (
    AccessControlEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.world.clock import SystemClock
from barnabas.world.registry.embedded import EmbeddedRegistry

DEADLINE_S = 20.0
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceType.GROUP, "app-", PatternType.PREFIXED)


def entry(name: str, operation: Operation = Operation.READ) -> AccessControlEntry:
    return AccessControlEntry(f"User:{name}", "*", operation, Permission.ALLOW)


ALICE, BOB = entry("alice"), entry("bob")


class Member:
    """A broker's session, and its ACLs."""

    def __init__(self, registry: RegistryClient) -> None:
        self.registry = registry
        self.authorizer = AclAuthorizer(AuthorizerRules())
        self.store = AclStore(registry, self.authorizer, SystemClock(), Random(1))
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.store.load()
        loop = asyncio.get_running_loop()
        self.tasks = [loop.create_task(each.run()) for each in self.store.changes]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.registry.close()

    @property
    def acls(self) -> set[Acl]:
        return set(self.authorizer.index)


@pytest.fixture
async def members() -> AsyncIterator[tuple[Member, Member]]:
    registry = EmbeddedRegistry(None, SystemClock())
    found = []
    for _ in range(2):
        client = RegistryClient(registry, 10_000)
        await client.open()
        found.append(Member(client))
        await found[-1].start()
    yield found[0], found[1]
    for each in found:
        await each.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


async def test_change_applies_at_once_here_and_soon_elsewhere(
    members: tuple[Member, Member],
) -> None:
    first, second = members
    await first.store.add(ORDERS, [ALICE])
    await first.store.add(PREFIX, [BOB])
    expected = {Acl(ORDERS, ALICE), Acl(PREFIX, BOB)}
    assert first.acls == expected
    await until(lambda: second.acls == expected)
    deleted, errors = await second.store.delete([AclFilter(PatternFilter(ResourceType.TOPIC))])
    assert deleted == {Acl(ORDERS, ALICE): 0}
    assert not errors
    assert second.acls == {Acl(PREFIX, BOB)}
    await until(lambda: first.acls == {Acl(PREFIX, BOB)})
    assert await first.registry.exists(znodes.acl_path(ORDERS)) is None


async def test_concurrent_additions_are_all_kept(members: tuple[Member, Member]) -> None:
    entries = [entry(f"user-{number}") for number in range(20)]
    await asyncio.gather(
        *(members[at % 2].store.add(ORDERS, [each]) for at, each in enumerate(entries))
    )
    expected = {Acl(ORDERS, each) for each in entries}
    await until(lambda: all(each.acls == expected for each in members))


async def test_unchanged_acls_write_nothing(members: tuple[Member, Member]) -> None:
    store, registry = members[0].store, members[0].registry
    await store.add(ORDERS, [ALICE])
    _, before = await registry.get(znodes.acl_path(ORDERS))
    await store.add(ORDERS, [ALICE])
    await store.delete([AclFilter(entry=EntryFilter(principal="User:nobody"))])
    _, after = await registry.get(znodes.acl_path(ORDERS))
    assert after.version == before.version


async def test_filter_deletes_acl_that_this_broker_does_not_know_yet(
    members: tuple[Member, Member],
) -> None:
    first, second = members
    for task in second.tasks:
        task.cancel()
    await first.store.add(ORDERS, [ALICE])
    filters = [AclFilter(PatternFilter(*ORDERS)), AclFilter()]
    deleted, _ = await second.store.delete(filters)
    assert deleted == {Acl(ORDERS, ALICE): 0}


async def test_first_matching_filter_gets_the_acl(members: tuple[Member, Member]) -> None:
    store = members[0].store
    await store.add(ORDERS, [ALICE, BOB])
    filters = [AclFilter(entry=EntryFilter(principal="User:bob")), AclFilter()]
    deleted, _ = await store.delete(filters)
    assert deleted == {Acl(ORDERS, BOB): 0, Acl(ORDERS, ALICE): 1}


async def test_acls_of_kafkas_tools_are_read(members: tuple[Member, Member]) -> None:
    """Tools that write to ZooKeeper create the znode and then the notification."""
    first, second = members
    data = (
        b'{"version": 1, "acls": [{"host":"10.0.0.1","permissionType":"Allow",'
        b'"operation":"Read","principal":"User:alice"}]}'
    )
    await first.registry.create(znodes.acl_path(ORDERS), data)
    await first.registry.create(
        "/kafka-acl-changes/acl_changes_", znodes.encode_change(ORDERS), sequential=True
    )
    expected = {Acl(ORDERS, ALICE._replace(host="10.0.0.1"))}
    await until(lambda: first.acls == second.acls == expected)


async def test_invalid_znode_keeps_former_acls_and_prevents_start(
    members: tuple[Member, Member], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = members
    await first.store.add(ORDERS, [ALICE])
    await until(lambda: second.acls == first.acls)
    await first.registry.set(znodes.acl_path(ORDERS), b"nonsense")
    await first.registry.create(
        "/kafka-acl-changes/acl_changes_", znodes.encode_change(ORDERS), sequential=True
    )
    await until(lambda: "keeping former ACLs" in caplog.text)
    assert first.acls == second.acls == {Acl(ORDERS, ALICE)}
    with pytest.raises(ApiError, match="not JSON"):
        await first.store.add(ORDERS, [BOB])
    with pytest.raises(RegistryError, match="not JSON"):
        await Member(first.registry).store.load()


async def test_new_session_applies_changes_next_to_an_invalid_znode(
    members: tuple[Member, Member], caplog: pytest.LogCaptureFixture
) -> None:
    """A revocation is applied although the ACLs of another pattern cannot be decoded."""
    first, second = members
    other = ORDERS._replace(name="payments")
    await first.store.add(ORDERS, [ALICE])
    await first.store.add(other, [BOB])
    await until(lambda: second.acls == first.acls)
    await first.registry.set(znodes.acl_path(ORDERS), b"nonsense")
    await first.registry.delete(znodes.acl_path(other))
    for changes in second.store.changes:
        changes.session_opened()
    await until(lambda: second.acls == {Acl(ORDERS, ALICE)})
    assert "keeping former ACLs" in caplog.text


async def test_too_many_acls_of_one_pattern_are_rejected(
    members: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_store, "ACLS_BYTES_MAX", 1000)
    store = members[0].store
    await store.add(ORDERS, [ALICE])
    with pytest.raises(ApiError, match="INVALID_REQUEST"):
        await store.add(ORDERS, [entry(f"user-{number}") for number in range(30)])
    assert members[0].acls == {Acl(ORDERS, ALICE)}


async def test_unknown_directories_are_ignored(members: tuple[Member, Member]) -> None:
    registry = members[0].registry
    await registry.create("/kafka-acl/Nonsense", b"")
    await registry.create("/kafka-acl/Nonsense/x", b"junk")
    await members[0].store.load()
    assert members[0].acls == set()


async def test_new_session_reads_missed_changes(members: tuple[Member, Member]) -> None:
    first, second = members
    await first.registry.create(znodes.acl_path(ORDERS), znodes.encode_acls([ALICE]))
    for changes in second.store.changes:
        changes.session_opened()
    await until(lambda: second.acls == {Acl(ORDERS, ALICE)})
