"""A waiting fetch is woken by every relevant change and takes no data from the next fetch of its
session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from msgspec.structs import replace

from barnabas.broker.bounded_work import run_to_end
from barnabas.broker.fetch_reader import PartitionRead
from barnabas.broker.fetch_sessions import FetchSession
from barnabas.broker.handlers.fetch import PARTITIONS_PER_TURN, Fetch, FetchResult, handle
from barnabas.client.connection import BrokerConnection
from barnabas.errors import ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchReplicaState,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from tests.unit.replication.nodes import Node, Nodes, create_connection, eventually

HEADER = RequestHeader(1, 17, 0, None)


@pytest.fixture
async def two_nodes() -> AsyncIterator[Nodes]:
    nodes = Nodes(Node(1), Node(2))
    await nodes.start()
    await nodes.lead(1, to=(1,))
    yield nodes
    await nodes.stop()


async def connect(nodes: Nodes) -> BrokerConnection:
    return await BrokerConnection.open(
        nodes[2].network, "127.0.0.1", nodes[1].port, client_id="f", timeout_s=10
    )


def fetch(
    nodes: Nodes, session_id: int, epoch: int, *offsets: int, wait_ms: int = 60_000
) -> FetchRequest:
    """Build a fetch request of broker 2. It names the partition only if an offset is given."""
    partitions = tuple(
        FetchPartition(
            partition=0,
            current_leader_epoch=0,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=0,
            partition_max_bytes=1 << 20,
        )
        for offset in offsets
    )
    return FetchRequest(
        replica_state=FetchReplicaState(nodes[2].id, -1),
        max_wait_ms=wait_ms,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=(FetchTopic(topic_id=nodes.topic_id, partitions=partitions),) if offsets else (),
    )


def is_waiting(session: FetchSession, epoch: int) -> bool:
    return session.epoch == epoch and session.waiting_fetch is not None


async def test_superseded_fetch_takes_no_updates_of_session(two_nodes: Nodes) -> None:
    leader = two_nodes[1]
    leader.append(b"one")
    former, latter = await connect(two_nodes), await connect(two_nodes)
    try:
        opened = await former.exchange(fetch(two_nodes, 0, 0, 0), FetchResponse, timeout_s=10)
        (session,) = leader.context.sessions.sessions.values()
        # The follower has abandoned this fetch; the leader does not know that yet.
        request = fetch(two_nodes, opened.session_id, 1, 1, wait_ms=300)
        abandoned = asyncio.ensure_future(former.exchange(request, FetchResponse, timeout_s=10))
        await eventually(partial(is_waiting, session, 2))
        request = fetch(two_nodes, opened.session_id, 2, wait_ms=1000)
        answer = await latter.exchange(request, FetchResponse, timeout_s=10)
        found = [each.high_watermark for topic in answer.responses for each in topic.partitions]
        assert found == [1]
        assert (await abandoned).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    finally:
        former.close()
        latter.close()


async def test_failure_of_waiting_fetch_closes_connection(
    two_nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await connect(two_nodes)
    request = fetch(two_nodes, 0, -1, 0)
    waiting = asyncio.ensure_future(connection.exchange(request, FetchResponse, timeout_s=5))
    await eventually(lambda: bool(two_nodes[1].partition().end_watchers))

    def fail(_: Fetch) -> list[PartitionRead]:
        raise RuntimeError("a defect")

    monkeypatch.setattr(Fetch, "read_partitions", fail)
    two_nodes[1].append(b"one")
    with pytest.raises(ConnectionError):
        await waiting


async def test_fetch_interrupted_between_turns_closes_its_session(two_nodes: Nodes) -> None:
    """The client would continue the session without naming the missing partitions again."""
    context = two_nodes[1].context
    opened = run_to_end(
        handle(context, fetch(two_nodes, 0, 0, 0, wait_ms=0), HEADER, create_connection())
    )
    assert isinstance(opened, FetchResult)
    (session,) = context.sessions.sessions.values()
    request = fetch(two_nodes, session.id, 1, 0)
    (topic,) = request.topics
    many = tuple(
        topic.partitions[0]._replace(partition=index) for index in range(2 * PARTITIONS_PER_TURN)
    )
    work = handle(
        context,
        replace(request, topics=(topic._replace(partitions=many),)),
        HEADER,
        create_connection(),
    )
    next(work)
    assert len(session.partitions) == PARTITIONS_PER_TURN
    work.close()
    assert not context.sessions.sessions
