"""A client impersonates a follower. Its claims are overridden by the real follower, and the topic stays writable."""

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
    """A topic with three replicated records and min.insync.replicas=2."""
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


def impersonate_follower(
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
def test_impersonated_idle_follower_returns_to_isr(
    cluster: LocalCluster, topic: str, version: int, session_epoch: int
) -> None:
    """With min.insync.replicas=2, a follower lost from the ISR would block writes forever."""
    with at_leader(cluster) as raw:
        claimed = impersonate_follower(raw, topic, 0, version=version, session_epoch=session_epoch)
        assert values_in(claimed) == [b"first", b"second", b"third"]
        eventually(lambda: set(isr(cluster, topic)) == {LEADER, FOLLOWER}, "both are in sync")
        eventually(
            lambda: raw.produce(topic, batch_of(b"fourth")).error_code == ErrorCode.NONE,
            "it takes writes",
        )


def test_delete_records_completes_with_impersonated_follower(
    cluster: LocalCluster, topic: str
) -> None:
    with at_leader(cluster) as raw:
        impersonate_follower(raw, topic, 3)
        partitions = (DeleteRecordsPartition(0, 2),)
        request = DeleteRecordsRequest(
            topics=(DeleteRecordsTopic(topic, partitions),), timeout_ms=15_000
        )
        (deleted,) = raw.ask(request, DeleteRecordsResponse).topics
        assert deleted.partitions[0].error_code == ErrorCode.NONE
        assert deleted.partitions[0].low_watermark == 2


def test_follower_offset_beyond_log_end_is_rejected(cluster: LocalCluster, topic: str) -> None:
    with at_leader(cluster) as raw:
        for offset in (4, 1 << 40, -1):
            answer = impersonate_follower(raw, topic, offset)
            assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert raw.fetch(topic, 3).high_watermark == 3
        assert set(isr(cluster, topic)) == {LEADER, FOLLOWER}


def test_leader_rejects_fetch_with_its_own_replica_id(cluster: LocalCluster, topic: str) -> None:
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


def test_timed_out_produce_returns_base_offset(cluster: LocalCluster, topic: str) -> None:
    """The records are in the log and get committed when the follower resumes. A retry would store them twice."""
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
