"""Startup with logs that belong to no topic."""

from __future__ import annotations

import logging
from random import Random
from uuid import UUID

import pytest

from barnabas.batch.header import BatchHeader
from barnabas.batch.records import Record, build_batch
from barnabas.broker.init_producer_id import reserve_block
from barnabas.broker.startup.stray_logs import adopt_logs, rename_stray_logs
from barnabas.broker.topic_admin.topics import Topics
from barnabas.config import BrokerConfig, TopicConfig
from barnabas.errors import RegistrySessionExpired
from barnabas.metadata import znodes
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.registry_client import RegistryClient
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.model import BrokerId, TopicPartition
from barnabas.storage.files import parent
from barnabas.storage.log_manager import LogManager
from barnabas.transactions.records import transaction_record, transaction_tombstone
from barnabas.transactions.transaction import TransactionMetadata
from tests.unit.storage.builders import NOW_MS, batch, forgetful_disk, open_log_manager

US = BrokerId(1)
ORDERS = UUID(int=7)
CONFIG = TopicConfig()
BROKER = BrokerConfig(broker_id=US)


@pytest.fixture
def logs() -> LogManager:
    """Logs of orders-0, orders-1 (written in epoch 5) and half-1; half-0 is missing."""
    manager = open_log_manager(
        forgetful_disk(),
        ["/data/a", "/data/b"],
        broker_id=US,
        cluster_id="c",
        config_of=lambda _: CONFIG,
        random=Random(1),
        now_ms=NOW_MS,
    )
    for tp in (TopicPartition("orders", 0), TopicPartition("orders", 1)):
        manager.create_log(tp, ORDERS, CONFIG, NOW_MS)
    manager.logs[TopicPartition("orders", 1)].epochs.assign(5, 0)
    manager.create_log(TopicPartition("half", 1), UUID(int=8), CONFIG, NOW_MS)
    return manager


def topics_of(registry: RegistryClient) -> Topics:
    return Topics(registry, MetadataCache("c"), BROKER, Random(1))


def log_names(logs: LogManager) -> list[str]:
    return sorted(map(str, logs.logs))


async def test_adopted_logs_keep_topic_id_and_leader_epochs(
    registry: RegistryClient, logs: LogManager
) -> None:
    await registry.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(3))
    await registry.create("/config/topics/orders", b"{")
    await adopt_logs(registry, logs, topics_of(registry), BROKER)
    assert await registry.children(znodes.TOPICS) == ["orders"]
    data, _ = await registry.get("/brokers/topics/orders")
    topic = znodes.decode_topic("orders", data)
    assert topic.topic_id == ORDERS
    assert [each.replicas for each in topic.partitions.values()] == [(US,), (US,)]
    for index, epoch in ((0, 0), (1, 5)):
        tp = TopicPartition("orders", index)
        data, _ = await registry.get(znodes.state_path(tp))
        state = znodes.decode_state(tp, data, version=0)
        assert (state.leader, state.isr) == (US, (US,))
        assert (state.leader_epoch, state.controller_epoch) == (epoch, 3)
    data, _ = await registry.get("/config/topics/orders")
    assert znodes.decode_config("", data) == {}
    await rename_stray_logs(registry, logs, US)
    assert log_names(logs) == ["orders-0", "orders-1"]


async def test_topics_of_coordinators_are_adopted_with_their_settings(
    registry: RegistryClient, logs: LogManager
) -> None:
    for name in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        logs.create_log(TopicPartition(name, 0), UUID(int=9), CONFIG, NOW_MS)
    await adopt_logs(registry, logs, topics_of(registry), BROKER)
    assert await registry.children(znodes.TOPICS) == [CONSUMER_OFFSETS, TRANSACTION_STATE, "orders"]
    data, _ = await registry.get(f"/config/topics/{CONSUMER_OFFSETS}")
    assert znodes.decode_config("", data) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    data, _ = await registry.get(f"/config/topics/{TRANSACTION_STATE}")
    assert znodes.decode_config("", data)["cleanup.policy"] == "compact"


@pytest.mark.parametrize(("used", "first"), [(None, 0), (0, 1000), (999, 1000), (4711, 5000)])
async def test_producer_ids_of_adopted_logs_are_not_used_again(
    registry: RegistryClient, logs: LogManager, used: int | None, first: int
) -> None:
    if used is not None:
        log = logs.logs[TopicPartition("orders", 0)]
        data = bytearray(batch([b"v"], producer_id=used, producer_epoch=0, base_sequence=0))
        log.append_as_leader(memoryview(data), BatchHeader(data), leader_epoch=0, now_ms=NOW_MS)
    for _ in range(2):
        await adopt_logs(registry, logs, topics_of(registry), BROKER)
    assert (await reserve_block(registry, US)).start == first


async def test_producer_ids_of_adopted_transactions_are_not_used_again(
    registry: RegistryClient, logs: LogManager
) -> None:
    partition = TopicPartition(TRANSACTION_STATE, 0)
    log = logs.create_log(partition, UUID(int=9), CONFIG, NOW_MS)
    metadata = TransactionMetadata(
        producer_id=4711, producer_epoch=0, timeout_ms=1000, update_ms=NOW_MS
    )
    stored = [transaction_record("app", metadata), transaction_tombstone("gone")]
    data = bytearray(build_batch([Record(at, NOW_MS, *each) for at, each in enumerate(stored)]))
    log.append_as_leader(memoryview(data), BatchHeader(data), leader_epoch=0, now_ms=NOW_MS)
    await adopt_logs(registry, logs, topics_of(registry), BROKER)
    assert (await reserve_block(registry, US)).start == 5000


async def test_logs_are_not_adopted_while_other_brokers_are_registered(
    registry: RegistryClient, logs: LogManager, caplog: pytest.LogCaptureFixture
) -> None:
    await registry.create("/brokers/ids/1")  # of our own previous process, which was just killed
    await registry.create("/brokers/ids/2")
    with caplog.at_level(logging.ERROR, "barnabas.topics"):
        await adopt_logs(registry, logs, topics_of(registry), BROKER)
    assert await registry.children(znodes.TOPICS) == []
    assert "other brokers are registered ids=2" in caplog.text


async def test_logs_without_topic_are_renamed(registry: RegistryClient, logs: LogManager) -> None:
    await registry.create("/brokers/topics/orders", encode_assignment({0: (1, 9)}))
    await rename_stray_logs(registry, logs, US)
    assert log_names(logs) == ["orders-0"]


async def test_log_of_replica_that_moved_away_is_renamed(
    registry: RegistryClient, logs: LogManager
) -> None:
    await registry.create("/brokers/topics/orders", encode_assignment({0: (9,), 1: (9,)}))
    await rename_stray_logs(registry, logs, US, in_use={("orders", 1), ("half", 1)})
    assert log_names(logs) == ["half-1", "orders-1"]


async def test_future_log_left_by_a_crash_during_the_deletion_of_its_log_is_deleted(
    registry: RegistryClient, logs: LogManager
) -> None:
    tp = TopicPartition("orders", 0)
    (target,) = {"/data/a", "/data/b"} - {parent(logs.logs[tp].directory)}
    logs.create_future(tp, target, NOW_MS)
    logs.logs.clear()
    await rename_stray_logs(registry, logs, US)
    assert not logs.futures
    assert [parent(path) for _, path in logs.pending_removals] == [target]


async def test_logs_of_topic_with_corrupt_znode_are_kept(
    registry: RegistryClient, logs: LogManager, caplog: pytest.LogCaptureFixture
) -> None:
    await registry.create("/brokers/topics/orders", b"{")
    with caplog.at_level(logging.ERROR, "barnabas.topics"):
        await rename_stray_logs(registry, logs, US)
    assert log_names(logs) == ["orders-0", "orders-1"]
    assert "/brokers/topics/orders" in caplog.text


async def test_logs_are_kept_if_the_registry_is_unavailable(
    registry: RegistryClient, logs: LogManager
) -> None:
    before = log_names(logs)
    await registry.close()
    with pytest.raises(RegistrySessionExpired):
        await rename_stray_logs(registry, logs, US)
    assert log_names(logs) == before


def encode_assignment(partitions: dict[int, tuple[int, ...]]) -> bytes:
    return znodes.encode_topic(
        znodes.TopicAssignment(
            topic_id=ORDERS,
            partitions={
                index: znodes.ReplicaAssignment(replicas=tuple(map(BrokerId, replicas)))
                for index, replicas in partitions.items()
            },
        )
    )
