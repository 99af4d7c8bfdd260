"""Produce requests of transactions wait for a verification by the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec.structs import replace

from barnabas.batch.header import BatchHeader
from barnabas.batch.markers import Marker, build_marker
from barnabas.broker.transaction_verification import Codes
from barnabas.client.connection import BrokerConnection
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.unit.replication.nodes import NOW_MS, TOPIC, Node, Nodes, eventually
from tests.unit.storage.builders import batch

FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


class Coordinator:
    """The coordinator, as brokers see it. A test decides when and how it responds."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, int, int, list[TopicPartition]]] = []
        self.futures: list[asyncio.Future[Codes]] = []
        self.codes: Codes | None = {}
        """The response, or None to wait."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> asyncio.Future[Codes]:
        self.requests.append((transactional_id, producer_id, producer_epoch, list(partitions)))
        future: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        if self.codes is not None:
            future.set_result(self.codes)
        self.futures.append(future)
        return future


class Leader:
    def __init__(self, node: Node, connection: BrokerConnection, coordinator: Coordinator) -> None:
        self.node = node
        self.connection = connection
        self.coordinator = coordinator
        self.log_start_offsets: list[int] = []
        """Those in the last response."""

    async def produce(
        self, sequence: int, *partitions: int, producers: tuple[int, ...] = (7, 7), acks: int = 1
    ) -> list[int]:
        """Send a transactional batch to each partition, and return the error codes."""
        data = tuple(
            PartitionProduceData(
                index,
                batch(
                    [b"v"],
                    producer_id=producers[index],
                    producer_epoch=0,
                    base_sequence=sequence,
                    is_transactional=True,
                ),
            )
            for index in partitions
        )
        request = ProduceRequest(
            transactional_id="tx",
            acks=acks,
            timeout_ms=1000,
            topic_data=(TopicProduceData(TOPIC, data),),
        )
        response = await self.connection.exchange(request, ProduceResponse, timeout_s=10)
        results = response.responses[0].partition_responses
        self.log_start_offsets = [each.log_start_offset for each in results]
        return [each.error_code for each in results]

    def abort(self, index: int = 0) -> None:
        data = build_marker(
            producer_id=7, producer_epoch=0, marker=Marker(False, 0), timestamp=NOW_MS
        )
        partition = self.node.partition(index)
        partition.append(memoryview(data), BatchHeader(data), acks=-1, now_ms=NOW_MS)


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    nodes = Nodes(Node(1))
    await nodes.start()
    await nodes.lead(1, partitions=2)
    await nodes.send_metadata(partitions=2)
    node, coordinator = nodes[1], Coordinator()
    node.router.context = replace(node.context, verifier=coordinator)
    connection = await BrokerConnection.open(
        node.network, "127.0.0.1", node.port, client_id="test", timeout_s=10
    )
    yield Leader(node, connection, coordinator)
    connection.close()
    await nodes.stop()


async def test_only_new_partitions_of_a_transaction_are_verified(leader: Leader) -> None:
    requests = leader.coordinator.requests
    assert await leader.produce(0, 0) == [0]
    assert requests == [("tx", 7, 0, [FIRST])]
    assert await leader.produce(1, 0) == [0]
    assert len(requests) == 1
    assert await leader.produce(2, 0) == [0]
    assert await leader.produce(0, 1) == [0]
    assert requests[1:] == [("tx", 7, 0, [SECOND])]
    leader.abort()
    assert await leader.produce(3, 0) == [0]
    assert len(requests) == 3


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
async def test_unverified_batch_is_not_written(
    leader: Leader, code: ErrorCode, expected: ErrorCode
) -> None:
    leader.coordinator.codes = {FIRST: code}
    assert await leader.produce(0, 0, 1) == [expected, 0]
    assert leader.log_start_offsets == [-1, 0]
    assert leader.node.partition(0).log.log_end_offset == 0
    assert leader.node.partition(1).log.log_end_offset == 1


async def test_batch_is_rejected_if_its_transaction_ends_during_verification(
    leader: Leader,
) -> None:
    leader.coordinator.codes = None
    produced = asyncio.ensure_future(leader.produce(0, 0))
    await eventually(lambda: bool(leader.coordinator.futures))
    leader.abort()
    leader.coordinator.futures[0].set_result({})
    assert await produced == [ErrorCode.INVALID_TXN_STATE]


async def test_later_requests_wait_for_a_verification(leader: Leader) -> None:
    leader.coordinator.codes = None
    first = asyncio.ensure_future(leader.produce(0, 0))
    second = asyncio.ensure_future(leader.produce(1, 0))
    await eventually(lambda: bool(leader.coordinator.futures))
    await asyncio.sleep(0)
    leader.coordinator.futures[0].set_result({})
    assert [await first, await second] == [[0], [0]]
    assert len(leader.coordinator.futures) == 1


async def test_request_with_two_transactional_producers_is_rejected(leader: Leader) -> None:
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await leader.produce(0, 0, 1, producers=(7, 8)) == [code, code]
    assert leader.coordinator.requests == []


async def test_verification_can_be_disabled(leader: Leader) -> None:
    current = leader.node.context.current_config
    current.value = replace(current.value, transaction_partition_verification_enable=False)
    leader.coordinator.codes = {FIRST: ErrorCode.INVALID_TXN_STATE}
    assert await leader.produce(0, 0) == [0]
    assert leader.coordinator.requests == []
