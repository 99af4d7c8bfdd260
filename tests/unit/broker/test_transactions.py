"""Transaction markers, and reads of committed records, through the requests of coordinators and consumers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from barnabas.batch.header import BatchHeader, batch_headers
from barnabas.client.connection import BrokerConnection
from barnabas.errors import ErrorCode
from barnabas.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.unit.replication.nodes import NOW_MS, TOPIC, Node, Nodes
from tests.unit.storage.builders import batch

LATEST = -1


class Leader:
    """The leader of one partition, and a connection to it."""

    def __init__(self, nodes: Nodes, connection: BrokerConnection) -> None:
        self.nodes = nodes
        self.node = nodes[1]
        self.connection = connection
        self.sequences: dict[int, int] = {}

    def produce(self, producer: int, epoch: int = 0) -> None:
        """Append a transactional batch, without a verification."""
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        data = batch(
            [b"v"],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        self.node.partition().append(data, BatchHeader(data), acks=1, now_ms=NOW_MS)

    async def end(
        self,
        producer: int,
        *,
        commit: bool,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        topic: str = TOPIC,
        index: int = 0,
    ) -> int:
        """Write a marker, and return the error code."""
        topics = (WritableTxnMarkerTopic(topic, (index,)),)
        marker = WritableTxnMarker(producer, epoch, commit, topics, coordinator_epoch)
        request = WriteTxnMarkersRequest(markers=(marker,))
        response = await self.connection.exchange(request, WriteTxnMarkersResponse, timeout_s=10)
        ((found_producer, ((found_topic, ((found_index, code),)),)),) = response.markers
        assert (found_producer, found_topic, found_index) == (producer, topic, index)
        return code

    async def fetch(self, offset: int, *, committed: bool) -> PartitionData:
        wanted = FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=0
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            isolation_level=int(committed),
            topics=(FetchTopic(topic_id=self.nodes.topic_id, partitions=(wanted,)),),
        )
        response = await self.connection.exchange(request, FetchResponse, timeout_s=10)
        return response.responses[0].partitions[0]

    async def latest(self, *, committed: bool) -> int:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=(ListOffsetsTopic(TOPIC, (ListOffsetsPartition(0, timestamp=LATEST),)),),
        )
        response = await self.connection.exchange(request, ListOffsetsResponse, timeout_s=10)
        return response.topics[0].partitions[0].offset


def offsets_in(data: PartitionData) -> list[int]:
    records = memoryview(data.records or b"")
    return [header.base_offset for _, header in batch_headers(records)]


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    nodes = Nodes(Node(1))
    await nodes.start()
    await nodes.lead(1)
    await nodes.send_metadata(partitions=1)
    node = nodes[1]
    connection = await BrokerConnection.open(
        node.network, "127.0.0.1", node.port, client_id="test", timeout_s=10
    )
    yield Leader(nodes, connection)
    connection.close()
    await nodes.stop()


async def test_consumer_reads_up_to_last_stable_offset(leader: Leader) -> None:
    leader.node.append(b"plain")
    leader.produce(7)
    leader.node.append(b"plain")
    for committed, found in ((False, [0, 1, 2]), (True, [0])):
        data = await leader.fetch(0, committed=committed)
        assert offsets_in(data) == found
        assert (data.high_watermark, data.last_stable_offset) == (3, 1)
        assert data.aborted_transactions == (() if committed else None)
    assert await leader.latest(committed=True) == 1
    assert await leader.latest(committed=False) == 3
    assert await leader.end(7, commit=True) == ErrorCode.NONE
    data = await leader.fetch(0, committed=True)
    assert offsets_in(data) == [0, 1, 2, 3]
    assert data.last_stable_offset == await leader.latest(committed=True) == 4


async def test_consumer_gets_aborted_transactions(leader: Leader) -> None:
    leader.produce(7)
    leader.produce(8)
    assert await leader.end(8, commit=False) == ErrorCode.NONE
    assert await leader.end(7, commit=True) == ErrorCode.NONE
    leader.produce(7)
    assert await leader.end(7, commit=False) == ErrorCode.NONE
    data = await leader.fetch(0, committed=True)
    assert offsets_in(data) == [0, 1, 2, 3, 4, 5]
    assert data.aborted_transactions == (AbortedTransaction(8, 1), AbortedTransaction(7, 4))
    data = await leader.fetch(3, committed=True)
    assert data.aborted_transactions == (AbortedTransaction(7, 4),)
    assert (await leader.fetch(0, committed=False)).aborted_transactions is None


async def test_repeated_fetch_gets_aborted_transactions(leader: Leader) -> None:
    """The same request, several times on one connection, takes a fast path."""
    for producer in (7, 8):
        leader.produce(producer)
        assert await leader.end(producer, commit=producer == 7) == ErrorCode.NONE
    leader.produce(9)
    for _ in range(5):
        data = await leader.fetch(0, committed=True)
        assert offsets_in(data) == [0, 1, 2, 3]
        assert data.aborted_transactions == (AbortedTransaction(8, 2),)
        assert (data.high_watermark, data.last_stable_offset) == (5, 4)
    for _ in range(5):
        data = await leader.fetch(1, committed=False)
        assert offsets_in(data) == [1, 2, 3, 4]
        assert (data.high_watermark, data.last_stable_offset) == (5, 4)


async def test_old_epochs_are_fenced(leader: Leader) -> None:
    leader.produce(7, epoch=3)
    assert await leader.end(7, commit=True, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await leader.end(7, commit=True, epoch=3, coordinator_epoch=5) == ErrorCode.NONE
    code = await leader.end(7, commit=True, epoch=3, coordinator_epoch=4)
    assert code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert leader.node.partition().log.log_end_offset == 2


async def test_marker_for_unknown_partition_is_rejected(leader: Leader) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await leader.end(7, commit=True, index=5) == unknown
    assert await leader.end(7, commit=True, topic="nothing") == unknown


@pytest.mark.parametrize(("producer", "epoch"), [(-1, 0), (7, -1)])
async def test_marker_without_producer_is_rejected(
    leader: Leader, producer: int, epoch: int
) -> None:
    code = await leader.end(producer, commit=True, epoch=epoch)
    assert code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert leader.node.partition().log.log_end_offset == 0


async def test_markers_of_one_producer_share_a_result(leader: Leader) -> None:
    leader.produce(7)
    topics = (WritableTxnMarkerTopic(TOPIC, (0, 9)),)
    markers = tuple(WritableTxnMarker(each, 0, True, topics, 0) for each in (7, 7, 8))
    response = await leader.connection.exchange(
        WriteTxnMarkersRequest(markers=markers), WriteTxnMarkersResponse, timeout_s=10
    )
    result = ((TOPIC, ((0, 0), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))),)
    assert response.markers == ((7, result), (8, result))
    nowhere = WritableTxnMarker(7, 0, True, (WritableTxnMarkerTopic(TOPIC, ()),), 0)
    for nothing in ((), (nowhere,)):
        empty = await leader.connection.exchange(
            WriteTxnMarkersRequest(markers=nothing), WriteTxnMarkersResponse, timeout_s=10
        )
        assert empty.markers == ()
