"""Two and three brokers that copy from each other over real sockets, governed by the test."""

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
from barnabas.replication.fetcher_manager import FetcherManager
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
    agreed,
    eventually,
)
from tests.unit.storage.builders import contents


@pytest.fixture
async def two() -> AsyncIterator[Nodes]:
    nodes = Nodes(Node(1), Node(2))
    await nodes.start()
    yield nodes
    await nodes.stop()


def fetchers(node: Node) -> FetcherManager:
    assert isinstance(node.replicas.fetchers, FetcherManager)
    return node.replicas.fetchers


async def copied(nodes: Nodes, leader: int = 1, *others: int) -> None:
    for other in others or (3 - leader,):
        await equal(nodes[other], nodes[leader])


async def equal(follower: Node, leader: Node) -> None:
    end = leader.partition().log.log_end_offset
    await eventually(lambda: follower.partition().log.log_end_offset == end)
    assert contents(follower.partition().log) == contents(leader.partition().log)


async def test_what_the_leader_appends_is_copied_and_then_committed(two: Nodes) -> None:
    await two.lead(1)
    info = two[1].append(b"one", b"two", acks=-1)
    await asyncio.wait_for(two[1].partition().promise(info.last_offset + 1), 30)
    await copied(two)
    assert two[1].partition().log.high_watermark == 2


async def test_a_waiting_follower_is_woken_by_an_append(two: Nodes) -> None:
    two[2].replicas.fetchers.settings = replace(  # type: ignore[attr-defined]
        fetchers(two[2]).settings, wait_max_ms=60_000
    )
    await two.lead(1)
    await eventually(lambda: bool(two[1].partition().end_watchers))
    two[1].append(b"one")
    await copied(two)
    await eventually(lambda: two[1].partition().log.high_watermark == 1)


async def test_the_follower_takes_over_the_high_watermark(two: Nodes) -> None:
    await two.lead(1)
    two[1].append(b"one")
    await eventually(lambda: two[2].partition().log.high_watermark == 1)


async def test_a_follower_outside_the_isr_joins_when_it_has_caught_up(two: Nodes) -> None:
    await two.lead(1, isr=(1,), to=(1,))
    two[1].append(*(b"x" * 1000 for _ in range(50)))
    await two.lead(1, isr=(1,), to=(2,))
    await eventually(lambda: two[1].partition().isr == (1, 2))
    (request,) = two[1].controller.asked
    assert request.broker_id == 1
    assert two[1].partition().partition_epoch == 1
    await copied(two)


async def test_a_word_of_the_controller_recognises_a_broker_again(two: Nodes) -> None:
    await two.lead(1)
    two[1].replicas.is_recognised = False
    await two.lead(1, epoch=1)
    assert two[1].replicas.is_recognised


async def test_who_is_leaving_does_not_copy_back_what_it_handed_over(two: Nodes) -> None:
    await two.lead(1)
    two[1].append(b"both")
    await copied(two)
    two[1].replicas.is_in_controlled_shutdown = True
    await two.lead(2, isr=(2,), epoch=1)
    two[2].append(b"after")
    assert not fetchers(two[1]).by_partition
    assert two[2].partition().log.high_watermark == 2, "nobody waits for who is leaving"
    assert two[2].partition().isr == (2,)


async def test_a_follower_that_stops_leaves_the_isr_and_what_waited_is_committed() -> None:
    nodes = Nodes(Node(1, replica_lag_time_max_ms=200), Node(2))
    await nodes.start()
    try:
        await nodes.lead(1)
        nodes[1].append(b"one")
        await copied(nodes)
        await nodes[2].replicas.stop()
        nodes[1].append(b"two", acks=-1)
        await asyncio.wait_for(nodes[1].partition().promise(2), 30)
        assert nodes[1].partition().isr == (1,)
    finally:
        await nodes.stop()


async def test_an_idle_follower_stays_in_the_isr() -> None:
    """However long nothing is written: it is not named in any fetch, and still there."""
    nodes = Nodes(Node(1, replica_lag_time_max_ms=500), Node(2, replica_fetch_wait_max_ms=30))
    await nodes.start()
    try:
        await nodes.lead(1)
        nodes[1].append(b"one")
        await copied(nodes)
        follower = nodes[1].partition().followers[BrokerId(2)]
        await eventually(lambda: follower.log_end_offset == 1)
        loop = asyncio.get_running_loop()
        quiet_since = loop.time()

        def is_heard_of_after_long() -> bool:
            """Just now: a machine that stood still meanwhile is not what this is about."""
            assert follower.session is not None
            heard_at = follower.session.last_fetch_ms / 1000
            return heard_at > quiet_since + 0.6 and loop.time() - heard_at < 0.1

        await eventually(is_heard_of_after_long)
        nodes[1].append(b"two")
        nodes[1].replicas.check_isrs()
        assert nodes[1].partition().pending is None
        assert nodes[1].partition().isr == (1, 2)
        await copied(nodes)
    finally:
        await nodes.stop()


async def test_an_idle_session_names_no_partition(two: Nodes) -> None:
    await two.lead(1, partitions=20)
    for index in range(20):
        two[1].append(b"one", index=index)
    await eventually(
        lambda: all(two[2].partition(index).log.log_end_offset == 1 for index in range(20))
    )
    (fetcher,) = fetchers(two[2]).fetchers.values()
    await eventually(lambda: not fetcher.to_include and fetcher.session_epoch > 1)
    (session,) = two[1].context.sessions.sessions.values()
    await eventually(lambda: not session.awake)
    assert len(session.partitions) == 20


async def test_an_old_leader_cuts_what_nobody_else_has(two: Nodes) -> None:
    await two.lead(1)
    two[1].append(b"both")
    await copied(two)
    await two[2].replicas.fetchers.stop()  # 2 hears nothing of what follows
    two[1].append(b"lost", b"lost too")
    await two.lead(2, epoch=1, isr=(2,), to=(2,))
    two[2].append(b"new")
    await two.lead(2, epoch=1, isr=(2,), to=(1,))
    await copied(two, 2)
    assert list(contents(two[1].partition().log).values()) == [b"both", b"new"]
    assert two[1].partition().log.epochs.entries == two[2].partition().log.epochs.entries


async def test_leadership_goes_to_and_fro_and_the_logs_stay_equal(two: Nodes) -> None:
    await two.lead(1)
    for epoch in range(1, 6):
        leader, other = (1, 2) if epoch % 2 else (2, 1)
        await two.lead(leader, epoch=epoch, to=(leader,))
        two[leader].append(f"{epoch}".encode())
        await two.lead(leader, epoch=epoch, to=(other,))
        await copied(two, leader)
    assert len(contents(two[1].partition().log)) == 5


async def test_a_follower_whose_leader_begins_later_begins_anew(two: Nodes) -> None:
    await two.lead(1, isr=(1,), to=(1,))
    log = two[1].partition().log
    for _ in range(5):
        two[1].append(b"x")
    log.roll(0)
    two[1].append(b"y")
    log.advance_log_start(5)
    await two.lead(1, isr=(1,), to=(2,))
    await copied(two)
    assert two[2].partition().log.log_start_offset == 5


async def test_records_deleted_at_the_leader_go_at_the_follower(two: Nodes) -> None:
    await two.lead(1)
    two[1].append(b"one")
    two[1].append(b"two")
    await eventually(lambda: two[2].partition().log.high_watermark == 2)
    two[1].partition().log.advance_log_start(1)
    two[1].append(b"three")
    await eventually(lambda: two[2].partition().log.log_start_offset == 1)
    await eventually(lambda: two[1].partition().low_watermark() == 1)


async def test_a_follower_told_first_waits_for_its_leader_to_be_told(two: Nodes) -> None:
    await two.lead(1, to=(2,))
    (fetcher,) = fetchers(two[2]).fetchers.values()
    await eventually(lambda: any(each.backoff.failures for each in fetcher.partitions.values()))
    await two.lead(1, to=(1,))
    two[1].append(b"one")
    await copied(two)


async def test_a_follower_of_an_old_epoch_gives_up_until_it_is_told(two: Nodes) -> None:
    await two.lead(1)
    await two.lead(1, epoch=1, to=(1,))
    await eventually(lambda: not fetchers(two[2]).by_partition)
    await two.lead(1, epoch=1, to=(2,))
    two[1].append(b"one")
    await copied(two)


async def test_a_leader_that_comes_back_is_found_again(two: Nodes) -> None:
    await two.lead(1)
    two[1].append(b"one")
    await copied(two)
    await two[1].stop(clean=True)
    await two[1].start()
    await two.tell_brokers()
    await two.lead(1, epoch=1)
    two[1].append(b"two")
    await copied(two)


async def test_large_batches_cross_in_several_answers(two: Nodes) -> None:
    for node in two.nodes.values():
        node.topics.config = replace(TopicConfig(), segment_bytes=1 << 20)
    await two.lead(1, isr=(1,))
    for _ in range(40):
        two[1].append(b"x" * 100_000)
    await copied(two)
    assert len(two[2].partition().log.segments) > 1


async def test_the_high_watermark_of_a_follower_outlives_a_restart(two: Nodes) -> None:
    await two.lead(1)
    two[1].append(b"one")
    await eventually(lambda: two[2].partition().log.high_watermark == 1)
    await two[2].stop(clean=True)
    await two[2].start()
    found = two[2].logs.get(TopicPartition(TOPIC, 0))
    assert found is not None
    assert found.high_watermark == 1


async def test_three_brokers_keep_what_was_acknowledged_when_the_leader_changes() -> None:
    nodes = Nodes(Node(1), Node(2), Node(3))
    await nodes.start()
    try:
        await nodes.lead(1)
        for number in range(20):
            info = nodes[1].append(b"%d" % number, acks=-1)
            await asyncio.wait_for(nodes[1].partition().promise(info.last_offset + 1), 30)
        await nodes.lead(2, epoch=1, isr=(2, 3), to=(2, 3, 1))
        nodes[2].append(b"more")
        await copied(nodes, 2, 1, 3)
        assert len(contents(nodes[3].partition().log)) == 21
    finally:
        await nodes.stop()


# ---- proposals


async def test_a_controller_that_is_not_one_any_longer_is_asked_again(two: Nodes) -> None:
    refusals = [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH]

    def reluctant(request: AlterPartitionRequest) -> AlterPartitionResponse:
        if refusals:
            return AlterPartitionResponse(error_code=refusals.pop())
        return agreed(request)

    two[1].controller.answer = reluctant
    await two.lead(1, isr=(1,))
    await eventually(lambda: two[1].partition().isr == (1, 2))
    assert len(two[1].controller.asked) == 3


async def test_changes_of_one_moment_go_together(two: Nodes) -> None:
    await two.lead(1, isr=(1,), partitions=30)
    await eventually(lambda: all(two[1].partition(i).isr == (1, 2) for i in range(30)))
    assert len(two[1].controller.asked) < 5


async def test_a_proposal_ends_when_the_controller_has_decided_otherwise(two: Nodes) -> None:
    two[1].controller.answer = lambda _: AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
    await two.lead(1, isr=(1,))
    await eventually(lambda: bool(two[1].controller.asked))
    await two.lead(1, epoch=1, version=3)
    proposals = two[1].replicas.proposals
    assert proposals is not None
    await eventually(lambda: not proposals.waiting)
    assert two[1].partition().isr == (1, 2)


# ---- stopping


def stop(*, delete: bool, epoch: int = -2) -> StopReplicaRequest:
    state = StopReplicaPartitionState(0, epoch, delete)
    return StopReplicaRequest(
        controller_id=1, controller_epoch=1, topic_states=(StopReplicaTopicState(TOPIC, (state,)),)
    )


async def test_a_deleted_replica_is_gone_and_who_waited_for_it_is_told(two: Nodes) -> None:
    await two.lead(1)
    await two[2].stop_replica(stop(delete=True))
    two[1].append(b"one")
    promise = two[1].partition().promise(1)
    response = await two[1].stop_replica(stop(delete=True))
    assert [each.error_code for each in response.partition_errors] == [0]
    with pytest.raises(ApiError) as broken:
        await promise
    assert broken.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for node in two.nodes.values():
        assert not node.replicas.partitions
        assert not node.logs.logs
        assert not node.replicas.names
        assert not fetchers(node).fetchers


async def test_a_stopped_replica_keeps_its_place_and_copies_nothing(two: Nodes) -> None:
    await two.lead(1)
    await two[2].stop_replica(stop(delete=False, epoch=0))
    assert not fetchers(two[2]).by_partition
    assert (TOPIC, 0) in two[2].replicas.partitions
    two[1].append(b"one")
    await two.lead(1, epoch=1)
    await copied(two)


# ---- deleting records


def delete_before(offset: int, timeout_ms: int) -> DeleteRecordsRequest:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name=TOPIC, partitions=(wanted,))
    return DeleteRecordsRequest(topics=(topic,), timeout_ms=timeout_ms)


async def deleted(node: Node, request: DeleteRecordsRequest) -> DeleteRecordsPartitionResult:
    header = RequestHeader(21, 2, 0)
    answer = run_to_end(delete_records.handle(node.context, request, header, NO_CONNECTION))
    response = answer if isinstance(answer, DeleteRecordsResponse) else await answer
    return response.topics[0].partitions[0]


async def test_records_are_deleted_when_they_are_on_every_living_replica(two: Nodes) -> None:
    await two.lead(1)
    for _ in range(3):
        two[1].append(b"x")
    await eventually(lambda: two[2].partition().log.high_watermark == 3)
    result = await deleted(two[1], delete_before(2, 10_000))
    assert (result.error_code, result.low_watermark) == (0, 2)
    assert two[2].partition().log.log_start_offset == 2


async def test_who_waits_in_vain_for_records_to_be_deleted_is_told_so(two: Nodes) -> None:
    await two.lead(1)
    two[1].append(b"x")
    await eventually(lambda: two[1].partition().log.high_watermark == 1)
    await two[2].replicas.stop()
    result = await deleted(two[1], delete_before(-1, 20))
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert two[1].partition().log.log_start_offset == 1
    await two.tell_brokers(1)
    result = await deleted(two[1], delete_before(-1, 20))
    assert (result.error_code, result.low_watermark) == (0, 1), "the dead are not waited for"


async def test_who_waits_for_records_to_be_deleted_hears_of_another_leader(two: Nodes) -> None:
    await two.lead(1)
    two[1].append(b"x")
    await eventually(lambda: two[1].partition().log.high_watermark == 1)
    await two[2].replicas.stop()
    waiting = asyncio.create_task(deleted(two[1], delete_before(-1, 10_000)))
    await eventually(lambda: bool(two[1].partition().start_watchers))
    await two.lead(2, epoch=1, to=(1,))
    assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
