"""Markers over real sockets to a broker that answers as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

import pytest

from barnabas.errors import ErrorCode
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.topic_names import TRANSACTION_STATE
from barnabas.model import BrokerId, TopicPartition
from barnabas.transactions import leader_exchange
from barnabas.transactions.marker_channels import MarkerChannels
from barnabas.transactions.markers import MarkerEntry
from barnabas.transactions.transaction import Transaction
from barnabas.transactions.transaction_events import ProducerIdentity, create_transaction
from barnabas.wire.codec import decode, encode
from barnabas.wire.headers import decode_request_header, encode_response_header
from barnabas.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.world.network import SocketNetwork
from tests.unit.replication.nodes import eventually

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NONE = ErrorCode.NONE


class MarkerBroker:
    """Accepts WriteTxnMarkers. `codes` has the error codes of the next requests; `gate` delays
    them; `drops` is the number of requests that it answers by closing the connection.
    """

    def __init__(self) -> None:
        self.requests: list[WriteTxnMarkersRequest] = []
        self.codes: list[ErrorCode] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.drops = 0

    async def start(self) -> int:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while size := await reader.read(4):
                frame = await reader.readexactly(int.from_bytes(size, "big"))
                header, at = decode_request_header(memoryview(frame))
                request = decode(WriteTxnMarkersRequest, header.api_version, frame, at)
                self.requests.append(request)
                if self.drops:
                    self.drops -= 1
                    return
                await self.gate.wait()
                code = self.codes.pop(0) if self.codes else NONE
                body = encode(answer_to(request, code), header.api_version)
                head = encode_response_header(
                    header.api_key, header.api_version, header.correlation_id
                )
                writer.write((len(head) + len(body)).to_bytes(4, "big") + head + body)
        finally:
            writer.close()


def answer_to(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(
                marker.producer_id,
                tuple(
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        tuple(
                            WritableTxnMarkerPartitionResult(index, code)
                            for index in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for marker in request.markers
        )
    )


class Owner:
    def __init__(self) -> None:
        self.written: dict[str, set[TopicPartition]] = {}
        self.dropped: set[str] = set()

    def is_current(self, transaction: Transaction) -> bool:
        return transaction.transactional_id not in self.dropped

    def markers_written(
        self, transaction: Transaction, partitions: Collection[TopicPartition]
    ) -> None:
        self.written.setdefault(transaction.transactional_id, set()).update(partitions)


class Harness:
    def __init__(self) -> None:
        self.broker = MarkerBroker()
        self.owner = Owner()
        self.metadata = MetadataCache("cluster")
        self.port = 0
        self.channels = MarkerChannels(
            broker_id=BrokerId(1),
            network=SocketNetwork(),
            metadata=self.metadata,
            listener="PLAINTEXT",
            timeout_s=5.0,
            owner=self.owner,
        )

    def update(self, leader: int = 2, topics: tuple[str, ...] = ("orders",)) -> None:
        states = tuple(
            UpdateMetadataPartitionState(partition_index=index, leader=leader, replicas=(2,))
            for index in range(2)
        )
        endpoint = UpdateMetadataEndpoint(self.port, "127.0.0.1", "PLAINTEXT")
        self.metadata.update(
            UpdateMetadataRequest(
                controller_id=1,
                controller_epoch=1,
                topic_states=tuple(
                    UpdateMetadataTopicState(name, partition_states=states)
                    for name in (TRANSACTION_STATE, *topics)
                ),
                live_brokers=(UpdateMetadataBroker(id=max(leader, 2), endpoints=(endpoint,)),),
            )
        )


def entry(name: str = "app", *partitions: TopicPartition, producer_id: int = 1000) -> MarkerEntry:
    return MarkerEntry(
        create_transaction(name, producer_id, 1000, 0),
        ProducerIdentity(producer_id, 5),
        True,
        7,
        frozenset(partitions or [P0, P1]),
    )


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    made = Harness()
    made.port = await made.broker.start()
    made.update()
    yield made
    await made.channels.stop()
    made.broker.server.close()


async def test_markers_reach_the_leader(harness: Harness) -> None:
    harness.channels.send(entry())
    await eventually(lambda: harness.owner.written == {"app": {P0, P1}})
    (request,) = harness.broker.requests
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (1000, 5, 7)


async def test_markers_that_wait_share_a_request(harness: Harness) -> None:
    harness.broker.gate.clear()
    harness.channels.send(entry())
    await eventually(lambda: len(harness.broker.requests) == 1)
    for number in range(10):
        harness.channels.send(entry(f"app-{number}", P0, producer_id=number))
    harness.broker.gate.set()
    await eventually(lambda: len(harness.owner.written) == 11)
    assert [len(request.markers) for request in harness.broker.requests] == [1, 10]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
async def test_markers_are_retried(harness: Harness, code: ErrorCode) -> None:
    harness.broker.codes = [code, code]
    harness.channels.send(entry())
    await eventually(lambda: harness.owner.written == {"app": {P0, P1}})
    assert len(harness.broker.requests) == 3


async def test_lost_connection_is_retried(harness: Harness) -> None:
    harness.broker.drops = 2
    harness.channels.send(entry())
    await eventually(lambda: harness.owner.written == {"app": {P0, P1}})
    assert len(harness.broker.requests) == 3


async def test_markers_go_to_the_next_leader_if_a_paused_broker_does_not_respond(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_exchange, "LEADER_CHECK_SECONDS", 0.01)
    harness.broker.gate.clear()
    harness.channels.send(entry())
    await eventually(lambda: len(harness.broker.requests) == 1)
    successor = MarkerBroker()
    harness.port = await successor.start()
    harness.update(leader=3)
    await eventually(lambda: harness.owner.written == {"app": {P0, P1}})
    assert len(successor.requests) == 1
    harness.broker.gate.set()
    successor.server.close()


async def test_superseded_marker_is_not_repeated(harness: Harness) -> None:
    harness.broker.codes = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    harness.channels.send(entry())
    harness.channels.send(entry("other", P0, producer_id=2000))
    await eventually(lambda: len(harness.broker.requests) >= 1)
    harness.channels.send(entry("last", P0, producer_id=3000))
    await eventually(lambda: "last" in harness.owner.written)
    assert "app" not in harness.owner.written
    assert not harness.channels.waiting


async def test_deleted_partitions_need_no_marker(harness: Harness) -> None:
    gone = TopicPartition("gone", 0)
    harness.channels.send(entry("app", gone, P0))
    assert harness.owner.written == {"app": {gone}}
    await eventually(lambda: harness.owner.written == {"app": {gone, P0}})


async def test_no_partition_counts_as_deleted_without_metadata(harness: Harness) -> None:
    harness.channels.metadata = MetadataCache("cluster")
    harness.channels.send(entry())
    assert harness.owner.written == {}
    harness.channels.metadata = harness.metadata
    await eventually(lambda: harness.owner.written == {"app": {P0, P1}})


async def test_markers_wait_for_a_leader(harness: Harness) -> None:
    harness.update(leader=-1)
    harness.channels.send(entry())
    await asyncio.sleep(0)
    assert harness.channels.waiting
    harness.update(leader=2)
    await eventually(lambda: harness.owner.written == {"app": {P0, P1}})


async def test_transaction_without_partitions_is_complete(harness: Harness) -> None:
    harness.channels.send(entry()._replace(partitions=frozenset()))
    assert harness.owner.written == {"app": set()}


async def test_markers_of_another_coordinator_are_dropped(harness: Harness) -> None:
    harness.update(leader=-1)
    harness.channels.send(entry())
    harness.owner.dropped.add("app")
    harness.update(leader=2)
    await eventually(lambda: not harness.channels.waiting and not harness.channels.is_retrying)
    harness.channels.send(entry())
    assert harness.broker.requests == []
