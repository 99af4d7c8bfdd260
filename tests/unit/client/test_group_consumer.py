"""The consumer of a group against a coordinator that says what the test wants it to say."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, ConsumedRecord, FromOffset
from barnabas.client.group_consumer import GroupConsumer
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.codec import Message
from barnabas.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.wire.records import Record, build_batch
from tests.unit.client.scripted_broker import ScriptedBroker

PATIENCE_S = 30.0


class GroupOfOne(ScriptedBroker):
    """A coordinator of a group with one member, and the leader of two partitions with ten records each."""

    def __init__(self, partitions: int = 2) -> None:
        super().__init__(
            {
                FindCoordinatorRequest: lambda _: FindCoordinatorResponse(
                    node_id=0, host="127.0.0.1", port=self.port
                ),
                JoinGroupRequest: self.join,
                SyncGroupRequest: self.sync,
                HeartbeatRequest: lambda _: HeartbeatResponse(error_code=self.next_beat()),
                LeaveGroupRequest: lambda _: LeaveGroupResponse(),
                OffsetFetchRequest: self.fetch_offsets,
                OffsetCommitRequest: self.commit,
                ListOffsetsRequest: self.list_offsets,
                FetchRequest: self.fetch,
            }
        )
        self.topics = {"orders": partitions}
        self.generation = 0
        self.beats: list[int] = []
        self.committed: dict[TopicPartition, int] = {}

    def next_beat(self) -> int:
        return self.beats.pop(0) if self.beats else 0

    def join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        if not request.member_id:
            code = ErrorCode.MEMBER_ID_REQUIRED
            return JoinGroupResponse(error_code=code, member_id=f"m-{self.generation}")
        self.generation += 1
        me = JoinGroupResponseMember(request.member_id, None, request.protocols[0].metadata)
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_name=request.protocols[0].name,
            leader=request.member_id,
            member_id=request.member_id,
            members=(me,),
        )

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        return SyncGroupResponse(assignment=request.assignments[0].assignment)

    def fetch_offsets(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        assert request.require_stable, "it is about to read from there on"
        assert request.topics is not None
        return OffsetFetchResponse(
            topics=tuple(
                OffsetFetchResponseTopic(
                    topic.name,
                    tuple(
                        OffsetFetchResponsePartition(
                            number, self.committed.get(TopicPartition(topic.name, number), -1)
                        )
                        for number in topic.partition_indexes
                    ),
                )
                for topic in request.topics
            )
        )

    def commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        for topic in request.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                self.committed[partition] = each.committed_offset
        return OffsetCommitResponse(
            topics=tuple(
                OffsetCommitResponseTopic(
                    topic.name,
                    tuple(
                        OffsetCommitResponsePartition(each.partition_index)
                        for each in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    topic.name,
                    tuple(
                        ListOffsetsPartitionResponse(
                            each.partition_index, offset=0 if each.timestamp == -2 else 10
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def fetch(self, request: FetchRequest) -> FetchResponse:
        return FetchResponse(
            responses=tuple(
                FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=tuple(
                        PartitionData(
                            partition_index=each.partition,
                            high_watermark=10,
                            records=batch_from(each.fetch_offset),
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )


def batch_from(offset: int) -> bytes:
    rows = [Record(number, 0, None, b"%d" % number) for number in range(offset, 10)]
    return build_batch(rows, base_offset=offset) if rows else b""


def polled_until(
    consumer: GroupConsumer, done: Callable[[list[ConsumedRecord]], bool]
) -> list[ConsumedRecord]:
    deadline = Deadline(PATIENCE_S)
    found: list[ConsumedRecord] = []
    while not done(found):
        assert not deadline.passed, f"{len(found)} records so far"
        found += consumer.poll(0.1)
    return found


def kinds(broker: ScriptedBroker, *wanted: type[Message]) -> list[str]:
    return [type(each).__name__ for each in broker.requests if isinstance(each, wanted)]


def test_a_member_reads_everything_commits_what_is_processed_and_leaves() -> None:
    with GroupOfOne() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        with GroupConsumer(cluster, "billing", ["orders"], start=Beginning()) as consumer:
            found = polled_until(consumer, lambda records: len(records) == 20)
            assert consumer.at_end
            consumer.processed()
        assert [record.offset for record in found if record.partition == 1] == list(range(10))
        assert broker.committed == {
            TopicPartition("orders", 0): 10,
            TopicPartition("orders", 1): 10,
        }
        (leave,) = broker.asked(LeaveGroupRequest)
        assert leave.members[0].member_id == "m-0"
        assert kinds(broker, JoinGroupRequest, SyncGroupRequest) == [
            "JoinGroupRequest",
            "JoinGroupRequest",
            "SyncGroupRequest",
        ]


def test_what_was_not_declared_processed_is_not_committed() -> None:
    with GroupOfOne(1) as broker, Cluster(broker.address, timeout_s=30) as cluster:
        with GroupConsumer(cluster, "billing", ["orders"], start=Beginning()) as consumer:
            found = polled_until(consumer, lambda records: len(records) == 10)
            consumer.processed(found[:4])
        assert broker.committed == {TopicPartition("orders", 0): 4}


def test_a_group_goes_on_where_it_stood_and_begins_elsewhere_where_it_never_was() -> None:
    with GroupOfOne() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        broker.committed = {TopicPartition("orders", 0): 7}
        with GroupConsumer(cluster, "billing", ["orders"]) as consumer:
            found = polled_until(consumer, lambda records: len(records) == 3)
        assert [(record.partition, record.offset) for record in found] == [(0, 7), (0, 8), (0, 9)]
        # The end of partition 1, where the group began, is remembered although nothing was read of it.
        assert broker.committed == {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 10}


def test_who_waits_for_records_hears_of_a_rebalance_meanwhile() -> None:
    with (
        GroupOfOne() as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
        GroupConsumer(
            cluster, "billing", ["orders"], start=Beginning(), heartbeat_s=0.05
        ) as consumer,
    ):
        polled_until(consumer, lambda _: consumer.at_end)
        broker.beats = [ErrorCode.REBALANCE_IN_PROGRESS]
        # Nothing was committed, so that it reads again when it has its partitions again.
        assert consumer.poll(PATIENCE_S)
        assert broker.generation == 2


def test_a_fetch_that_waits_for_records_holds_up_no_rebalance() -> None:
    over = Event()
    with (
        GroupOfOne(1) as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
        GroupConsumer(
            cluster, "billing", ["orders"], start=Beginning(), heartbeat_s=0.05
        ) as consumer,
    ):

        def wait_at_the_end(request: FetchRequest) -> FetchResponse:
            if request.topics[0].partitions[0].fetch_offset == 10:
                over.wait(PATIENCE_S)
            return broker.fetch(request)

        broker.answers[FetchRequest] = wait_at_the_end
        try:
            polled_until(consumer, lambda records: len(records) == 10)
            consumer.poll(0.1)
            broker.beats = [ErrorCode.REBALANCE_IN_PROGRESS]
            polled_until(consumer, lambda _: broker.generation == 2 and consumer.is_settled)
        finally:
            over.set()


def test_an_offset_to_begin_at_is_moved_into_what_there_is() -> None:
    with GroupOfOne() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        with GroupConsumer(cluster, "billing", ["orders"], start=FromOffset(99)) as consumer:
            polled_until(consumer, lambda _: consumer.at_end)
        assert set(broker.committed.values()) == {10}


def test_a_rebalance_gives_everything_up_after_committing_it() -> None:
    told: list[tuple[str, int]] = []
    with GroupOfOne() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        with GroupConsumer(
            cluster,
            "billing",
            ["orders"],
            start=Beginning(),
            heartbeat_s=0.05,
            commit_s=600,
            on_assigned=lambda added: told.append(("assigned", len(added))),
            on_revoked=lambda revoked: told.append(("revoked", len(revoked))),
        ) as consumer:
            polled_until(consumer, lambda records: len(records) == 20)
            consumer.processed()
            broker.beats = [ErrorCode.REBALANCE_IN_PROGRESS]
            polled_until(consumer, lambda _: broker.generation == 2 and consumer.is_settled)
            assert broker.committed[TopicPartition("orders", 1)] == 10
        assert told == [("assigned", 2), ("revoked", 2), ("assigned", 2), ("revoked", 2)]


def test_with_the_cooperative_assignor_it_reads_on_through_a_rebalance() -> None:
    told: list[tuple[str, int]] = []
    with GroupOfOne() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        with GroupConsumer(
            cluster,
            "billing",
            ["orders"],
            assignors=("cooperative-sticky",),
            start=Beginning(),
            heartbeat_s=0.05,
            on_assigned=lambda added: told.append(("assigned", len(added))),
            on_revoked=lambda revoked: told.append(("revoked", len(revoked))),
        ) as consumer:
            polled_until(consumer, lambda records: len(records) == 20)
            broker.beats = [ErrorCode.REBALANCE_IN_PROGRESS]
            polled_until(consumer, lambda _: broker.generation == 2 and consumer.is_settled)
            assert len(consumer.assigned) == 2
        assert told == [("assigned", 2), ("assigned", 0), ("revoked", 2)]


def test_a_forgotten_member_loses_its_partitions_and_commits_nothing_of_them() -> None:
    lost: list[TopicPartition] = []
    with GroupOfOne(1) as broker, Cluster(broker.address, timeout_s=30) as cluster:
        with GroupConsumer(
            cluster,
            "billing",
            ["orders"],
            start=Beginning(),
            heartbeat_s=0.05,
            commit_s=600,
            on_lost=lost.extend,
        ) as consumer:
            polled_until(consumer, lambda records: len(records) == 10)
            consumer.processed()
            broker.beats = [ErrorCode.UNKNOWN_MEMBER_ID]
            again = polled_until(consumer, lambda records: len(records) == 10)
        assert lost == [TopicPartition("orders", 0)]
        assert [record.offset for record in again] == list(range(10))
        assert broker.asked(LeaveGroupRequest)[0].members[0].member_id == "m-1"


def test_new_partitions_are_noticed_by_the_leader_and_read_from_their_beginning() -> None:
    with (
        GroupOfOne(1) as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
        GroupConsumer(cluster, "billing", ["orders"]) as consumer,
    ):
        polled_until(consumer, lambda _: consumer.at_end)
        broker.topics = {"orders": 3}
        consumer.next_partition_check = Deadline(0)
        found = polled_until(consumer, lambda records: len(records) == 20)
        assert {record.partition for record in found} == {1, 2}


def test_a_coordinator_that_moves_is_followed() -> None:
    with (
        GroupOfOne(1) as broker,
        Cluster(broker.address, timeout_s=20) as cluster,
        GroupConsumer(cluster, "g", ["orders"], start=Beginning(), heartbeat_s=0.05) as consumer,
    ):
        polled_until(consumer, lambda records: len(records) == 10)
        before = len(broker.asked(FindCoordinatorRequest))
        broker.beats = [ErrorCode.NOT_COORDINATOR]
        polled_until(consumer, lambda _: len(broker.asked(FindCoordinatorRequest)) > before)
        assert len(consumer.assigned) == 1
