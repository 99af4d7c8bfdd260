"""Requests of transactional producers to a broker with real logs and sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar, cast
from uuid import uuid4

import pytest
from msgspec.structs import replace

from barnabas.broker.lazy_transactions import LazyTransactions
from barnabas.client.connection import BrokerConnection
from barnabas.errors import ErrorCode
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.model import TopicPartition
from barnabas.transactions.transaction import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT
from barnabas.wire.codec import Message
from barnabas.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.messages.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.wire.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.unit.replication.nodes import NOW_MS, Node, Nodes, eventually

R = TypeVar("R", bound=Message)

TOPICS = {name: uuid4() for name in ("orders", TRANSACTION_STATE, CONSUMER_OFFSETS)}
NONE = ErrorCode.NONE
ORDERS = AddPartitionsToTxnTopic("orders", (0, 1))


class CountedIds:
    def __init__(self) -> None:
        self.last = 999

    async def take(self, _: object) -> int:
        self.last += 1
        return self.last


class Broker:
    """A broker that leads two partitions of each topic."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.node = nodes[1]

    async def start(self) -> None:
        await self.nodes.start()
        node = self.node
        node.router.context = replace(node.context, producer_ids=cast(Any, CountedIds()))
        self.context = node.router.context
        self.context.lazy_transactions.open()
        await self.lead()
        self.connection = await BrokerConnection.open(
            node.network, "127.0.0.1", node.port, client_id="test", timeout_s=10
        )

    async def lead(
        self, epoch: int = 0, *, isr: tuple[int, ...] = (1,), replicas: tuple[int, ...] = (1,)
    ) -> None:
        """Become leader of all partitions, and wait until the transactions are loaded."""
        states = tuple(
            LeaderAndIsrPartitionState(
                partition_index=index,
                leader=1,
                leader_epoch=epoch,
                isr=isr,
                partition_epoch=epoch,
                replicas=replicas,
                is_new=epoch == 0,
            )
            for index in range(2)
        )
        await self.node.update_metadata(
            UpdateMetadataRequest(
                controller_id=1,
                controller_epoch=1,
                topic_states=tuple(
                    UpdateMetadataTopicState(
                        name,
                        topic_id,
                        tuple(
                            UpdateMetadataPartitionState(
                                partition_index=index, leader=1, replicas=(1,)
                            )
                            for index in range(2)
                        ),
                    )
                    for name, topic_id in TOPICS.items()
                ),
                live_brokers=(
                    UpdateMetadataBroker(
                        id=1,
                        endpoints=(
                            UpdateMetadataEndpoint(self.node.port, "127.0.0.1", "PLAINTEXT"),
                        ),
                    ),
                ),
            )
        )
        await self.node.leader_and_isr(
            LeaderAndIsrRequest(
                controller_id=1,
                controller_epoch=1,
                topic_states=tuple(
                    LeaderAndIsrTopicState(name, topic_id, states)
                    for name, topic_id in TOPICS.items()
                ),
            )
        )
        await eventually(lambda: len(self.context.transactions.store.led) == 2)

    async def send(self, request: Message, response: type[R], *, version: int | None = None) -> R:
        return await self.connection.exchange(request, response, timeout_s=10, max_version=version)

    async def init(
        self,
        *,
        producer: tuple[int, int] = (-1, -1),
        timeout_ms: int = 60_000,
        version: int | None = None,
        transactional_id: str = "app",
    ) -> tuple[int, int, int]:
        answer = await self.send(
            InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=producer[0],
                producer_epoch=producer[1],
            ),
            InitProducerIdResponse,
            version=version,
        )
        return answer.error_code, answer.producer_id, answer.producer_epoch

    async def add(
        self,
        *topics: AddPartitionsToTxnTopic,
        epoch: int = 0,
        producer_id: int = 1000,
        version: int = 3,
    ) -> dict[TopicPartition, int]:
        answer = await self.send(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="app",
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            ),
            AddPartitionsToTxnResponse,
            version=version,
        )
        return {
            TopicPartition(topic.name, result.partition_index): result.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }

    async def end(self, *, epoch: int = 0, commit: bool = True, version: int | None = None) -> int:
        request = EndTxnRequest(
            transactional_id="app", producer_id=1000, producer_epoch=epoch, committed=commit
        )
        return (await self.send(request, EndTxnResponse, version=version)).error_code

    async def describe(self, *ids: str) -> tuple[DescribedTransaction, ...]:
        request = DescribeTransactionsRequest(transactional_ids=ids)
        return (await self.send(request, DescribeTransactionsResponse)).transaction_states


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    made = Broker(Nodes(Node(1)))
    await made.start()
    yield made
    made.connection.close()
    await made.context.lazy_transactions.stop()
    await made.context.lazy_groups.stop()
    await made.nodes.stop()


async def test_transaction_is_stored_and_described(broker: Broker) -> None:
    assert await broker.init() == (NONE, 1000, 0)
    assert await broker.add(ORDERS) == {
        TopicPartition("orders", 0): NONE,
        TopicPartition("orders", 1): NONE,
    }
    assert await broker.describe("app", "other", "") == (
        DescribedTransaction(
            NONE,
            "app",
            "Ongoing",
            60_000,
            NOW_MS,
            1000,
            0,
            (DescribedTransactionTopic("orders", (0, 1)),),
        ),
        DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "other"),
        DescribedTransaction(ErrorCode.INVALID_REQUEST, ""),
    )
    assert await broker.end() == NONE
    assert broker.context.transactions.transactions["app"].state in (
        PREPARE_COMMIT,
        COMPLETE_COMMIT,
    )


async def test_offsets_of_a_group(broker: Broker) -> None:
    await broker.init()
    request = AddOffsetsToTxnRequest(
        transactional_id="app", producer_id=1000, producer_epoch=0, group_id="group"
    )
    assert (await broker.send(request, AddOffsetsToTxnResponse)).error_code == NONE
    index = broker.context.group_store.partition_for("group")
    (described,) = await broker.describe("app")
    assert described.topics == (DescribedTransactionTopic(CONSUMER_OFFSETS, (index,)),)


@pytest.mark.parametrize("version", range(5))
async def test_fenced_offsets(broker: Broker, version: int) -> None:
    await broker.init()
    request = AddOffsetsToTxnRequest(
        transactional_id="app", producer_id=1000, producer_epoch=9, group_id="group"
    )
    answer = await broker.send(request, AddOffsetsToTxnResponse, version=version)
    assert answer.error_code == fenced_code(version, since=2)


def fenced_code(version: int, *, since: int) -> ErrorCode:
    is_old = version < since
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_old else ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", range(5))
async def test_fenced_end(broker: Broker, version: int) -> None:
    await broker.init()
    assert await broker.end(epoch=9, version=version) == fenced_code(version, since=2)


@pytest.mark.parametrize("version", range(4))
async def test_fenced_partitions(broker: Broker, version: int) -> None:
    await broker.init()
    codes = await broker.add(ORDERS, epoch=9, version=version)
    assert set(codes.values()) == {fenced_code(version, since=2)}


@pytest.mark.parametrize("version", range(3, 6))
async def test_fenced_init(broker: Broker, version: int) -> None:
    await broker.init()
    await broker.init()
    found = await broker.init(producer=(1000, 0), version=version)
    assert found == (fenced_code(version, since=4), -1, -1)


@pytest.mark.parametrize("producer", [(1000, -1), (-1, 5)])
async def test_half_an_identity_is_invalid(broker: Broker, producer: tuple[int, int]) -> None:
    assert await broker.init(producer=producer) == (ErrorCode.INVALID_REQUEST, -1, -1)


async def test_invalid_init(broker: Broker) -> None:
    assert await broker.init(transactional_id="") == (ErrorCode.INVALID_REQUEST, -1, -1)
    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert await broker.init(timeout_ms=900_001) == (code, -1, -1)


async def test_unknown_partition_prevents_all(broker: Broker) -> None:
    await broker.init()
    codes = await broker.add(ORDERS, AddPartitionsToTxnTopic("gone", (0,)))
    assert codes == {
        TopicPartition("orders", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        TopicPartition("orders", 1): ErrorCode.OPERATION_NOT_ATTEMPTED,
        TopicPartition("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert broker.context.transactions.transactions["app"].state is EMPTY


async def test_clients_cannot_add_internal_topics(broker: Broker) -> None:
    await broker.init()
    codes = await broker.add(AddPartitionsToTxnTopic(CONSUMER_OFFSETS, (0,)))
    assert set(codes.values()) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("version", [4, 5])
async def test_brokers_verify_many_transactions(broker: Broker, version: int) -> None:
    await broker.init()
    await broker.add(AddPartitionsToTxnTopic("orders", (0,)))

    def transaction(name: str, epoch: int = 0) -> AddPartitionsToTxnTransaction:
        nowhere = AddPartitionsToTxnTopic("gone", ())
        return AddPartitionsToTxnTransaction(name, 1000, epoch, True, (ORDERS, nowhere))

    request = AddPartitionsToTxnRequest(transactions=(transaction("app"), transaction("other")))
    answer = await broker.send(request, AddPartitionsToTxnResponse, version=version)

    def result(name: str, *codes: ErrorCode) -> AddPartitionsToTxnResult:
        found = tuple(
            AddPartitionsToTxnPartitionResult(index, code) for index, code in enumerate(codes)
        )
        return AddPartitionsToTxnResult(name, (AddPartitionsToTxnTopicResult("orders", found),))

    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert answer.results_by_transaction == (
        result("app", NONE, ErrorCode.TRANSACTION_ABORTABLE),
        result("other", unknown, unknown),
    )


async def test_list_filters(broker: Broker) -> None:
    await broker.init()
    await broker.init(transactional_id="other")
    await broker.add(ORDERS)
    app = ListedTransaction("app", 1000, "Ongoing")
    other = ListedTransaction("other", 1001, "Empty")

    async def listed(**filters: Any) -> tuple[set[ListedTransaction], tuple[str, ...]]:
        answer = await broker.send(ListTransactionsRequest(**filters), ListTransactionsResponse)
        assert answer.error_code == NONE
        return set(answer.transaction_states), answer.unknown_state_filters

    assert await listed() == ({app, other}, ())
    assert await listed(state_filters=("Ongoing",)) == ({app}, ())
    assert await listed(state_filters=("ongoing", "Dead")) == (set(), ("ongoing",))
    assert await listed(producer_id_filters=(1001, 5)) == ({other}, ())
    assert await listed(duration_filter=0) == ({other}, ()), "the start of `other` is -1"


async def test_transactions_are_loaded_from_the_log(broker: Broker) -> None:
    await broker.init()
    await broker.add(ORDERS)
    await broker.init(transactional_id="other")
    replicas = broker.node.replicas
    loaded = LazyTransactions(replicas, broker.node.network)
    loaded.open()
    for index in range(2):
        loaded.leadership_changed(replicas.partitions[TRANSACTION_STATE, index])
    coordinator = loaded.ensure_created().coordinator
    await eventually(lambda: len(coordinator.store.led) == 2)
    assert {name: each.metadata for name, each in coordinator.transactions.items()} == {
        name: replace(each.metadata, last_producer_id=-1)
        for name, each in broker.context.transactions.transactions.items()
    }
    assert coordinator.transactions["app"].state is ONGOING
    await loaded.stop()


async def test_lost_leadership(broker: Broker) -> None:
    await broker.init()
    replicas = broker.node.replicas
    loader = broker.context.lazy_transactions.ensure_created().loader
    index = broker.context.transactions.store.partition_for("app")
    partition = replicas.partitions[TRANSACTION_STATE, index]
    partition.leader = cast(Any, 2)
    loader.leadership_changed(partition)
    assert await broker.init() == (ErrorCode.NOT_COORDINATOR, -1, -1)
    partition.leader = cast(Any, 1)
    loader.leadership_changed(partition)
    assert index in broker.context.transactions.store.loading
    await eventually(lambda: broker.context.transactions.store.is_led(index))
    assert await broker.init() == (NONE, 1000, 1)
