"""Replica fetchers: their number, failures of single partitions, and fetch sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from barnabas.broker.fetch_sessions import FetchSession
from barnabas.client.connection import BrokerConnection
from barnabas.errors import OutOfSpace
from barnabas.replication import fetcher as fetcher_module
from barnabas.replication.fetcher import Fetcher
from barnabas.storage.append_sets import FollowerAppend
from barnabas.storage.log import Log
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchReplicaState,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrPartitionState
from tests.unit.replication.nodes import Node, Nodes, eventually, leader_and_isr
from tests.unit.storage.builders import contents

TOO_MANY_ATTEMPTS = 100


@pytest.fixture
async def two_nodes() -> AsyncIterator[Nodes]:
    nodes = Nodes(Node(1), Node(2))
    await nodes.start()
    yield nodes
    await nodes.stop()


def has_end_offset(node: Node, index: int, end: int) -> bool:
    return node.partition(index).log.log_end_offset == end


async def wait_until_copied(nodes: Nodes) -> None:
    """Wait until broker 2 has the log of broker 1."""
    leader = nodes[1].partition().log
    await eventually(partial(has_end_offset, nodes[2], 0, leader.log_end_offset))
    assert contents(nodes[2].partition().log) == contents(leader)


async def test_fetchers_run_only_while_partitions_are_followed() -> None:
    nodes = Nodes(Node(1), Node(2, num_replica_fetchers=2))
    await nodes.start()
    try:
        await nodes.lead(1, partitions=4)
        running = list(nodes[2].replicas.fetchers.fetchers.values())
        assert sorted(len(each.partitions) for each in running) == [2, 2]
        for index in range(4):
            nodes[1].append(b"one", index=index)
        for index in range(4):
            await eventually(partial(has_end_offset, nodes[2], index, 1))
        await nodes.lead(2, epoch=1, isr=(2,), to=(2,), partitions=4)
        assert not nodes[2].replicas.fetchers.fetchers
        assert all(each.is_stopped for each in running)
        await eventually(lambda: not nodes[2].replicas.fetchers.tasks.running)
    finally:
        await nodes.stop()


async def test_failing_partition_does_not_block_others(two_nodes: Nodes) -> None:
    await two_nodes.lead(1, partitions=2)
    await eventually(lambda: len(two_nodes[2].replicas.partitions) == 2)
    stuck = two_nodes[2].partition(0).log
    with pytest.MonkeyPatch.context() as patch:
        attempts = 0

        def fail_append(*_: object) -> FollowerAppend:
            nonlocal attempts
            attempts += 1
            raise OutOfSpace(stuck.directory, "No space left on device")

        def append(log: Log, data: memoryview, now_ms: int = 0) -> FollowerAppend:
            return fail_append() if log is stuck else append_as_follower(log, data, now_ms)

        append_as_follower = Log.append_as_follower
        patch.setattr(Log, "append_as_follower", append)
        two_nodes[1].append(b"one")
        await eventually(lambda: attempts >= 2)
        for number in range(20):
            info = two_nodes[1].append(b"%d" % number, index=1, acks=-1)
            await asyncio.wait_for(two_nodes[1].partition(1).promise(info.last_offset + 1), 10)
        assert stuck.log_end_offset == 0
    await wait_until_copied(two_nodes)


# ---- sessions


async def test_partition_added_during_waiting_fetch_is_replicated() -> None:
    nodes = Nodes(Node(1), Node(2, replica_fetch_wait_max_ms=120_000))
    await nodes.start()
    try:
        await nodes.lead(1)
        sessions = nodes[1].context.sessions.sessions
        await eventually(lambda: any(each.waiting_fetch for each in sessions.values()))
        (fetcher,) = nodes[2].replicas.fetchers.fetchers.values()
        session = fetcher.session_id
        added = LeaderAndIsrPartitionState(
            partition_index=1, leader=1, leader_epoch=0, isr=(1, 2), replicas=(1, 2), is_new=True
        )
        for node in nodes.nodes.values():
            await node.leader_and_isr(leader_and_isr(added, topic_id=nodes.topic_id))
        info = nodes[1].append(b"one", index=1, acks=-1)
        await asyncio.wait_for(nodes[1].partition(1).promise(info.last_offset + 1), 30)
        assert fetcher.session_id == session, "the session continues"
        nodes[1].append(b"two")
        await wait_until_copied(nodes)
    finally:
        await nodes.stop()


async def test_data_of_dropped_response_is_fetched_again() -> None:
    nodes = Nodes(Node(1), Node(2, replica_fetch_wait_max_ms=120_000))
    await nodes.start()
    try:
        await nodes.lead(1)
        info = nodes[1].append(b"one", acks=-1)
        await asyncio.wait_for(nodes[1].partition().promise(info.last_offset + 1), 10)
        sessions = nodes[1].context.sessions.sessions
        await eventually(lambda: any(each.waiting_fetch for each in sessions.values()))
        # As if the leader had sent the response and it had been lost.
        (session,) = sessions.values()
        (entry,) = session.partitions.values()
        entry.sent_high_watermark = nodes[1].partition().log.high_watermark
        entry.sent_log_start_offset = 0
        assert nodes[2].partition().log.high_watermark == 0
        added = LeaderAndIsrPartitionState(
            partition_index=1, leader=1, leader_epoch=0, isr=(1, 2), replicas=(1, 2), is_new=True
        )
        for node in nodes.nodes.values():
            await node.leader_and_isr(leader_and_isr(added, topic_id=nodes.topic_id))
        nodes[1].append(b"two", index=1)
        await eventually(lambda: nodes[2].partition().log.high_watermark == 1)
    finally:
        await nodes.stop()


async def test_interrupted_fetch_backs_off_while_its_leader_has_no_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The test interrupts it itself.
    monkeypatch.setattr(fetcher_module, "INTERRUPT_DELAY_SECONDS", 600)
    nodes = Nodes(Node(1), Node(2, replica_fetch_wait_max_ms=120_000))
    await nodes.start()
    attempts = 0
    connect = Fetcher.connect

    async def count_connects(fetcher: Fetcher) -> BrokerConnection:
        nonlocal attempts
        attempts += 1
        if attempts > TOO_MANY_ATTEMPTS:
            # This ends the fetcher. A loop that never yields would otherwise hang the test.
            raise RuntimeError("the fetcher retries without a back-off")
        return await connect(fetcher)

    try:
        await nodes.lead(1)
        sessions = nodes[1].context.sessions.sessions
        await eventually(lambda: any(each.waiting_fetch for each in sessions.values()))
        (fetcher,) = nodes[2].replicas.fetchers.fetchers.values()
        monkeypatch.setattr(Fetcher, "connect", count_connects)
        added = LeaderAndIsrPartitionState(
            partition_index=1, leader=1, leader_epoch=0, isr=(1, 2), replicas=(1, 2), is_new=True
        )
        for node in nodes.nodes.values():
            await node.leader_and_isr(leader_and_isr(added, topic_id=nodes.topic_id))
        await nodes.send_metadata(2)
        fetcher.interrupt()
        await eventually(lambda: attempts >= 5)
        assert attempts < TOO_MANY_ATTEMPTS
        await nodes.send_metadata()
        nodes[1].append(b"one", index=1)
        await eventually(partial(has_end_offset, nodes[2], 1, 1))
        nodes[1].append(b"two")
        await wait_until_copied(nodes)
    finally:
        await nodes.stop()


def is_waiting(session: FetchSession, epoch: int) -> bool:
    return session.epoch == epoch and session.waiting_fetch is not None


@pytest.mark.parametrize("is_closed", [False, True])
async def test_next_fetch_of_session_is_woken_despite_former_fetch(
    two_nodes: Nodes, is_closed: bool
) -> None:
    await two_nodes.lead(1, to=(1,))
    leader, network = two_nodes[1], two_nodes[2].network
    leader.append(b"one")
    former, latter = [
        await BrokerConnection.open(network, "127.0.0.1", leader.port, client_id="f", timeout_s=10)
        for _ in range(2)
    ]

    def fetch(session_id: int, epoch: int, *offsets: int) -> FetchRequest:
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
            replica_state=FetchReplicaState(two_nodes[2].id, -1),
            max_wait_ms=60_000,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=(FetchTopic(topic_id=two_nodes.topic_id, partitions=partitions),)
            if offsets
            else (),
        )

    opened = await former.exchange(fetch(0, 0, 0), FetchResponse, timeout_s=10)
    (session,) = leader.context.sessions.sessions.values()
    waits: list[asyncio.Task[FetchResponse]] = []
    for epoch, connection, offsets in ((1, former, (1,)), (2, latter, ())):
        request = fetch(opened.session_id, epoch, *offsets)
        exchange = connection.exchange(request, FetchResponse, timeout_s=10)
        waits.append(asyncio.ensure_future(exchange))
        await eventually(partial(is_waiting, session, epoch + 1))
    assert leader.partition().log.high_watermark == 1, (
        "the change of the high watermark does not end the wait"
    )
    if is_closed:
        former.close()
        await eventually(lambda: len(leader.listeners.connections) == 1)
        await asyncio.sleep(0)
    leader.append(b"two")
    try:
        answer = await waits[1]
        assert answer.responses[0].partitions[0].records
    finally:
        former.close()
        latter.close()
        await asyncio.gather(*waits, return_exceptions=True)


async def test_fetcher_without_session_slot_backs_off() -> None:
    nodes = Nodes(Node(1), Node(2, replica_fetch_wait_max_ms=200))
    await nodes.start()
    nodes[1].context.sessions.slots = 0
    exchange = 0
    fetch_once = Fetcher.fetch_once

    async def count_fetches(fetcher: Fetcher) -> None:
        nonlocal exchange
        exchange += 1
        await fetch_once(fetcher)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Fetcher, "fetch_once", count_fetches)
            await nodes.lead(1)
            await eventually(lambda: exchange >= 4)
            began = asyncio.get_running_loop().time()
            await eventually(lambda: exchange >= 6)
            assert asyncio.get_running_loop().time() - began > 0.15
        nodes[1].append(b"one")
        await wait_until_copied(nodes)
    finally:
        await nodes.stop()
