"""Controller writes in a real registry: fenced, batched, and robust against foreign data."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.controller import store as store_module
from barnabas.controller.decision import CreateState, UnreadableState, UpdateState, WriteRejection
from barnabas.controller.store import ControllerStore
from barnabas.errors import ControllerMoved, NoNode
from barnabas.metadata import registration, znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import BrokerId, TopicPartition, ZnodeVersion
from barnabas.world.ports import WatchEvent
from tests.unit.controller.cluster import broker, replica_assignment, state, topic_id

P0, P1, P2 = (TopicPartition("t", index) for index in range(3))


def ignore_event(_: WatchEvent) -> None:
    pass


@pytest.fixture
async def store(registry: RegistryClient) -> ControllerStore:
    made = ControllerStore(registry, BrokerId(1), Random(7))
    made.take_over(await made.elect(now_ms=1000))
    topic = znodes.TopicAssignment(
        topic_id=topic_id("t"), partitions={index: replica_assignment(1, 2) for index in range(3)}
    )
    await registry.create(znodes.topic_path("t"), znodes.encode_topic(topic))
    return made


def create(partition: TopicPartition) -> CreateState:
    return CreateState(partition=partition, state=state(1, [1, 2]))


def update(partition: TopicPartition, version: int) -> UpdateState:
    return UpdateState(
        partition=partition,
        state=state(2, [2], epoch=1),
        expected_version=ZnodeVersion(version),
    )


async def test_controller_epoch_starts_at_1_and_increments(
    registry: RegistryClient, store: ControllerStore
) -> None:
    assert (await store.read_epoch()) == (1, 1)
    await registry.delete(znodes.CONTROLLER)
    election = await ControllerStore(registry, BrokerId(2), Random(1)).elect(now_ms=2000)
    assert (election.epoch, election.version) == (2, 2)


async def test_second_candidate_gets_controller_moved(
    registry: RegistryClient, store: ControllerStore
) -> None:
    with pytest.raises(ControllerMoved):
        await ControllerStore(registry, BrokerId(2), Random(1)).elect(now_ms=2000)
    assert (await store.read_epoch())[0] == 1


async def test_states_are_created_with_parents_and_updated_by_version(
    store: ControllerStore,
) -> None:
    assert await store.commit([create(P0), create(P1)]) == {P0: 0, P1: 0}
    assert await store.commit([update(P0, 0), update(P1, 0)]) == {P0: 1, P1: 1}
    read = await store.read_states([P0, P1, P2])
    assert read == {P0: state(2, [2], epoch=1, version=1), P1: state(2, [2], epoch=1, version=1)}


async def test_lost_race_does_not_affect_other_writes(
    registry: RegistryClient, store: ControllerStore
) -> None:
    await store.commit([create(P0), create(P1)])
    await registry.set(znodes.state_path(P0), znodes.encode_state(state(1, [1])))
    assert await store.commit([update(P0, 0), update(P1, 0), update(P2, 0)]) == {
        P0: WriteRejection.BAD_VERSION,
        P1: 1,
        P2: WriteRejection.NO_NODE,
    }


async def test_writes_of_crashed_controller_are_reused(
    registry: RegistryClient, store: ControllerStore
) -> None:
    """Parent znodes exist, or the state itself."""
    await registry.create(znodes.partitions_path("t"))
    await registry.create(znodes.partition_path(P0))
    assert await store.commit([create(P0), create(P1)]) == {P0: 0, P1: 0}
    again = ControllerStore(registry, BrokerId(1), Random(7))
    again.epoch_version = store.epoch_version
    await registry.set(znodes.state_path(P1), znodes.encode_state(state(2, [2], epoch=4)))
    assert await again.commit([create(P1), create(P2)]) == {P1: WriteRejection.NODE_EXISTS, P2: 0}


async def test_repeated_write_after_lost_response_succeeds(store: ControllerStore) -> None:
    """After a lost connection the write is sent again and finds its own data."""
    await store.commit([create(P0)])
    assert await store.commit_one(create(P0)) == 0
    assert await store.commit_one(update(P0, 0)) == 1
    assert await store.commit_one(update(P0, 0)) == 1
    other = UpdateState(
        partition=P0, state=state(1, [1], epoch=1), expected_version=ZnodeVersion(0)
    )
    assert await store.commit_one(other) is WriteRejection.BAD_VERSION


async def test_deposed_controller_writes_nothing(
    registry: RegistryClient, store: ControllerStore
) -> None:
    await registry.set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(2))
    with pytest.raises(ControllerMoved):
        await store.commit([create(P0)])
    assert await registry.exists(znodes.partitions_path("t")) is None
    with pytest.raises(ControllerMoved):
        await store.delete_topic("t")
    assert await registry.exists(znodes.topic_path("t")) is not None
    await store.delete_controller()
    assert await registry.exists(znodes.CONTROLLER) is not None


async def test_transactions_stay_below_size_limit(
    registry: RegistryClient, store: ControllerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "BATCH_BYTES_MAX", 2000)
    many = [TopicPartition("t", index) for index in range(200)]
    assert await store.commit([create(each) for each in many]) == dict.fromkeys(many, 0)
    batches = list(
        store_module.split_into_batches([create(each) for each in many], store.build_ops)
    )
    assert len(batches) > 10
    assert all(
        sum(store_module.estimate_size(op) for _, ops in batch for op in ops) <= 2000
        for batch in batches
    )


async def test_topic_without_id_gets_one(registry: RegistryClient, store: ControllerStore) -> None:
    written = b'{"version":1,"partitions":{"0":[1,2]}}'
    await registry.create(znodes.topic_path("old"), written)
    found = (await store.read_topics(["old"], ignore_event))["old"]
    assert found.topic_id is not None
    data, stat = await registry.get(znodes.topic_path("old"))
    assert znodes.decode_topic("old", data).topic_id == found.topic_id
    assert stat.version == 1
    assert (await store.read_topics(["old"], ignore_event))["old"] == found


async def test_corrupt_znodes_are_logged_and_skipped(
    registry: RegistryClient, store: ControllerStore, caplog: pytest.LogCaptureFixture
) -> None:
    await registry.create(znodes.topic_path("bad"), b"not json")
    await registry.create(f"{znodes.BROKER_IDS}/zwei")
    await registry.create(znodes.broker_path(3), b"{}")
    await registration.register(registry, broker(2), 1000)
    await store.commit([create(P0)])
    await registry.set(znodes.state_path(P0), b"[1]")
    assert await store.read_topics(["bad", "gone"], ignore_event) == {}
    assert list(await store.read_brokers(ignore_event)) == [2]
    assert isinstance((await store.read_states([P0]))[P0], UnreadableState)
    for path in (
        "/brokers/topics/bad",
        "/brokers/ids/zwei",
        "/brokers/ids/3",
        "partitions/0/state",
    ):
        assert path in caplog.text


async def test_delete_topic_removes_all_znodes(
    registry: RegistryClient, store: ControllerStore
) -> None:
    await store.commit([create(P0), create(P1)])
    await registry.create(znodes.topic_config_path("t"), znodes.encode_config({}))
    await registry.create(znodes.delete_topic_path("t"))
    await store.delete_topic("t")
    for path in (
        znodes.topic_path("t"),
        znodes.topic_config_path("t"),
        znodes.delete_topic_path("t"),
    ):
        with pytest.raises(NoNode):
            await registry.get(path)
    await store.delete_topic("t")  # deleting again is no error
