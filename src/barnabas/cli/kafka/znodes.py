"""Access to the znodes of a cluster without a broker, as in Kafka's commands before 3.0.

The controller learns of changes through its watches. If another client changes a znode between the read and the write,
the znode is read again and the write is retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import TypeVar
from uuid import uuid4

from barnabas.controller.topic_checks import already_exists
from barnabas.errors import BadVersion, MultiFailed, NodeExists, NoNode
from barnabas.metadata import znodes
from barnabas.metadata.znodes import ReplicaAssignment, TopicAssignment
from barnabas.model import Broker, BrokerId, LeaderAndIsr, TopicPartition
from barnabas.retry import CONFLICT_S, Backoff
from barnabas.world.ports import Create, RegistrySession, SetData, ZnodeStat

T = TypeVar("T")

SESSION_TIMEOUT_MS = 30_000
CONNECTION_TIMEOUT_MS = 10_000


def run_in_session(
    connect: str,
    work: Callable[[RegistrySession], Awaitable[T]],
    zookeeper_config: str | None = None,
) -> T:
    """Run `work` in a new session. A missing chroot is not created: it means that the connect string is wrong.

    `zookeeper_config` is the path of a file with the security settings of the connection.
    """
    from barnabas.cli.registry.zookeeper_config import command_security
    from barnabas.world.registry.zookeeper import ZooKeeperRegistry

    security = command_security(zookeeper_config)

    async def run() -> T:
        registry = ZooKeeperRegistry(
            connect,
            connection_timeout_ms=CONNECTION_TIMEOUT_MS,
            create_chroot=False,
            security=security,
        )
        try:
            return await work(await registry.connect(SESSION_TIMEOUT_MS))
        finally:
            await registry.close()

    return asyncio.run(run())


# ---- reads


async def children_or_empty(session: RegistrySession, path: str) -> list[str]:
    try:
        return await session.children(path)
    except NoNode:
        return []


async def registered_brokers(session: RegistrySession) -> list[Broker]:
    async def read(number: int) -> Broker | None:
        found = await get_or_none(session, znodes.broker_path(number))
        return None if found is None else znodes.decode_broker(number, found[0])

    found = await asyncio.gather(*(read(number) for number in await registered_broker_ids(session)))
    return [broker for broker in found if broker is not None]


async def registered_broker_ids(session: RegistrySession) -> list[int]:
    names = await children_or_empty(session, znodes.BROKER_IDS)
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


async def read_topic_assignment(session: RegistrySession, name: str) -> TopicAssignment | None:
    found = await get_or_none(session, znodes.topic_path(name))
    return None if found is None else znodes.decode_topic(name, found[0])


async def read_state(session: RegistrySession, partition: TopicPartition) -> LeaderAndIsr | None:
    found = await get_or_none(session, znodes.state_path(partition))
    if found is None:
        return None
    return znodes.decode_state(partition, found[0], version=found[1].version)


async def read_settings(session: RegistrySession, name: str) -> tuple[dict[str, str], int | None]:
    """Return the settings of a topic and the version of its config znode; None if there is no such znode."""
    return await read_entity_settings(session, f"topics/{name}")


async def read_entity_settings(
    session: RegistrySession, entity_path: str
) -> tuple[dict[str, str], int | None]:
    """Like `read_settings`, for any entity: `topics/orders`, `brokers/<default>`, `users/u/clients/c`."""
    path = f"{znodes.CONFIG}/{entity_path}"
    found = await get_or_none(session, path)
    if found is None:
        return {}, None
    return znodes.decode_config(path, found[0]), found[1].version


async def get_or_none(session: RegistrySession, path: str) -> tuple[bytes, ZnodeStat] | None:
    try:
        return await session.get(path)
    except NoNode:
        return None


async def is_marked_for_deletion(session: RegistrySession, name: str) -> bool:
    return await session.exists(znodes.delete_topic_path(name)) is not None


# ---- writes


async def create_topic_znodes(
    session: RegistrySession,
    name: str,
    replicas: Sequence[Sequence[BrokerId]],
    configs: Mapping[str, str],
) -> None:
    """Write settings and assignment in one transaction. Raises TOPIC_ALREADY_EXISTS if the topic exists."""
    assignment = TopicAssignment(
        topic_id=uuid4(),
        partitions={
            number: ReplicaAssignment(replicas=tuple(each)) for number, each in enumerate(replicas)
        },
    )
    topic = Create(path=znodes.topic_path(name), data=znodes.encode_topic(assignment))
    while True:
        stat = await session.exists(znodes.topic_config_path(name))
        settings = settings_write(name, configs, None if stat is None else stat.version)
        try:
            if await write_with_settings(session, settings, topic):
                return
        except NodeExists:
            raise already_exists(name) from None


async def change_settings(
    session: RegistrySession, name: str, change: Callable[[dict[str, str]], Mapping[str, str]]
) -> None:
    """Replace the settings of a topic by `change(settings)`, and write the notification for the brokers."""
    await change_entity_settings(session, f"topics/{name}", change)


async def change_entity_settings(
    session: RegistrySession,
    entity_path: str,
    change: Callable[[dict[str, str]], Mapping[str, str]],
) -> None:
    """Like `change_settings`, for any entity. Missing parents of its znode are created."""
    notification = Create(
        path=znodes.CONFIG_CHANGE_PREFIX,
        data=znodes.encode_config_change(entity_path),
        sequential=True,
    )
    while True:
        before, version = await read_entity_settings(session, entity_path)
        after = change(before)
        if version is None:
            await create_parents(session, f"{znodes.CONFIG}/{entity_path}")
        settings = config_write(entity_path, after, version)
        if await write_with_settings(session, settings, notification):
            return


async def create_parents(session: RegistrySession, path: str) -> None:
    parts = path.split("/")[1:-1]
    for end in range(1, len(parts) + 1):
        await create_if_missing(session, "/" + "/".join(parts[:end]))


async def create_if_missing(session: RegistrySession, path: str) -> None:
    with suppress(NodeExists):
        await session.create(path)


def settings_write(name: str, configs: Mapping[str, str], version: int | None) -> Create | SetData:
    return config_write(f"topics/{name}", configs, version)


def config_write(
    entity_path: str, configs: Mapping[str, str], version: int | None
) -> Create | SetData:
    path, data = f"{znodes.CONFIG}/{entity_path}", znodes.encode_config(configs)
    if version is None:
        return Create(path=path, data=data)
    return SetData(path=path, data=data, version=version)


async def write_with_settings(
    session: RegistrySession, settings: Create | SetData, other: Create
) -> bool:
    """Write both or neither. Returns False if another client changed the settings since they were read."""
    try:
        await session.multi([settings, other])
    except MultiFailed as failed:
        conflict = NodeExists if isinstance(settings, Create) else (BadVersion, NoNode)
        if failed.index == 0 and isinstance(failed.error, conflict):
            return False
        raise failed.error from None
    return True


async def grow_topic(
    session: RegistrySession,
    name: str,
    assign: Callable[[TopicAssignment], Sequence[Sequence[BrokerId]]],
) -> None:
    """Add partitions on the brokers that `assign` returns. Raises NoNode if there is no such topic."""
    backoff = Backoff(*CONFLICT_S, random=Random())
    while True:
        data, stat = await session.get(znodes.topic_path(name))
        topic = znodes.decode_topic(name, data)
        added = {
            number: ReplicaAssignment(replicas=tuple(replicas))
            for number, replicas in enumerate(assign(topic), start=len(topic.partitions))
        }
        grown = TopicAssignment(topic_id=topic.topic_id, partitions={**topic.partitions, **added})
        try:
            await session.set(znodes.topic_path(name), znodes.encode_topic(grown), stat.version)
            return
        except BadVersion:
            await backoff.wait()
