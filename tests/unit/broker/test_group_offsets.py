"""Commits that wait for the replicas of `__consumer_offsets`: what others are told meanwhile, and what becomes of them
when nobody listens any more. Broker 2 is a replica that copies when the test says so."""

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
HERE = TopicPartition(TOPIC, 0)
NOTE_MAX = 4096


class Coordinator:
    """Broker 1, which coordinates every group."""

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

    def sent(self, offset: int) -> asyncio.Future[OffsetCommitResponse]:
        """It is in the log, and its connection waits for the answer."""
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

    async def committed(self, *, require_stable: bool = True) -> int:
        answer = self.fetch(require_stable=require_stable)
        assert isinstance(answer, OffsetFetchResponse), "nothing is under way"
        return partition_of(answer).committed_offset

    def copy(self) -> None:
        """The other replica has all that was written."""
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
    """Commits wait so many milliseconds at most."""
    nodes = Nodes(Node(1, offsets_topic_num_partitions=1, offsets_commit_timeout_ms=request.param))
    await nodes.start()
    await nodes.tell_brokers(partitions=1)
    made = Coordinator(nodes[1])
    await made.start()
    yield made
    await nodes[1].context.lazy_groups.stop()
    await nodes.stop()


A_MOMENT = pytest.mark.parametrize("coordinator", [20], indirect=True)


@pytest.mark.parametrize("names_topics", [True, False])
async def test_who_wants_to_know_for_sure_is_answered_when_the_commit_has_ended(
    coordinator: Coordinator, names_topics: bool
) -> None:
    first = coordinator.sent(5)
    coordinator.copy()
    assert code_of(await first) is ErrorCode.NONE

    second = coordinator.sent(40)
    asked = coordinator.fetch(names_topics=names_topics)
    assert inspect.isawaitable(asked)
    answer = asyncio.ensure_future(asked)
    assert await coordinator.committed(require_stable=False) == 5, "who does not mind is told"
    assert not answer.done()
    coordinator.copy()
    assert partition_of(await answer).committed_offset == 40
    assert code_of(await second) is ErrorCode.NONE


async def test_a_commit_counts_though_its_sender_is_gone(coordinator: Coordinator) -> None:
    sent = coordinator.sent(40)
    sent.cancel()
    await asyncio.wait([sent])
    coordinator.copy()
    offsets = coordinator.node.context.groups.groups[GROUP].offsets
    await eventually(lambda: not offsets.pending)
    assert await coordinator.committed() == 40


@A_MOMENT
async def test_a_commit_that_takes_too_long_is_over_and_the_offset_is_what_it_was(
    coordinator: Coordinator,
) -> None:
    first = coordinator.sent(5)
    coordinator.copy()
    assert code_of(await first) is ErrorCode.NONE
    assert code_of(await coordinator.sent(40)) is ErrorCode.REQUEST_TIMED_OUT
    assert await coordinator.committed() == 5


@A_MOMENT
async def test_who_has_waited_as_long_as_a_commit_may_take_is_told_that_nothing_is_certain(
    coordinator: Coordinator,
) -> None:
    group = coordinator.node.context.groups.find_or_create(GROUP)
    group.offsets.begin({HERE: OffsetCommitValue(5)})  # and nobody ends it
    answer = coordinator.fetch()
    assert inspect.isawaitable(answer)
    found = partition_of(await answer)
    assert (found.committed_offset, found.error_code) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


async def test_who_loses_the_partition_sends_those_who_wait_to_the_next_coordinator(
    coordinator: Coordinator,
) -> None:
    sent = coordinator.sent(40)
    asked = coordinator.fetch()
    assert inspect.isawaitable(asked)
    answer = asyncio.ensure_future(asked)
    partition = coordinator.node.partition(topic=CONSUMER_OFFSETS)
    partition.stop_leading(BrokerId(2))
    coordinator.node.replicas.notify_leadership(partition)
    assert code_of(await sent) is ErrorCode.NOT_COORDINATOR
    (group,) = (await answer).groups
    assert group.error_code == ErrorCode.NOT_COORDINATOR


async def test_a_coordinator_that_may_have_been_replaced_tells_no_offsets(
    coordinator: Coordinator,
) -> None:
    sent = coordinator.sent(40)
    coordinator.copy()
    assert code_of(await sent) is ErrorCode.NONE
    coordinator.node.replicas.is_recognised = False
    answer = coordinator.fetch()
    assert isinstance(answer, OffsetFetchResponse)
    assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    refused = coordinator.commit(41)
    assert isinstance(refused, OffsetCommitResponse)
    assert code_of(refused) is ErrorCode.NOT_COORDINATOR
    coordinator.node.replicas.is_recognised = True
    assert await coordinator.committed() == 40


async def test_a_note_too_long_is_told_to_who_may_commit(coordinator: Coordinator) -> None:
    note = "x" * (NOTE_MAX + 1)
    stranger = coordinator.commit(1, note=note, member_id="nobody", generation=3)
    assert isinstance(stranger, OffsetCommitResponse)
    assert code_of(stranger) is ErrorCode.ILLEGAL_GENERATION
    allowed = coordinator.commit(1, note=note)
    assert isinstance(allowed, OffsetCommitResponse)
    assert code_of(allowed) is ErrorCode.OFFSET_METADATA_TOO_LARGE


async def test_commit_is_rejected_if_the_group_changed_between_its_turns(
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
