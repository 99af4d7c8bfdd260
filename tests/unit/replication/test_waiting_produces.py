"""Produce requests that wait for replicas while leaders, topics, disks or clients change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Self

import pytest
from msgspec.structs import replace

from barnabas.broker.connection import PENDING_MAX
from barnabas.config import TopicConfig
from barnabas.errors import ErrorCode, StorageError
from barnabas.wire.codec import decode
from barnabas.wire.headers import decode_response_header
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tests.raw_connection import frame
from tests.unit.replication.nodes import TOPIC, Node, Nodes, eventually
from tests.unit.storage.builders import batch, contents

VERSION = 9
LONG_MS = 60_000


class PipelinedClient:
    """Client that sends many requests before it reads a response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.sent = 0
        self.answered = 0

    @classmethod
    async def connect(cls, node: Node) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", node.port))

    def produce(self, *values: bytes, timeout_ms: int = LONG_MS) -> None:
        for value in values:
            data = PartitionProduceData(0, bytes(batch([value])))
            request = ProduceRequest(
                acks=-1, timeout_ms=timeout_ms, topic_data=(TopicProduceData(TOPIC, (data,)),)
            )
            self.writer.write(frame(request, VERSION, self.sent))
            self.sent += 1

    async def answer(self) -> PartitionProduceResponse:
        """Return the next response, which must belong to the next request."""
        async with asyncio.timeout(30):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            data = memoryview(await self.reader.readexactly(size))
        found, at = decode_response_header(ProduceResponse.API_KEY, VERSION, data)
        assert found == self.answered, "responses keep the order of their requests"
        self.answered += 1
        return decode(ProduceResponse, VERSION, data, at).responses[0].partition_responses[0]

    async def answers(self, count: int) -> list[PartitionProduceResponse]:
        return [await self.answer() for _ in range(count)]

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


@pytest.fixture
async def two_nodes() -> AsyncIterator[Nodes]:
    """Broker 1 leads and both are in sync, but broker 2 does not replicate: it has not
    received LeaderAndIsr.
    """
    nodes = Nodes(Node(1), Node(2))
    await nodes.start()
    await nodes.lead(1, to=(1,))
    yield nodes
    await nodes.stop()


@pytest.fixture
async def client(two_nodes: Nodes) -> AsyncIterator[PipelinedClient]:
    connected = await PipelinedClient.connect(two_nodes[1])
    yield connected
    await connected.close()


async def wait_for_pending(nodes: Nodes, count: int) -> None:
    await eventually(lambda: nodes[1].listeners.memory.pending_responses == count, 30)


async def test_many_pipelined_produces_are_answered_in_order(two_nodes: Nodes) -> None:
    clients = [await PipelinedClient.connect(two_nodes[1]) for _ in range(8)]
    for number, client in enumerate(clients):
        client.produce(*(b"%d %d" % (number, each) for each in range(PENDING_MAX + 10)))
    await wait_for_pending(two_nodes, len(clients) * PENDING_MAX)
    await two_nodes.lead(1, to=(2,))
    for client in clients:
        answers = await client.answers(client.sent)
        assert {answer.error_code for answer in answers} == {0}
        offsets = [answer.base_offset for answer in answers]
        assert offsets == sorted(set(offsets))
        await client.close()
    total = len(clients) * (PENDING_MAX + 10)
    assert two_nodes[1].partition().log.high_watermark == total
    records = contents(two_nodes[1].partition().log)
    assert len({*records}) == total
    assert contents(two_nodes[2].partition().log) == records
    await wait_for_pending(two_nodes, 0)


async def test_leader_change_answers_not_leader(two_nodes: Nodes, client: PipelinedClient) -> None:
    client.produce(*[b"lost"] * 5)
    await wait_for_pending(two_nodes, 5)
    await two_nodes.lead(2, epoch=1, isr=(2,), to=(2, 1))
    codes = {answer.error_code for answer in await client.answers(5)}
    assert codes == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    client.produce(b"again")
    assert (await client.answer()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await eventually(lambda: two_nodes[1].partition().log.log_end_offset == 0)


async def test_produce_survives_new_epoch_of_same_leader(
    two_nodes: Nodes, client: PipelinedClient
) -> None:
    client.produce(b"kept")
    await wait_for_pending(two_nodes, 1)
    await two_nodes.lead(1, epoch=1, to=(1,))
    await wait_for_pending(two_nodes, 1)
    await two_nodes.lead(1, epoch=1, to=(2,))
    answer = await client.answer()
    assert (answer.error_code, answer.base_offset) == (0, 0)


async def test_topic_deletion_answers_unknown_topic(
    two_nodes: Nodes, client: PipelinedClient
) -> None:
    client.produce(b"one", b"two")
    await wait_for_pending(two_nodes, 2)
    gone = StopReplicaPartitionState(0, 0, True)
    request = StopReplicaRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=(StopReplicaTopicState(TOPIC, (gone,)),),
    )
    await two_nodes[1].stop_replica(request)
    codes = {answer.error_code for answer in await client.answers(2)}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_broken_disk_answers_storage_error(two_nodes: Nodes, client: PipelinedClient) -> None:
    client.produce(b"one")
    await wait_for_pending(two_nodes, 1)
    partition = two_nodes[1].partition()
    two_nodes[1].replicas.fail(
        partition, StorageError(partition.log.directory, "Input/output error")
    )
    assert (await client.answer()).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_each_produce_has_its_own_timeout(two_nodes: Nodes, client: PipelinedClient) -> None:
    client.produce(b"one", timeout_ms=1)
    client.produce(b"two")
    answer = await client.answer()
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert answer.base_offset == 0, "the record stays in the log"
    await two_nodes.lead(1, to=(2,))
    answer = await client.answer()
    assert (answer.error_code, answer.base_offset) == (0, 1)


async def test_produce_is_not_acknowledged_below_raised_min_insync_replicas(
    two_nodes: Nodes, client: PipelinedClient
) -> None:
    """min.insync.replicas is raised, then the follower leaves the ISR."""
    partition = two_nodes[1].partition()
    client.produce(b"one", timeout_ms=300)
    await eventually(lambda: partition.log.log_end_offset == 1)
    partition.log.use_config(replace(TopicConfig(), min_insync_replicas=2))
    await two_nodes.lead(1, isr=(1,), epoch=1, to=(1,))
    assert partition.log.high_watermark == 0, "unacknowledged records are not visible"
    assert (await client.answer()).error_code == ErrorCode.REQUEST_TIMED_OUT
    client.produce(b"two")
    assert (await client.answer()).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    await two_nodes.lead(1, isr=(1,), epoch=1, to=(2,))
    await eventually(lambda: partition.log.high_watermark == 1)
    assert set(partition.isr) == {1, 2}


async def test_disconnected_client_is_not_awaited_and_records_are_kept(two_nodes: Nodes) -> None:
    client = await PipelinedClient.connect(two_nodes[1])
    client.produce(*[b"kept"] * 3)
    await wait_for_pending(two_nodes, 3)
    await client.close()
    await wait_for_pending(two_nodes, 0)
    partition = two_nodes[1].partition()
    assert all(future.done() for _, future in partition.promises)
    await two_nodes.lead(1, to=(2,))
    await eventually(lambda: partition.log.high_watermark == 3)
    assert not partition.promises


async def test_shutdown_does_not_wait_for_pending_produces(
    two_nodes: Nodes, client: PipelinedClient
) -> None:
    client.produce(*[b"never"] * 3)
    await wait_for_pending(two_nodes, 3)
    async with asyncio.timeout(30):
        await two_nodes[1].listeners.close()
        assert await client.reader.read() == b"", "the connection closes without a response"
    await wait_for_pending(two_nodes, 0)
    assert not two_nodes[1].router.running
