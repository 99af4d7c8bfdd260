"""Whole transactions on a broker that coordinates them and leads their partitions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.batch.header import BatchHeader
from barnabas.broker.lazy_transactions import LazyTransactions
from barnabas.errors import ErrorCode
from barnabas.metadata.topic_names import TRANSACTION_STATE
from barnabas.transactions.coordinator_checks import coordinated_transactions
from barnabas.transactions.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, TransactionState
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.unit.broker.test_transaction_requests import ORDERS, Broker
from tests.unit.history.coordinator_events import CoordinatorEventList
from tests.unit.replication.nodes import NOW_MS, Node, Nodes, eventually
from tests.unit.storage.builders import batch


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    made = Broker(Nodes(Node(1)))
    await made.start()
    yield made
    made.connection.close()
    await made.context.lazy_transactions.stop()
    await made.context.lazy_groups.stop()
    await made.nodes.stop()


def produce(broker: Broker, index: int, epoch: int = 0, sequence: int = 0) -> None:
    data = batch(
        [b"value"],
        producer_id=1000,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    partition = broker.node.partition(index)
    partition.append(data, BatchHeader(data), acks=1, now_ms=NOW_MS)


def ends(broker: Broker) -> list[tuple[int, int]]:
    """Return the last stable offset and the log end offset of both partitions."""
    logs: list[Any] = [broker.node.partition(index).log for index in range(2)]
    return [(log.last_stable_offset, log.log_end_offset) for log in logs]


async def wait_for_state(broker: Broker, state: TransactionState) -> None:
    transaction = broker.context.transactions.transactions["app"]
    await eventually(lambda: transaction.state is state and transaction.pending is None)


@pytest.mark.parametrize("commit", [True, False])
async def test_end_writes_a_marker_to_each_partition(broker: Broker, commit: bool) -> None:
    await broker.init()
    await broker.add(ORDERS)
    produce(broker, 0)
    assert ends(broker) == [(0, 1), (0, 0)]
    assert await broker.end(commit=commit) == ErrorCode.NONE
    await wait_for_state(broker, COMPLETE_COMMIT if commit else COMPLETE_ABORT)
    assert ends(broker) == [(2, 2), (1, 1)]
    assert await broker.end(commit=commit) == ErrorCode.NONE, "a retry after a lost response"
    assert await broker.end(commit=not commit) == ErrorCode.INVALID_TXN_STATE


def state_batches(broker: Broker) -> list[int]:
    """Return the number of records in each batch of the transactional id."""
    partition = broker.context.transactions.store.partition_for("app")
    log = broker.node.replicas.find(TRANSACTION_STATE, partition).log
    return [header.count for _, header in log.segments.active.headers()]


async def test_completion_shares_a_batch_with_the_next_move(broker: Broker) -> None:
    await broker.init()
    await broker.add(ORDERS)
    produce(broker, 0)
    assert await broker.end() == ErrorCode.NONE
    assert not any((await broker.add(ORDERS)).values())
    assert state_batches(broker) == [1, 1, 1, 2], "the last one has CompleteCommit and Ongoing"


async def test_completion_is_stored_if_the_next_request_fails(broker: Broker) -> None:
    await broker.init()
    await broker.add(ORDERS)
    assert await broker.end() == ErrorCode.NONE
    coordinator = broker.context.transactions
    waiting = coordinator.wait_for_completion(coordinator.transactions["app"])
    await waiting
    assert coordinator.transactions["app"].state is COMPLETE_COMMIT
    await eventually(lambda: state_batches(broker) == [1, 1, 1, 1])
    assert not coordinator.store.deferred


async def test_new_producer_aborts_the_transaction_of_the_old_one(broker: Broker) -> None:
    await broker.init()
    await broker.add(ORDERS)
    produce(broker, 0)
    assert (await broker.init())[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    await wait_for_state(broker, COMPLETE_ABORT)
    assert await broker.init() == (ErrorCode.NONE, 1000, 2)
    assert await broker.end() == ErrorCode.PRODUCER_FENCED
    assert ends(broker)[0] == (2, 2)


async def test_timed_out_transaction_is_aborted(broker: Broker) -> None:
    await broker.init(timeout_ms=1)
    await broker.add(ORDERS)
    produce(broker, 0)
    transaction = broker.context.transactions.transactions["app"]
    # The clock of the broker stands still, so the transaction starts in the past.
    coordinator = broker.context.transactions
    coordinator.clock = LaterClock()
    async for each in coordinated_transactions(coordinator):
        assert coordinator.abort_if_timed_out(each)
    await wait_for_state(broker, COMPLETE_ABORT)
    assert transaction.metadata.producer_epoch == 1
    assert ends(broker)[0] == (2, 2)


class LaterClock:
    def now_ms(self) -> int:
        return NOW_MS + 10_000


async def test_next_coordinator_completes_a_decided_transaction(broker: Broker) -> None:
    await broker.init()
    await broker.add(ORDERS)
    produce(broker, 0)
    coordinator = broker.context.transactions
    coordinator.channels.retry_later = lambda entry: None  # type: ignore[method-assign]
    coordinator.channels.listener = "UNKNOWN"
    assert await broker.end() == ErrorCode.NONE
    assert ends(broker)[0] == (0, 1), "this coordinator reaches no broker"
    replicas = broker.node.replicas
    following = LazyTransactions(replicas, broker.node.network)
    following.open()
    for index in range(2):
        following.leadership_changed(replicas.partitions[TRANSACTION_STATE, index])
    transactions = following.ensure_created().coordinator.transactions
    await eventually(lambda: "app" in transactions and transactions["app"].state is COMPLETE_COMMIT)
    assert ends(broker) == [(2, 2), (1, 1)]
    await following.stop()


async def test_markers_of_operators_are_in_the_history(broker: Broker) -> None:
    found = CoordinatorEventList()
    broker.node.router.context = replace(broker.context, recorder=found.recorder)
    await broker.init()
    await broker.add(ORDERS)
    produce(broker, 0)
    topics = (WritableTxnMarkerTopic("orders", (0, 7)),)
    marker = WritableTxnMarker(1000, 0, False, topics, -1)
    await broker.send(WriteTxnMarkersRequest(markers=(marker,)), WriteTxnMarkersResponse)
    expected = [("leader", "orders-0", 1000, "aborted", "WriteTxnMarkers", "test", "127.0.0.1")]
    fields = ("role", "partition", "producer_id", "after", "why", "by", "host")
    assert found.facts(*fields) == expected
    assert await broker.end() == ErrorCode.NONE
    await wait_for_state(broker, COMPLETE_COMMIT)
    assert len(found.events) == 1, "markers of the coordinator are not recorded"
