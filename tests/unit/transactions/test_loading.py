"""Loading the transactions of a partition from its log, and appends to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from msgspec.structs import replace

from barnabas.batch.header import BatchHeader
from barnabas.batch.records import Record, build_batch
from barnabas.broker.lazy_transactions import LazyTransactions
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.topic_names import TRANSACTION_STATE
from barnabas.model import BrokerId
from barnabas.replication.partition import Partition
from barnabas.transactions.coordinator import TransactionCoordinator
from barnabas.transactions.records import transaction_record, transaction_tombstone
from barnabas.transactions.transaction import TransactionMetadata
from tests.unit.broker.test_transaction_requests import Broker
from tests.unit.replication.nodes import NOW_MS, Node, Nodes, eventually

UNKNOWN_KEY = bytes.fromhex("0009 0003 617070")


class LoadingBroker:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.replicas = broker.node.replicas
        self.lazy = LazyTransactions(self.replicas, broker.node.network)
        self.lazy.open()

    @property
    def partition(self) -> Partition:
        return self.replicas.partitions[TRANSACTION_STATE, 0]

    def append(self, *written: tuple[bytes | None, bytes | None]) -> None:
        batch = build_batch(
            [Record(at, NOW_MS, key, value) for at, (key, value) in enumerate(written)]
        )
        data = memoryview(bytearray(batch))
        self.partition.append(data, BatchHeader(data), acks=1, now_ms=NOW_MS)

    async def load(self) -> TransactionCoordinator:
        self.lazy.leadership_changed(self.partition)
        coordinator = self.lazy.ensure_created().coordinator
        await eventually(lambda: 0 in coordinator.store.led)
        assert not coordinator.store.loading
        return coordinator


@pytest.fixture
async def loading() -> AsyncIterator[LoadingBroker]:
    broker = Broker(Nodes(Node(1, transaction_state_log_load_buffer_size=200)))
    await broker.start()
    made = LoadingBroker(broker)
    yield made
    await made.lazy.stop()
    broker.connection.close()
    await broker.context.lazy_transactions.stop()
    await broker.nodes.stop()


def state(epoch: int) -> TransactionMetadata:
    return TransactionMetadata(
        producer_id=5, producer_epoch=epoch, timeout_ms=1000, update_ms=NOW_MS
    )


async def test_last_record_of_each_id_counts(loading: LoadingBroker) -> None:
    for epoch in range(20):
        loading.append(transaction_record("a", state(epoch)), transaction_record("b", state(0)))
    loading.append(transaction_tombstone("b"), transaction_record("c", state(7)))
    found = (await loading.load()).transactions
    assert {name: each.metadata for name, each in found.items()} == {"a": state(19), "c": state(7)}


async def test_unreadable_records_are_skipped(
    loading: LoadingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    key, value = transaction_record("a", state(1))
    loading.append(
        (None, value),
        (b"\0", value),
        (UNKNOWN_KEY, value),
        (transaction_record("damaged", state(1))[0], b"\0\0\1"),
        (key, value),
    )
    found = (await loading.load()).transactions
    assert list(found) == ["a"]
    assert caplog.text.count("record skipped") == 3


async def test_empty_log(loading: LoadingBroker) -> None:
    assert (await loading.load()).transactions == {}


async def test_new_epoch_keeps_the_transactions(loading: LoadingBroker) -> None:
    loading.append(transaction_record("a", state(1)))
    coordinator = await loading.load()
    transaction = coordinator.transactions["a"]
    loading.partition.leader_epoch = cast(Any, 8)
    loading.lazy.leadership_changed(loading.partition)
    assert coordinator.store.led == {0: 8}
    assert coordinator.transactions["a"] is transaction


async def test_load_is_abandoned_without_leadership(loading: LoadingBroker) -> None:
    loading.append(transaction_record("a", state(1)))
    coordinator = loading.lazy.ensure_created().coordinator
    loading.lazy.leadership_changed(loading.partition)
    assert coordinator.store.loading == {0: None}
    loading.partition.leader = BrokerId(2)
    loading.lazy.leadership_changed(loading.partition)
    assert coordinator.store.loading == {}
    loading.partition.leader = BrokerId(1)
    assert (await loading.load()).transactions.keys() == {"a"}


# ---- appends


async def append_code(coordinator: TransactionCoordinator, timeout_s: float = 10.0) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        await coordinator.store.append(0, [transaction_record("a", state(1))], timeout_s)
    return caught.value.code


async def test_append_waits_for_the_replicas(loading: LoadingBroker) -> None:
    coordinator = await loading.load()
    await coordinator.store.append(0, [transaction_record("a", state(1))], 10.0)
    assert loading.partition.log.log_end_offset == 1
    await loading.broker.lead(1, isr=(1, 2), replicas=(1, 2))  # broker 2 does not exist
    code = await append_code(coordinator, timeout_s=0.01)
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert loading.partition.log.log_end_offset == 2, "the record stays in the log"


async def test_append_without_enough_replicas(loading: LoadingBroker) -> None:
    coordinator = await loading.load()
    log = loading.partition.log
    log.config = replace(log.config, min_insync_replicas=2)
    await loading.broker.lead(1, isr=(1,), replicas=(1, 2))
    assert await append_code(coordinator) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert log.log_end_offset == 0


async def test_append_as_follower(loading: LoadingBroker) -> None:
    coordinator = await loading.load()
    loading.partition.leader = BrokerId(2)
    assert await append_code(coordinator) is ErrorCode.NOT_COORDINATOR
    loading.partition.leader = BrokerId(1)


async def test_append_to_unknown_partition(loading: LoadingBroker) -> None:
    coordinator = await loading.load()
    with pytest.raises(ApiError) as caught:
        await coordinator.store.append(99, [transaction_record("a", state(1))], 1.0)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
