"""The transaction coordinator is created when it is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from barnabas.broker.lazy_transactions import LazyTransactions
from barnabas.errors import ErrorCode
from barnabas.metadata.topic_names import TRANSACTION_STATE
from barnabas.model import TopicPartition
from tests.unit.broker.test_transaction_requests import Broker
from tests.unit.replication.nodes import Node, Nodes, eventually


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """A broker that leads two partitions of `__transaction_state`."""
    made = Broker(Nodes(Node(1)))
    await made.start()
    yield made
    made.connection.close()
    await made.context.lazy_transactions.stop()
    await made.nodes.stop()


@pytest.fixture
async def lazy(broker: Broker) -> AsyncIterator[LazyTransactions]:
    made = LazyTransactions(broker.node.replicas, broker.node.network)
    yield made
    await made.stop()


async def test_partition_led_before_open_is_loaded_after_open(
    broker: Broker, lazy: LazyTransactions
) -> None:
    lazy.leadership_changed(broker.node.replicas.partitions[TRANSACTION_STATE, 0])
    assert lazy.components is None
    assert not lazy.tasks.running
    lazy.open()
    await eventually(lambda: lazy.components is not None)
    await eventually(lambda: lazy.ensure_created().coordinator.store.is_led(0))


async def test_partition_led_after_open_is_loaded_at_once(
    broker: Broker, lazy: LazyTransactions
) -> None:
    lazy.open()
    assert not lazy.tasks.running
    lazy.leadership_changed(broker.node.replicas.partitions[TRANSACTION_STATE, 0])
    await eventually(lambda: lazy.components is not None)


async def test_first_request_creates_the_coordinator(lazy: LazyTransactions) -> None:
    coordinator = lazy.ensure_created().coordinator
    assert lazy.ensure_created().coordinator is coordinator
    assert not coordinator.store.led


async def test_verification_without_transactions_here(
    broker: Broker, lazy: LazyTransactions
) -> None:
    """The broker leads the partition, but has not loaded it."""
    partition = TopicPartition("orders", 0)
    found = await lazy.verify("app", 1000, 0, [partition])
    assert found == {partition: ErrorCode.NOT_COORDINATOR}
    index = lazy.ensure_created().coordinator.store.partition_for("app")
    lazy.leadership_changed(broker.node.replicas.partitions[TRANSACTION_STATE, index])
    found = await lazy.verify("app", 1000, 0, [partition])
    assert found == {partition: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
