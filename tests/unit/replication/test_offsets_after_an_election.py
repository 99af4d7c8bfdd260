"""ListOffsets on a new leader that does not know the high watermark of its predecessor yet."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from barnabas.broker.bounded_work import run_to_end
from barnabas.broker.handlers import list_offsets
from barnabas.errors import ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.unit.replication.nodes import NO_CONNECTION, NOW_MS, TOPIC, Node, Nodes, eventually

CONSUMER, FOLLOWER = -1, 2


@pytest.fixture
async def two_nodes() -> AsyncIterator[Nodes]:
    """Broker 1 leads two records in a new epoch, before any fetch of broker 2."""
    nodes = Nodes(Node(1), Node(2))
    await nodes.start()
    await nodes.lead(1, to=(1,))
    nodes[1].append(b"one", b"two")
    await nodes.lead(1, epoch=1, to=(1,))
    yield nodes
    await nodes.stop()


def list_offset(
    nodes: Nodes, timestamp: int, *, version: int = 9, replica: int = CONSUMER
) -> ListOffsetsPartitionResponse:
    request = ListOffsetsRequest(
        replica_id=replica,
        topics=(ListOffsetsTopic(TOPIC, (ListOffsetsPartition(0, timestamp=timestamp),)),),
    )
    header = RequestHeader(ListOffsetsRequest.API_KEY, version, 0, None)
    answer = run_to_end(list_offsets.handle(nodes[1].context, request, header, NO_CONNECTION))
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("timestamp", [LATEST_TIMESTAMP, MAX_TIMESTAMP, NOW_MS])
async def test_latest_offsets_are_unavailable_until_followers_fetch(
    two_nodes: Nodes, timestamp: int
) -> None:
    assert list_offset(two_nodes, timestamp).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    await two_nodes.lead(1, epoch=1, to=(2,))
    await eventually(lambda: two_nodes[1].partition().log.high_watermark == 2)
    answer = list_offset(two_nodes, timestamp)
    expected = {LATEST_TIMESTAMP: 2, MAX_TIMESTAMP: 0, NOW_MS: 0}
    assert (answer.error_code, answer.offset) == (ErrorCode.NONE, expected[timestamp])


async def test_old_clients_get_leader_not_available(two_nodes: Nodes) -> None:
    answer = list_offset(two_nodes, LATEST_TIMESTAMP, version=4)
    assert answer.error_code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_earliest_and_follower_offsets_are_available(two_nodes: Nodes) -> None:
    assert list_offset(two_nodes, EARLIEST_TIMESTAMP).offset == 0
    assert list_offset(two_nodes, LATEST_TIMESTAMP, replica=FOLLOWER).offset == 2
