"""A client that passes for a follower: whatever it claims, the follower itself is heard again and the topic goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchReplicaState,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw, batch_of, values_in, wait_until_known

LEADER, FOLLOWER = 1, 2
SETTINGS = {"log.retention.ms": "-1", "auto.leader.rebalance.enable": "false"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Of three records that both hold, one of which must not be alone in sync to take more."""
    name: str = request.node.name.replace("[", "-").rstrip("]")[:200]
    assignment = CreatableReplicaAssignment(0, (LEADER, FOLLOWER))
    strict = CreatableTopicConfig("min.insync.replicas", "2")
    wanted = CreatableTopic(name, -1, -1, (assignment,), (strict,))
    assert cluster.controller_id is not None
    with Raw(cluster.brokers[cluster.controller_id].address) as raw:
        created = raw.ask(CreateTopicsRequest(topics=(wanted,)), CreateTopicsResponse)
    assert created.topics[0].error_code == ErrorCode.NONE
    wait_until_known([cluster.brokers[LEADER].address], name)
    with at_leader(cluster) as raw:
        for value in (b"first", b"second", b"third"):
            assert raw.produce(name, batch_of(value)).error_code == ErrorCode.NONE
    return name


def at_leader(cluster: LocalCluster) -> Raw:
    return Raw(cluster.brokers[LEADER].address)


def pass_for_follower(
    raw: Raw, topic: str, offset: int, *, session_epoch: int = -1, version: int = 17
) -> PartitionData:
    by_state = version >= 15
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1 if by_state else FOLLOWER,
        replica_state=FetchReplicaState(FOLLOWER, -1) if by_state else FetchReplicaState(),
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=session_epoch,
        topics=(FetchTopic(topic, raw.topic_id(topic), (wanted,)),),
    )
    answer = raw.ask(request, FetchResponse, version)
    assert answer.error_code == ErrorCode.NONE
    return answer.responses[0].partitions[0]


def isr(cluster: LocalCluster, topic: str) -> tuple[int, ...]:
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    with at_leader(cluster) as raw:
        (found,) = raw.ask(request, MetadataResponse).topics
    return found.partitions[0].isr_nodes


@pytest.mark.parametrize("session_epoch", [-1, 0], ids=["alone", "session"])
@pytest.mark.parametrize("version", [11, 17])
def test_a_follower_that_somebody_spoke_for_stays_in_sync_though_nothing_is_written(
    cluster: LocalCluster, topic: str, version: int, session_epoch: int
) -> None:
    """With min.insync.replicas=2, nothing would ever be written again."""
    with at_leader(cluster) as raw:
        claimed = pass_for_follower(raw, topic, 0, version=version, session_epoch=session_epoch)
        assert values_in(claimed) == [b"first", b"second", b"third"]
        eventually(lambda: set(isr(cluster, topic)) == {LEADER, FOLLOWER}, "both are in sync")
        eventually(
            lambda: raw.produce(topic, batch_of(b"fourth")).error_code == ErrorCode.NONE,
            "it takes writes",
        )


def test_what_is_deleted_goes_everywhere_though_somebody_spoke_for_a_follower(
    cluster: LocalCluster, topic: str
) -> None:
    with at_leader(cluster) as raw:
        pass_for_follower(raw, topic, 3)
        partitions = (DeleteRecordsPartition(0, 2),)
        request = DeleteRecordsRequest(
            topics=(DeleteRecordsTopic(topic, partitions),), timeout_ms=15_000
        )
        (deleted,) = raw.ask(request, DeleteRecordsResponse).topics
        assert deleted.partitions[0].error_code == ErrorCode.NONE
        assert deleted.partitions[0].low_watermark == 2


def test_nobody_can_claim_for_a_follower_what_the_leader_has_not(
    cluster: LocalCluster, topic: str
) -> None:
    with at_leader(cluster) as raw:
        for offset in (4, 1 << 40, -1):
            answer = pass_for_follower(raw, topic, offset)
            assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert raw.fetch(topic, 3).high_watermark == 3
        assert set(isr(cluster, topic)) == {LEADER, FOLLOWER}


def test_the_leader_does_not_copy_from_itself(cluster: LocalCluster, topic: str) -> None:
    with at_leader(cluster) as raw:
        wanted = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            replica_id=LEADER,
            max_wait_ms=0,
            min_bytes=0,
            topics=(FetchTopic(topic, raw.topic_id(topic), (wanted,)),),
        )
        (found,) = raw.ask(request, FetchResponse, 11).responses
        assert found.partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_produce_that_timed_out_tells_where_its_records_are(
    cluster: LocalCluster, topic: str
) -> None:
    """They are in the log, and committed when the follower goes on: a client that sends them again has them twice."""
    cluster.brokers[FOLLOWER].pause()
    try:
        with at_leader(cluster) as raw:
            data = TopicProduceData(topic, (PartitionProduceData(0, batch_of(b"late")),))
            request = ProduceRequest(acks=-1, timeout_ms=100, topic_data=(data,))
            (answer,) = raw.ask(request, ProduceResponse).responses
            late = answer.partition_responses[0]
            assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert (late.base_offset, late.log_start_offset) == (3, 0)
            assert raw.fetch(topic, 3).high_watermark == 3
    finally:
        cluster.brokers[FOLLOWER].resume()
    with at_leader(cluster) as raw:
        eventually(lambda: values_in(raw.fetch(topic, 3)) == [b"late"], "it is committed")
