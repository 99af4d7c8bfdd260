"""Two and three brokers that replicate over real sockets, with the test as their controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from barnabas.broker.bounded_work import run_to_end
from barnabas.broker.handlers import delete_records
from barnabas.config import TopicConfig
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId, TopicPartition
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tests.unit.replication.nodes import (
    NO_CONNECTION,
    TOPIC,
    Node,
    Nodes,
    accept_changes,
    eventually,
)
from tests.unit.storage.builders import contents


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    nodes = Nodes(Node(1), Node(2))
    await nodes.start()
    yield nodes
    await nodes.stop()


async def wait_until_copied(nodes: Nodes, leader: int = 1, *others: int) -> None:
    for follower in others or (3 - leader,):
        await wait_until_equal(nodes[follower], nodes[leader])


async def wait_until_equal(follower: Node, leader: Node) -> None:
    end = leader.partition().log.log_end_offset
    await eventually(lambda: follower.partition().log.log_end_offset == end)
    assert contents(follower.partition().log) == contents(leader.partition().log)


async def test_appended_records_are_replicated_and_committed(nodes: Nodes) -> None:
    await nodes.lead(1)
    info = nodes[1].append(b"one", b"two", acks=-1)
    await asyncio.wait_for(nodes[1].partition().promise(info.last_offset + 1), 30)
    await wait_until_copied(nodes)
    assert nodes[1].partition().log.high_watermark == 2


async def test_waiting_follower_is_woken_by_append(nodes: Nodes) -> None:
    nodes[2].replicas.config = replace(nodes[2].config, replica_fetch_wait_max_ms=60_000)
    await nodes.lead(1)
    await eventually(lambda: bool(nodes[1].partition().end_watchers))
    nodes[1].append(b"one")
    await wait_until_copied(nodes)
    await eventually(lambda: nodes[1].partition().log.high_watermark == 1)


async def test_follower_learns_high_watermark(nodes: Nodes) -> None:
    await nodes.lead(1)
    nodes[1].append(b"one")
    await eventually(lambda: nodes[2].partition().log.high_watermark == 1)


async def test_caught_up_follower_joins_isr(nodes: Nodes) -> None:
    await nodes.lead(1, isr=(1,), to=(1,))
    nodes[1].append(*(b"x" * 1000 for _ in range(50)))
    await nodes.lead(1, isr=(1,), to=(2,))
    await eventually(lambda: nodes[1].partition().isr == (1, 2))
    (request,) = nodes[1].controller.requests
    assert request.broker_id == 1
    assert nodes[1].partition().partition_epoch == 1
    await wait_until_copied(nodes)


async def test_controller_request_makes_broker_recognised(nodes: Nodes) -> None:
    await nodes.lead(1)
    nodes[1].replicas.is_known_to_controller = False
    await nodes.lead(1, epoch=1)
    assert nodes[1].replicas.is_known_to_controller


async def test_leaving_broker_does_not_follow_new_leader(nodes: Nodes) -> None:
    await nodes.lead(1)
    nodes[1].append(b"both")
    await wait_until_copied(nodes)
    nodes[1].replicas.is_in_controlled_shutdown = True
    await nodes.lead(2, isr=(2,), epoch=1)
    nodes[2].append(b"after")
    assert not nodes[1].replicas.fetchers.by_partition
    assert nodes[2].partition().log.high_watermark == 2, "the leaving broker is not awaited"
    assert nodes[2].partition().isr == (2,)


async def test_stopped_follower_leaves_isr_and_records_are_committed() -> None:
    nodes = Nodes(Node(1, replica_lag_time_max_ms=200), Node(2))
    await nodes.start()
    try:
        await nodes.lead(1)
        nodes[1].append(b"one")
        await wait_until_copied(nodes)
        await nodes[2].replicas.stop()
        nodes[1].append(b"two", acks=-1)
        await asyncio.wait_for(nodes[1].partition().promise(2), 30)
        assert nodes[1].partition().isr == (1,)
    finally:
        await nodes.stop()


async def test_idle_follower_stays_in_isr() -> None:
    """An idle follower is in no fetch of its session, and still in sync."""
    nodes = Nodes(Node(1, replica_lag_time_max_ms=500), Node(2, replica_fetch_wait_max_ms=30))
    await nodes.start()
    try:
        await nodes.lead(1)
        nodes[1].append(b"one")
        await wait_until_copied(nodes)
        follower = nodes[1].partition().followers[BrokerId(2)]
        await eventually(lambda: follower.log_end_offset == 1)
        loop = asyncio.get_running_loop()
        idle_since = loop.time()

        def has_fetched_after_lag_time() -> bool:
            """Require a recent fetch, so that a machine that stalled does not fail the test."""
            assert follower.session is not None
            fetched_at = follower.session.last_fetch_ms / 1000
            return fetched_at > idle_since + 0.6 and loop.time() - fetched_at < 0.1

        await eventually(has_fetched_after_lag_time)
        nodes[1].append(b"two")
        nodes[1].replicas.check_isrs()
        assert nodes[1].partition().pending is None
        assert nodes[1].partition().isr == (1, 2)
        await wait_until_copied(nodes)
    finally:
        await nodes.stop()


async def test_idle_session_names_no_partition(nodes: Nodes) -> None:
    await nodes.lead(1, partitions=20)
    for index in range(20):
        nodes[1].append(b"one", index=index)
    await eventually(
        lambda: all(nodes[2].partition(index).log.log_end_offset == 1 for index in range(20))
    )
    (fetcher,) = nodes[2].replicas.fetchers.fetchers.values()
    await eventually(lambda: not fetcher.to_include and fetcher.session_epoch > 1)
    (session,) = nodes[1].context.sessions.sessions.values()
    await eventually(lambda: not session.awake)
    assert len(session.partitions) == 20


async def test_former_leader_truncates_uncommitted_records(nodes: Nodes) -> None:
    await nodes.lead(1)
    nodes[1].append(b"both")
    await wait_until_copied(nodes)
    await nodes[2].replicas.fetchers.stop()  # broker 2 does not get the next records
    nodes[1].append(b"lost", b"lost too")
    await nodes.lead(2, epoch=1, isr=(2,), to=(2,))
    nodes[2].append(b"new")
    await nodes.lead(2, epoch=1, isr=(2,), to=(1,))
    await wait_until_copied(nodes, 2)
    assert list(contents(nodes[1].partition().log).values()) == [b"both", b"new"]
    assert nodes[1].partition().log.epochs.entries == nodes[2].partition().log.epochs.entries


async def test_logs_stay_equal_when_leadership_alternates(nodes: Nodes) -> None:
    await nodes.lead(1)
    for epoch in range(1, 6):
        leader, follower = (1, 2) if epoch % 2 else (2, 1)
        await nodes.lead(leader, epoch=epoch, to=(leader,))
        nodes[leader].append(f"{epoch}".encode())
        await nodes.lead(leader, epoch=epoch, to=(follower,))
        await wait_until_copied(nodes, leader)
    assert len(contents(nodes[1].partition().log)) == 5


async def test_follower_restarts_at_log_start_of_leader(nodes: Nodes) -> None:
    await nodes.lead(1, isr=(1,), to=(1,))
    log = nodes[1].partition().log
    for _ in range(5):
        nodes[1].append(b"x")
    log.roll(0)
    nodes[1].append(b"y")
    log.advance_log_start(5)
    await nodes.lead(1, isr=(1,), to=(2,))
    await wait_until_copied(nodes)
    assert nodes[2].partition().log.log_start_offset == 5


async def test_deleted_records_are_deleted_on_follower(nodes: Nodes) -> None:
    await nodes.lead(1)
    nodes[1].append(b"one")
    nodes[1].append(b"two")
    await eventually(lambda: nodes[2].partition().log.high_watermark == 2)
    nodes[1].partition().log.advance_log_start(1)
    nodes[1].append(b"three")
    await eventually(lambda: nodes[2].partition().log.log_start_offset == 1)
    await eventually(lambda: nodes[1].partition().low_watermark() == 1)


async def test_follower_retries_until_leader_knows_its_role(nodes: Nodes) -> None:
    await nodes.lead(1, to=(2,))
    (fetcher,) = nodes[2].replicas.fetchers.fetchers.values()
    await eventually(lambda: any(each.backoff.failures for each in fetcher.partitions.values()))
    await nodes.lead(1, to=(1,))
    nodes[1].append(b"one")
    await wait_until_copied(nodes)


async def test_fenced_follower_stops_until_new_leader_epoch(nodes: Nodes) -> None:
    await nodes.lead(1)
    await nodes.lead(1, epoch=1, to=(1,))
    await eventually(lambda: not nodes[2].replicas.fetchers.by_partition)
    await nodes.lead(1, epoch=1, to=(2,))
    nodes[1].append(b"one")
    await wait_until_copied(nodes)


async def test_follower_reconnects_to_restarted_leader(nodes: Nodes) -> None:
    await nodes.lead(1)
    nodes[1].append(b"one")
    await wait_until_copied(nodes)
    await nodes[1].stop(clean=True)
    await nodes[1].start()
    await nodes.send_metadata()
    await nodes.lead(1, epoch=1)
    nodes[1].append(b"two")
    await wait_until_copied(nodes)


async def test_large_batches_take_several_responses(nodes: Nodes) -> None:
    for node in nodes.nodes.values():
        node.topics.config = replace(TopicConfig(), segment_bytes=1 << 20)
    await nodes.lead(1, isr=(1,))
    for _ in range(40):
        nodes[1].append(b"x" * 100_000)
    await wait_until_copied(nodes)
    assert len(nodes[2].partition().log.segments) > 1


async def test_high_watermark_of_follower_survives_restart(nodes: Nodes) -> None:
    await nodes.lead(1)
    nodes[1].append(b"one")
    await eventually(lambda: nodes[2].partition().log.high_watermark == 1)
    await nodes[2].stop(clean=True)
    await nodes[2].start()
    found = nodes[2].logs.get(TopicPartition(TOPIC, 0))
    assert found is not None
    assert found.high_watermark == 1


async def test_acknowledged_records_survive_leader_change() -> None:
    nodes = Nodes(Node(1), Node(2), Node(3))
    await nodes.start()
    try:
        await nodes.lead(1)
        for number in range(20):
            info = nodes[1].append(b"%d" % number, acks=-1)
            await asyncio.wait_for(nodes[1].partition().promise(info.last_offset + 1), 30)
        await nodes.lead(2, epoch=1, isr=(2, 3), to=(2, 3, 1))
        nodes[2].append(b"more")
        await wait_until_copied(nodes, 2, 1, 3)
        assert len(contents(nodes[3].partition().log)) == 21
    finally:
        await nodes.stop()


# ---- ISR changes


async def test_isr_change_is_retried_after_retriable_errors(nodes: Nodes) -> None:
    refusals = [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH]

    def reject_first(request: AlterPartitionRequest) -> AlterPartitionResponse:
        if refusals:
            return AlterPartitionResponse(error_code=refusals.pop())
        return accept_changes(request)

    nodes[1].controller.answer = reject_first
    await nodes.lead(1, isr=(1,))
    await eventually(lambda: nodes[1].partition().isr == (1, 2))
    assert len(nodes[1].controller.requests) == 3


async def test_concurrent_isr_changes_are_batched(nodes: Nodes) -> None:
    await nodes.lead(1, isr=(1,), partitions=30)
    await eventually(lambda: all(nodes[1].partition(i).isr == (1, 2) for i in range(30)))
    assert len(nodes[1].controller.requests) < 5


async def test_new_leader_epoch_ends_pending_isr_change(nodes: Nodes) -> None:
    nodes[1].controller.answer = lambda _: AlterPartitionResponse(
        error_code=ErrorCode.NOT_CONTROLLER
    )
    await nodes.lead(1, isr=(1,))
    await eventually(lambda: bool(nodes[1].controller.requests))
    await nodes.lead(1, epoch=1, version=3)
    proposals = nodes[1].replicas.proposals
    assert proposals is not None
    await eventually(lambda: not proposals.waiting)
    assert nodes[1].partition().isr == (1, 2)


# ---- stopping


def stop(*, delete: bool, epoch: int = -2) -> StopReplicaRequest:
    state = StopReplicaPartitionState(0, epoch, delete)
    return StopReplicaRequest(
        controller_id=1, controller_epoch=1, topic_states=(StopReplicaTopicState(TOPIC, (state,)),)
    )


async def test_deleted_replica_fails_waiting_produce(nodes: Nodes) -> None:
    await nodes.lead(1)
    await nodes[2].stop_replica(stop(delete=True))
    nodes[1].append(b"one")
    promise = nodes[1].partition().promise(1)
    response = await nodes[1].stop_replica(stop(delete=True))
    assert [each.error_code for each in response.partition_errors] == [0]
    with pytest.raises(ApiError) as broken:
        await promise
    assert broken.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for node in nodes.nodes.values():
        assert not node.replicas.partitions
        assert not node.logs.logs
        assert not node.replicas.names
        assert not node.replicas.fetchers.fetchers


async def test_stopped_replica_is_kept_and_not_replicated(nodes: Nodes) -> None:
    await nodes.lead(1)
    await nodes[2].stop_replica(stop(delete=False, epoch=0))
    assert not nodes[2].replicas.fetchers.by_partition
    assert (TOPIC, 0) in nodes[2].replicas.partitions
    nodes[1].append(b"one")
    await nodes.lead(1, epoch=1)
    await wait_until_copied(nodes)


# ---- deleting records


def delete_records_before(offset: int, timeout_ms: int) -> DeleteRecordsRequest:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name=TOPIC, partitions=(wanted,))
    return DeleteRecordsRequest(topics=(topic,), timeout_ms=timeout_ms)


async def execute_delete(node: Node, request: DeleteRecordsRequest) -> DeleteRecordsPartitionResult:
    header = RequestHeader(21, 2, 0)
    answer = run_to_end(delete_records.handle(node.context, request, header, NO_CONNECTION))
    response = answer if isinstance(answer, DeleteRecordsResponse) else await answer
    return response.topics[0].partitions[0]


async def test_delete_records_waits_for_live_replicas(nodes: Nodes) -> None:
    await nodes.lead(1)
    for _ in range(3):
        nodes[1].append(b"x")
    await eventually(lambda: nodes[2].partition().log.high_watermark == 3)
    result = await execute_delete(nodes[1], delete_records_before(2, 10_000))
    assert (result.error_code, result.low_watermark) == (0, 2)
    assert nodes[2].partition().log.log_start_offset == 2


async def test_delete_records_times_out_for_live_replica_only(nodes: Nodes) -> None:
    await nodes.lead(1)
    nodes[1].append(b"x")
    await eventually(lambda: nodes[1].partition().log.high_watermark == 1)
    await nodes[2].replicas.stop()
    result = await execute_delete(nodes[1], delete_records_before(-1, 20))
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert nodes[1].partition().log.log_start_offset == 1
    await nodes.send_metadata(1)
    result = await execute_delete(nodes[1], delete_records_before(-1, 20))
    assert (result.error_code, result.low_watermark) == (0, 1), "dead replicas are not awaited"


async def test_delete_records_fails_on_leader_change(nodes: Nodes) -> None:
    await nodes.lead(1)
    nodes[1].append(b"x")
    await eventually(lambda: nodes[1].partition().log.high_watermark == 1)
    await nodes[2].replicas.stop()
    waiting = asyncio.create_task(execute_delete(nodes[1], delete_records_before(-1, 10_000)))
    await eventually(lambda: bool(nodes[1].partition().start_watchers))
    await nodes.lead(2, epoch=1, to=(1,))
    assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
