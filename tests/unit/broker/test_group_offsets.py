"""Offset commits that wait for the replicas of `__consumer_offsets`.

Tests cover concurrent OffsetFetch requests and clients that disconnect. Broker 2 is a replica that
replicates when the test calls `replicate`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable
from uuid import uuid4

import pytest

from barnabas.broker.bounded_work import run_to_end
from barnabas.broker.handlers import offset_commit, offset_fetch
from barnabas.errors import ErrorCode
from barnabas.groups.group import Group
from barnabas.groups.records import OffsetCommitValue
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.model import BrokerId, TopicPartition
from barnabas.wire.apis import ApiKey
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
)
from tests.unit.replication.nodes import NO_CONNECTION, TOPIC, Node, Nodes, eventually

GROUP = "billing"
ORDERS_0 = TopicPartition(TOPIC, 0)
METADATA_MAX = 4096


class Coordinator:
    """Broker 1, the coordinator of every group."""

    def __init__(self, node: Node) -> None:
        self.node = node

    async def start(self) -> None:
        state = LeaderAndIsrPartitionState(
            partition_index=0, leader=1, leader_epoch=0, isr=(1, 2), replicas=(1, 2)
        )
        topic = LeaderAndIsrTopicState(CONSUMER_OFFSETS, uuid4(), (state,))
        await self.node.leader_and_isr(
            LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=(topic,))
        )
        store = self.node.context.group_store
        await eventually(lambda: store.is_led(0))

    def commit(
        self, offset: int, *, note: str = "", member_id: str = "", generation: int = -1
    ) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
        partition = OffsetCommitRequestPartition(0, offset, committed_metadata=note)
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=(OffsetCommitRequestTopic(TOPIC, (partition,)),),
        )
        header = RequestHeader(ApiKey.OFFSET_COMMIT, 9, 0, None)
        return run_to_end(offset_commit.handle(self.node.context, request, header, NO_CONNECTION))

    def start_commit(self, offset: int) -> asyncio.Future[OffsetCommitResponse]:
        """Append a commit whose connection waits for the response."""
        answer = self.commit(offset)
        assert inspect.isawaitable(answer)
        return asyncio.ensure_future(answer)

    def fetch(
        self, *, require_stable: bool = True, names_topics: bool = True
    ) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
        topics = (OffsetFetchRequestTopic(TOPIC, (0,)),) if names_topics else None
        request = OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(GROUP, topics=topics),), require_stable=require_stable
        )
        header = RequestHeader(ApiKey.OFFSET_FETCH, 9, 0, None)
        return run_to_end(offset_fetch.handle(self.node.context, request, header, NO_CONNECTION))

    async def fetch_committed(self, *, require_stable: bool = True) -> int:
        answer = self.fetch(require_stable=require_stable)
        assert isinstance(answer, OffsetFetchResponse), "no commit is pending"
        return partition_of(answer).committed_offset

    def replicate(self) -> None:
        """Let the other replica catch up."""
        partition = self.node.partition(topic=CONSUMER_OFFSETS)
        end = partition.log.log_end_offset
        partition.record_fetch(BrokerId(2), end, 0, leader_end=end)


def partition_of(answer: OffsetFetchResponse) -> OffsetFetchResponsePartition:
    (group,) = answer.groups
    assert group.error_code == ErrorCode.NONE
    ((_, (found,)),) = group.topics
    return found


def code_of(answer: OffsetCommitResponse) -> ErrorCode:
    ((_, (found,)),) = answer.topics
    return ErrorCode(found.error_code)


@pytest.fixture(params=[30_000])
async def coordinator(request: pytest.FixtureRequest) -> AsyncIterator[Coordinator]:
    """Coordinator whose commits time out after the given number of milliseconds."""
    nodes = Nodes(Node(1, offsets_topic_num_partitions=1, offsets_commit_timeout_ms=request.param))
    await nodes.start()
    await nodes.send_metadata(partitions=1)
    made = Coordinator(nodes[1])
    await made.start()
    yield made
    await nodes[1].context.lazy_groups.stop()
    await nodes.stop()


SHORT_TIMEOUT = pytest.mark.parametrize("coordinator", [20], indirect=True)


@pytest.mark.parametrize("names_topics", [True, False])
async def test_stable_offset_fetch_waits_for_pending_commit(
    coordinator: Coordinator, names_topics: bool
) -> None:
    first = coordinator.start_commit(5)
    coordinator.replicate()
    assert code_of(await first) is ErrorCode.NONE

    second = coordinator.start_commit(40)
    fetch = coordinator.fetch(names_topics=names_topics)
    assert inspect.isawaitable(fetch)
    answer = asyncio.ensure_future(fetch)
    assert await coordinator.fetch_committed(require_stable=False) == 5, (
        "an unstable read does not wait"
    )
    assert not answer.done()
    coordinator.replicate()
    assert partition_of(await answer).committed_offset == 40
    assert code_of(await second) is ErrorCode.NONE


async def test_commit_succeeds_after_client_disconnects(coordinator: Coordinator) -> None:
    commit = coordinator.start_commit(40)
    commit.cancel()
    await asyncio.wait([commit])
    coordinator.replicate()
    offsets = coordinator.node.context.groups.groups[GROUP].offsets
    await eventually(lambda: not offsets.pending)
    assert await coordinator.fetch_committed() == 40


@SHORT_TIMEOUT
async def test_timed_out_commit_keeps_previous_offset(
    coordinator: Coordinator,
) -> None:
    first = coordinator.start_commit(5)
    coordinator.replicate()
    assert code_of(await first) is ErrorCode.NONE
    assert code_of(await coordinator.start_commit(40)) is ErrorCode.REQUEST_TIMED_OUT
    assert await coordinator.fetch_committed() == 5


@SHORT_TIMEOUT
async def test_stable_offset_fetch_times_out_as_unstable(
    coordinator: Coordinator,
) -> None:
    group = coordinator.node.context.groups.find_or_create(GROUP)
    group.offsets.begin({ORDERS_0: OffsetCommitValue(5)})  # never ends
    answer = coordinator.fetch()
    assert inspect.isawaitable(answer)
    found = partition_of(await answer)
    assert (found.committed_offset, found.error_code) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


async def test_lost_leadership_answers_waiting_requests_not_coordinator(
    coordinator: Coordinator,
) -> None:
    commit = coordinator.start_commit(40)
    fetch = coordinator.fetch()
    assert inspect.isawaitable(fetch)
    answer = asyncio.ensure_future(fetch)
    partition = coordinator.node.partition(topic=CONSUMER_OFFSETS)
    partition.stop_leading(BrokerId(2))
    coordinator.node.replicas.notify_leadership(partition)
    assert code_of(await commit) is ErrorCode.NOT_COORDINATOR
    (group,) = (await answer).groups
    assert group.error_code == ErrorCode.NOT_COORDINATOR


async def test_unrecognised_coordinator_answers_not_coordinator(
    coordinator: Coordinator,
) -> None:
    commit = coordinator.start_commit(40)
    coordinator.replicate()
    assert code_of(await commit) is ErrorCode.NONE
    coordinator.node.replicas.is_known_to_controller = False
    answer = coordinator.fetch()
    assert isinstance(answer, OffsetFetchResponse)
    assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    refused = coordinator.commit(41)
    assert isinstance(refused, OffsetCommitResponse)
    assert code_of(refused) is ErrorCode.NOT_COORDINATOR
    coordinator.node.replicas.is_known_to_controller = True
    assert await coordinator.fetch_committed() == 40


async def test_metadata_size_is_checked_after_membership(coordinator: Coordinator) -> None:
    note = "x" * (METADATA_MAX + 1)
    stranger = coordinator.commit(1, note=note, member_id="nobody", generation=3)
    assert isinstance(stranger, OffsetCommitResponse)
    assert code_of(stranger) is ErrorCode.ILLEGAL_GENERATION
    allowed = coordinator.commit(1, note=note)
    assert isinstance(allowed, OffsetCommitResponse)
    assert code_of(allowed) is ErrorCode.OFFSET_METADATA_TOO_LARGE


async def test_commit_is_rejected_if_group_changed_between_turns(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = OffsetCommitRequestPartition(0, 5)
    request = OffsetCommitRequest(
        group_id=GROUP, topics=(OffsetCommitRequestTopic(TOPIC, (partition,)),)
    )
    context = coordinator.node.context
    work = offset_commit.handle(
        context, request, RequestHeader(ApiKey.OFFSET_COMMIT, 9, 0, None), NO_CONNECTION
    )
    refusals = iter([ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID])
    monkeypatch.setattr(Group, "commit_error", lambda *_: next(refusals))
    answer = run_to_end(work)
    assert isinstance(answer, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not context.groups.groups[GROUP].offsets.pending


def test_group_that_is_requested_twice_is_answered_once(coordinator: Coordinator) -> None:
    group = OffsetFetchRequestGroup(GROUP, topics=None)
    header = RequestHeader(ApiKey.OFFSET_FETCH, 9, 0, None)
    request = OffsetFetchRequest(groups=(group, group))
    answer = run_to_end(
        offset_fetch.handle(coordinator.node.context, request, header, NO_CONNECTION)
    )
    assert isinstance(answer, OffsetFetchResponse)
    assert [each.group_id for each in answer.groups] == [GROUP]
