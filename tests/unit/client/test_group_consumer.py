"""Group consumer against a scripted coordinator."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from barnabas.batch.records import Record, build_batch
from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, ConsumedRecord, FromOffset
from barnabas.client.group_consumer import GroupConsumer
from barnabas.errors import ApiError, ErrorCode
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
from tests.unit.client.scripted_broker import ScriptedBroker

PATIENCE_S = 30.0


class SingleMemberGroup(ScriptedBroker):
    """Coordinator of a group with one member, and leader of partitions with ten records each."""

    def __init__(self, partitions: int = 2) -> None:
        super().__init__(
            {
                FindCoordinatorRequest: lambda _: FindCoordinatorResponse(
                    node_id=0, host="127.0.0.1", port=self.port
                ),
                JoinGroupRequest: self.join,
                SyncGroupRequest: self.sync,
                HeartbeatRequest: lambda _: HeartbeatResponse(
                    error_code=self.next_heartbeat_error()
                ),
                LeaveGroupRequest: lambda _: LeaveGroupResponse(),
                OffsetFetchRequest: self.fetch_offsets,
                OffsetCommitRequest: self.commit,
                ListOffsetsRequest: self.list_offsets,
                FetchRequest: self.fetch,
            }
        )
        self.topics = {"orders": partitions}
        self.generation = 0
        self.heartbeat_errors: list[int] = []
        self.committed: dict[TopicPartition, int] = {}

    def next_heartbeat_error(self) -> int:
        return self.heartbeat_errors.pop(0) if self.heartbeat_errors else 0

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
        assert request.require_stable, "a consumer needs stable offsets"
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


def poll_until(
    consumer: GroupConsumer, done: Callable[[list[ConsumedRecord]], bool]
) -> list[ConsumedRecord]:
    deadline = Deadline(PATIENCE_S)
    found: list[ConsumedRecord] = []
    while not done(found):
        assert not deadline.passed, f"{len(found)} records so far"
        found += consumer.poll(0.1)
    return found


def request_names(broker: ScriptedBroker, *wanted: type[Message]) -> list[str]:
    return [type(each).__name__ for each in broker.requests if isinstance(each, wanted)]


def test_member_reads_commits_processed_and_leaves() -> None:
    with SingleMemberGroup() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        with GroupConsumer(cluster, "billing", ["orders"], start=Beginning()) as consumer:
            found = poll_until(consumer, lambda records: len(records) == 20)
            assert consumer.at_end
            consumer.processed()
        assert [record.offset for record in found if record.partition == 1] == list(range(10))
        assert broker.committed == {
            TopicPartition("orders", 0): 10,
            TopicPartition("orders", 1): 10,
        }
        (leave,) = broker.received(LeaveGroupRequest)
        assert leave.members[0].member_id == "m-0"
        assert request_names(broker, JoinGroupRequest, SyncGroupRequest) == [
            "JoinGroupRequest",
            "JoinGroupRequest",
            "SyncGroupRequest",
        ]


def test_unprocessed_records_are_not_committed() -> None:
    with SingleMemberGroup(1) as broker, Cluster(broker.address, timeout_s=30) as cluster:
        with GroupConsumer(cluster, "billing", ["orders"], start=Beginning()) as consumer:
            found = poll_until(consumer, lambda records: len(records) == 10)
            consumer.processed(found[:4])
        assert broker.committed == {TopicPartition("orders", 0): 4}


def test_consumer_resumes_at_commit_or_starts_at_end() -> None:
    with SingleMemberGroup() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        broker.committed = {TopicPartition("orders", 0): 7}
        with GroupConsumer(cluster, "billing", ["orders"]) as consumer:
            found = poll_until(consumer, lambda records: len(records) == 3)
        assert [(record.partition, record.offset) for record in found] == [(0, 7), (0, 8), (0, 9)]
        # The start position of partition 1 is committed although no record of it was read.
        assert broker.committed == {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 10}


def test_rebalance_is_noticed_while_waiting_for_records() -> None:
    with (
        SingleMemberGroup() as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
        GroupConsumer(
            cluster, "billing", ["orders"], start=Beginning(), heartbeat_s=0.05
        ) as consumer,
    ):
        poll_until(consumer, lambda _: consumer.at_end)
        broker.heartbeat_errors = [ErrorCode.REBALANCE_IN_PROGRESS]
        # Nothing was committed, so it reads again after the rebalance.
        assert consumer.poll(PATIENCE_S)
        assert broker.generation == 2


def test_waiting_fetch_does_not_delay_rebalance() -> None:
    over = Event()
    with (
        SingleMemberGroup(1) as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
        GroupConsumer(
            cluster, "billing", ["orders"], start=Beginning(), heartbeat_s=0.05
        ) as consumer,
    ):

        def wait_at_end(request: FetchRequest) -> FetchResponse:
            if request.topics[0].partitions[0].fetch_offset == 10:
                over.wait(PATIENCE_S)
            return broker.fetch(request)

        broker.answers[FetchRequest] = wait_at_end
        try:
            poll_until(consumer, lambda records: len(records) == 10)
            consumer.poll(0.1)
            broker.heartbeat_errors = [ErrorCode.REBALANCE_IN_PROGRESS]
            poll_until(consumer, lambda _: broker.generation == 2 and consumer.is_settled)
        finally:
            over.set()


def test_start_offset_is_clamped_to_the_log() -> None:
    with SingleMemberGroup() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        with GroupConsumer(cluster, "billing", ["orders"], start=FromOffset(99)) as consumer:
            poll_until(consumer, lambda _: consumer.at_end)
        assert set(broker.committed.values()) == {10}


def test_eager_rebalance_commits_and_revokes_everything() -> None:
    callbacks: list[tuple[str, int]] = []
    with SingleMemberGroup() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        with GroupConsumer(
            cluster,
            "billing",
            ["orders"],
            start=Beginning(),
            heartbeat_s=0.05,
            commit_s=600,
            on_assigned=lambda added: callbacks.append(("assigned", len(added))),
            on_revoked=lambda revoked: callbacks.append(("revoked", len(revoked))),
        ) as consumer:
            poll_until(consumer, lambda records: len(records) == 20)
            consumer.processed()
            broker.heartbeat_errors = [ErrorCode.REBALANCE_IN_PROGRESS]
            poll_until(consumer, lambda _: broker.generation == 2 and consumer.is_settled)
            assert broker.committed[TopicPartition("orders", 1)] == 10
        assert callbacks == [("assigned", 2), ("revoked", 2), ("assigned", 2), ("revoked", 2)]


def test_cooperative_consumer_keeps_reading_during_rebalance() -> None:
    callbacks: list[tuple[str, int]] = []
    with SingleMemberGroup() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        with GroupConsumer(
            cluster,
            "billing",
            ["orders"],
            assignors=("cooperative-sticky",),
            start=Beginning(),
            heartbeat_s=0.05,
            on_assigned=lambda added: callbacks.append(("assigned", len(added))),
            on_revoked=lambda revoked: callbacks.append(("revoked", len(revoked))),
        ) as consumer:
            poll_until(consumer, lambda records: len(records) == 20)
            broker.heartbeat_errors = [ErrorCode.REBALANCE_IN_PROGRESS]
            poll_until(consumer, lambda _: broker.generation == 2 and consumer.is_settled)
            assert len(consumer.assigned) == 2
        assert callbacks == [("assigned", 2), ("assigned", 0), ("revoked", 2)]


def test_unknown_member_loses_partitions_without_committing() -> None:
    lost: list[TopicPartition] = []
    with SingleMemberGroup(1) as broker, Cluster(broker.address, timeout_s=30) as cluster:
        with GroupConsumer(
            cluster,
            "billing",
            ["orders"],
            start=Beginning(),
            heartbeat_s=0.05,
            commit_s=600,
            on_lost=lost.extend,
        ) as consumer:
            poll_until(consumer, lambda records: len(records) == 10)
            consumer.processed()
            broker.heartbeat_errors = [ErrorCode.UNKNOWN_MEMBER_ID]
            again = poll_until(consumer, lambda records: len(records) == 10)
        assert lost == [TopicPartition("orders", 0)]
        assert [record.offset for record in again] == list(range(10))
        assert broker.received(LeaveGroupRequest)[0].members[0].member_id == "m-1"


def test_leader_detects_new_partitions_and_reads_from_beginning() -> None:
    with (
        SingleMemberGroup(1) as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
        GroupConsumer(cluster, "billing", ["orders"]) as consumer,
    ):
        poll_until(consumer, lambda _: consumer.at_end)
        broker.topics = {"orders": 3}
        consumer.next_partition_check = Deadline(0)
        found = poll_until(consumer, lambda records: len(records) == 20)
        assert {record.partition for record in found} == {1, 2}


def test_commit_is_retried_but_not_during_rebalance() -> None:
    partition = TopicPartition("orders", 0)
    with (
        SingleMemberGroup(1) as broker,
        Cluster(broker.address, timeout_s=20) as cluster,
        GroupConsumer(cluster, "g", ["orders"], start=Beginning(), commit_s=None) as consumer,
    ):
        poll_until(consumer, lambda records: len(records) == 10)
        errors = [None, ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS]

        def fail_first(request: OffsetCommitRequest) -> OffsetCommitResponse | None:
            if not errors:
                return broker.commit(request)
            error = errors.pop(0)
            if error is None:
                return None
            failed = OffsetCommitResponsePartition(0, error)
            return OffsetCommitResponse(topics=(OffsetCommitResponseTopic("orders", (failed,)),))

        broker.answers[OffsetCommitRequest] = fail_first
        with pytest.raises(ApiError, match="REBALANCE_IN_PROGRESS"):
            consumer.commit({partition: 4})
        assert (errors, broker.committed) == ([], {})
        consumer.commit({partition: 4})
        assert broker.committed == {partition: 4}


def test_lookup_of_committed_offsets_follows_moved_coordinator() -> None:
    partition = TopicPartition("orders", 0)
    with (
        SingleMemberGroup(1) as broker,
        Cluster(broker.address, timeout_s=20) as cluster,
        GroupConsumer(cluster, "g", ["orders"], start=Beginning(), commit_s=None) as consumer,
    ):
        poll_until(consumer, lambda records: len(records) == 10)
        codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.UNSTABLE_OFFSET_COMMIT]

        def fail_first(request: OffsetFetchRequest) -> OffsetFetchResponse:
            if not codes:
                return broker.fetch_offsets(request)
            return OffsetFetchResponse(error_code=codes.pop(0))

        before = len(broker.received(FindCoordinatorRequest))
        broker.answers[OffsetFetchRequest] = fail_first
        assert consumer.committed_or_start([partition]) == {partition: 0}
        assert len(broker.received(FindCoordinatorRequest)) == before + 2


def test_consumer_follows_moved_coordinator() -> None:
    with (
        SingleMemberGroup(1) as broker,
        Cluster(broker.address, timeout_s=20) as cluster,
        GroupConsumer(cluster, "g", ["orders"], start=Beginning(), heartbeat_s=0.05) as consumer,
    ):
        poll_until(consumer, lambda records: len(records) == 10)
        before = len(broker.received(FindCoordinatorRequest))
        broker.heartbeat_errors = [ErrorCode.NOT_COORDINATOR]
        poll_until(consumer, lambda _: len(broker.received(FindCoordinatorRequest)) > before)
        assert len(consumer.assigned) == 1
