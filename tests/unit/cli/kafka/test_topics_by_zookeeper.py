"""kafka-topics with --zookeeper: local decisions and concurrent writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from barnabas.cli.kafka.failures import RequestRejected
from barnabas.cli.kafka.topic_options import RequestedTopic
from barnabas.cli.kafka.topics_by_zookeeper import (
    RACKS_HINT,
    apply_changes,
    check_and_assign,
    kafka_2_error,
)
from barnabas.cli.kafka.znodes import (
    change_settings,
    create_topic_znodes,
    grow_topic,
    read_settings,
    read_topic_assignment,
    registered_brokers,
)
from barnabas.errors import ApiError, ErrorCode, NoNode
from barnabas.metadata import znodes
from barnabas.metadata.topic_names import TakenNames
from barnabas.metadata.znodes import ReplicaAssignment, TopicAssignment
from barnabas.model import Broker, BrokerId, Endpoint
from barnabas.world.clock import SystemClock
from barnabas.world.ports import RegistrySession
from barnabas.world.registry.embedded import EmbeddedRegistry

TOPIC = znodes.topic_path("t")
SETTINGS = znodes.topic_config_path("t")


def brokers(*racks: str | None) -> list[Broker]:
    return [
        Broker(
            id=BrokerId(number),
            endpoints=(Endpoint(listener="PLAINTEXT", host="h", port=9092),),
            rack=rack,
        )
        for number, rack in enumerate(racks)
    ]


def requested_topic(name: str = "t", **fields: Any) -> RequestedTopic:
    known: dict[str, Any] = {
        "partitions": None,
        "replication_factor": None,
        "assignment": (),
        "configs": {},
    }
    return RequestedTopic(name=name, **{**known, **fields})


def rejection_message(
    requested: RequestedTopic, among: Sequence[Broker], names: Sequence[str] = ()
) -> str:
    taken = TakenNames(names)
    with pytest.raises(ApiError) as caught:
        check_and_assign(requested, among, taken, marked=())
    return kafka_2_error(caught.value, requested, among, taken).message


# ---- local decisions


def test_replicas_are_placed_by_counts_or_assignment() -> None:
    placed = check_and_assign(
        requested_topic(partitions=4, replication_factor=2),
        brokers(None, None, None),
        TakenNames(),
        [],
    )
    assert len(placed) == 4
    assert all(len(set(replicas)) == 2 for replicas in placed)
    assert check_and_assign(
        requested_topic(assignment=((0, 1), (1, 0))), brokers(None, None), TakenNames(), marked=()
    ) == ((0, 1), (1, 0))


def test_rejections_have_kafka_2_messages() -> None:
    three = brokers(None, None, None)
    one = requested_topic(partitions=1, replication_factor=1)
    assert rejection_message(one, three, ["t"]) == "Topic 't' already exists."
    wide = requested_topic(partitions=1, replication_factor=4)
    assert (
        rejection_message(wide, three) == "Replication factor: 4 larger than available brokers: 3."
    )
    alike = requested_topic("a.b", partitions=1, replication_factor=1)
    assert (
        rejection_message(alike, three, ["a_b"]) == "Topic 'a.b' collides with existing topics: a_b"
    )
    assert rejection_message(one, brokers("r", None)) == RACKS_HINT
    assert rejection_message(one, []) == "Replication factor: 1 larger than available brokers: 0."


def test_changed_settings_are_validated_as_a_whole() -> None:
    before = {"min.compaction.lag.ms": "5", "flush.ms": "1"}
    after = apply_changes(before, added={"retention.ms": "7"}, deleted=["flush.ms"])
    assert after == {"min.compaction.lag.ms": "5", "retention.ms": "7"}
    with pytest.raises(RequestRejected, match="conflict topic config setting"):
        apply_changes(before, added={"max.compaction.lag.ms": "4"}, deleted=[])
    with pytest.raises(ApiError, match=r"remote\.storage\.enable"):
        apply_changes(before, added={"remote.storage.enable": "true"}, deleted=[])


# ---- concurrent clients


@pytest.fixture
async def registry() -> AsyncIterator[EmbeddedRegistry]:
    registry = EmbeddedRegistry(None, SystemClock())
    session = await registry.connect(6000)
    for path in znodes.PERSISTENT_PATHS:
        await session.create(path)
    yield registry
    await registry.close()


class ConcurrentlyModifiedSession:
    """Session where another client writes first, before the first write of this one."""

    def __init__(self, session: RegistrySession, path: str, data: bytes, *, is_new: bool) -> None:
        self.session = session
        self.path, self.data, self.is_new = path, data, is_new
        self.times = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    async def multi(self, ops: Sequence[Any]) -> Any:
        await self.write_first()
        return await self.session.multi(ops)

    async def set(self, path: str, data: bytes, version: int = -1) -> Any:
        await self.write_first()
        return await self.session.set(path, data, version)

    async def write_first(self) -> None:
        self.times += 1
        if self.times > 1:
            return
        if self.is_new:
            await self.session.create(self.path, self.data)
        else:
            await self.session.set(self.path, self.data)


def with_concurrent_write(session: RegistrySession, path: str, data: bytes, *, is_new: bool) -> Any:
    return ConcurrentlyModifiedSession(session, path, data, is_new=is_new)


async def test_config_change_is_applied_to_concurrent_change(
    registry: EmbeddedRegistry,
) -> None:
    session = await registry.connect(6000)
    await session.create(SETTINGS, znodes.encode_config({"flush.ms": "1"}))
    theirs = znodes.encode_config({"flush.ms": "2"})
    concurrent = with_concurrent_write(session, SETTINGS, theirs, is_new=False)
    await change_settings(concurrent, "t", lambda before: {**before, "retention.ms": "7"})
    assert (await read_settings(session, "t"))[0] == {"flush.ms": "2", "retention.ms": "7"}
    (note,) = await session.children(znodes.CONFIG_CHANGES)
    data, _ = await session.get(f"{znodes.CONFIG_CHANGES}/{note}")
    assert znodes.decode_config_change(note, data) == ("topics", "t")


async def test_leftover_settings_do_not_block_creation(
    registry: EmbeddedRegistry,
) -> None:
    session = await registry.connect(6000)
    concurrent = with_concurrent_write(session, SETTINGS, b"not JSON", is_new=True)
    await create_topic_znodes(concurrent, "t", [(BrokerId(1),)], {"flush.ms": "1"})
    assert (await read_settings(session, "t"))[0] == {"flush.ms": "1"}
    found = await read_topic_assignment(session, "t")
    assert found is not None
    assert found.topic_id is not None


async def test_concurrent_creation_raises_topic_already_exists(
    registry: EmbeddedRegistry,
) -> None:
    session = await registry.connect(6000)
    concurrent = with_concurrent_write(session, TOPIC, b"{}", is_new=True)
    with pytest.raises(ApiError) as caught:
        await create_topic_znodes(concurrent, "t", [(BrokerId(1),)], {"flush.ms": "1"})
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert await session.exists(SETTINGS) is None


async def test_topic_grows_from_concurrently_changed_assignment(
    registry: EmbeddedRegistry,
) -> None:
    def topic(*placed: int) -> TopicAssignment:
        return TopicAssignment(
            topic_id=None,
            partitions={
                number: ReplicaAssignment(replicas=(BrokerId(broker),))
                for number, broker in enumerate(placed)
            },
        )

    session = await registry.connect(6000)
    await session.create(TOPIC, znodes.encode_topic(topic(1)))
    concurrent = with_concurrent_write(
        session, TOPIC, znodes.encode_topic(topic(1, 2)), is_new=False
    )
    await grow_topic(concurrent, "t", lambda found: [(BrokerId(3),)] * (4 - len(found.partitions)))
    found = await read_topic_assignment(session, "t")
    assert found == topic(1, 2, 3, 3)
    with pytest.raises(NoNode):
        await grow_topic(session, "gone", lambda _: [])


async def test_registered_brokers_are_sorted_by_id(registry: EmbeddedRegistry) -> None:
    session = await registry.connect(6000)
    for broker in reversed(brokers(None, "r")):
        data = znodes.encode_broker(broker, timestamp_ms=0)
        await session.create(znodes.broker_path(broker.id), data)
    assert [(each.id, each.rack) for each in await registered_brokers(session)] == [
        (0, None),
        (1, "r"),
    ]


def test_kafka_2_message_keeps_error_code() -> None:
    error = kafka_2_error(
        ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "there is no broker 9"),
        requested_topic(),
        [],
        TakenNames(),
    )
    assert (error.code, error.message) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "there is no broker 9",
    )
