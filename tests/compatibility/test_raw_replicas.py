"""Requests that only brokers should send, sent by a client: wrong epochs, unknown replica ids, offsets past the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.fetch import (
    FetchReplicaState,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.wire.messages.list_offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw, batch_of, fetch_request, wait_until_known

LEADER, FOLLOWER, STRANGER, NOBODY = 1, 2, 3, 77


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {"log.retention.ms": "-1", "auto.leader.rebalance.enable": "false"}
    with LocalCluster(brokers=3, settings=settings) as running:
        create(running, "t")
        yield running


def create(cluster: LocalCluster, name: str, **configs: str) -> None:
    wanted = CreatableTopic(
        name,
        -1,
        -1,
        (CreatableReplicaAssignment(0, (LEADER, FOLLOWER)),),
        tuple(CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()),
    )
    assert cluster.controller_id is not None
    with at(cluster, cluster.controller_id) as raw:
        created = raw.ask(CreateTopicsRequest(topics=(wanted,)), CreateTopicsResponse)
    assert created.topics[0].error_code == ErrorCode.NONE
    wait_until_known((each.address for each in cluster.brokers.values()), name)


def at(cluster: LocalCluster, broker: int) -> Raw:
    return Raw(cluster.brokers[broker].address)


def as_replica(
    raw: Raw, replica: int, offset: int, *, epoch: int = -1, life: int = -1, version: int = 17
) -> PartitionData:
    request: FetchRequest = fetch_request(
        "t", {0: offset}, topic_id=raw.topic_id("t"), current_leader_epoch=epoch
    )
    request = (
        replace(request, replica_state=FetchReplicaState(replica, life))
        if version >= 15
        else replace(request, replica_id=replica)
    )
    answer = raw.ask(request, FetchResponse, version)
    assert answer.error_code == ErrorCode.NONE
    return answer.responses[0].partitions[0]


def latest(raw: Raw, replica: int, *, epoch: int = -1) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(0, timestamp=LATEST_TIMESTAMP, current_leader_epoch=epoch)
    request = ListOffsetsRequest(replica_id=replica, topics=(ListOffsetsTopic("t", (wanted,)),))
    return raw.ask(request, ListOffsetsResponse).topics[0].partitions[0]


def end_of_epoch(raw: Raw, current: int) -> int:
    wanted = OffsetForLeaderPartition(0, current_leader_epoch=current, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        replica_id=FOLLOWER, topics=(OffsetForLeaderTopic("t", (wanted,)),)
    )
    answer = raw.ask(request, OffsetForLeaderEpochResponse)
    return answer.topics[0].partitions[0].error_code


# ---- leader epochs: checked before leadership


@pytest.fixture
def cluster_in_later_epoch(cluster: LocalCluster) -> LocalCluster:
    """The cluster after a follower restart, which starts a new leader epoch. So older and newer epochs exist."""
    with at(cluster, LEADER) as raw:
        if latest(raw, -1, epoch=0).error_code == ErrorCode.NONE:
            cluster.brokers[FOLLOWER].kill()
            cluster.brokers[FOLLOWER].start()
            eventually(
                lambda: latest(raw, -1, epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH,
                "another epoch",
            )
    return cluster


def epoch_of(raw: Raw) -> int:
    return latest(raw, -1).leader_epoch


@pytest.mark.parametrize("broker", [LEADER, FOLLOWER])
@pytest.mark.parametrize("replica", [-1, FOLLOWER, NOBODY])
def test_leader_and_follower_reject_fetch_with_wrong_epoch(
    cluster_in_later_epoch: LocalCluster, broker: int, replica: int
) -> None:
    with at(cluster_in_later_epoch, LEADER) as raw:
        now = epoch_of(raw)
    with at(cluster_in_later_epoch, broker) as raw:
        eventually(
            lambda: (
                as_replica(raw, replica, 0, epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
            ),
            "an older epoch is fenced",
        )
        newer = as_replica(raw, replica, 0, epoch=now + 1)
        assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("broker", [LEADER, FOLLOWER])
def test_leader_and_follower_reject_list_offsets_with_wrong_epoch(
    cluster_in_later_epoch: LocalCluster, broker: int
) -> None:
    with at(cluster_in_later_epoch, LEADER) as raw:
        now = epoch_of(raw)
    answer = ErrorCode.NONE if broker == LEADER else ErrorCode.NOT_LEADER_OR_FOLLOWER
    with at(cluster_in_later_epoch, broker) as raw:

        def codes(epoch: int) -> list[int]:
            return [latest(raw, -1, epoch=epoch).error_code, end_of_epoch(raw, epoch)]

        eventually(lambda: codes(0) == [ErrorCode.FENCED_LEADER_EPOCH] * 2, "fenced")
        assert codes(now + 1) == [ErrorCode.UNKNOWN_LEADER_EPOCH] * 2
        assert codes(now) == [answer] * 2


def test_non_replica_does_not_check_epochs(cluster: LocalCluster) -> None:
    with at(cluster, STRANGER) as raw:
        for epoch in (-1, 0, 99):
            answer = as_replica(raw, -1, 0, epoch=epoch)
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# ---- replica ids


@pytest.mark.parametrize("replica", [STRANGER, NOBODY])
def test_non_replica_broker_cannot_fetch(cluster: LocalCluster, replica: int) -> None:
    with at(cluster, LEADER) as raw:
        raw.produce("t", batch_of(b"a"))
        knowing = as_replica(raw, replica, 0, epoch=epoch_of(raw))
        assert knowing.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        for version in (14, 17):
            unknowing = as_replica(raw, replica, 0, version=version)
            assert unknowing.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert not unknowing.records


def test_follower_rejects_replica_fetch(cluster: LocalCluster) -> None:
    with at(cluster, FOLLOWER) as raw:
        for replica in (FOLLOWER, STRANGER):
            answer = as_replica(raw, replica, 0)
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_replica_fetch_beyond_log_end_is_out_of_range(
    cluster: LocalCluster,
) -> None:
    with at(cluster, LEADER) as raw:
        end = raw.produce("t", batch_of(b"a")).base_offset + 1
        for version in (14, 17):
            answer = as_replica(raw, FOLLOWER, end + 1, version=version)
            assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert raw.fetch("t", end).high_watermark == end
        assert raw.produce("t", batch_of(b"b")).base_offset == end


def test_stale_broker_epoch_of_follower_is_rejected(cluster: LocalCluster) -> None:
    with at(cluster, LEADER) as raw:
        end = raw.produce("t", batch_of(b"a")).base_offset + 1
        eventually(
            lambda: (
                as_replica(raw, FOLLOWER, end, life=0).error_code
                == ErrorCode.NOT_LEADER_OR_FOLLOWER
            ),
            "the leader knows the follower's broker epoch",
        )
        assert as_replica(raw, FOLLOWER, end).error_code == ErrorCode.NONE, "no epoch is accepted"


# ---- offsets


def test_list_offsets_from_follower_requires_debug_replica_id(
    cluster: LocalCluster,
) -> None:
    with at(cluster, LEADER) as leader, at(cluster, FOLLOWER) as follower:
        end = leader.produce("t", batch_of(b"a")).base_offset + 1
        assert latest(leader, -1).offset == end
        for replica in (-1, FOLLOWER):
            assert latest(follower, replica).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        eventually(lambda: latest(follower, -2).offset == end, "the follower caught up")


# ---- in-sync replicas


def test_min_insync_replicas_is_capped_by_replication_factor(cluster: LocalCluster) -> None:
    create(cluster, "strict", min_insync_replicas="3")
    with at(cluster, LEADER) as raw:
        assert raw.produce("strict", batch_of(b"a")).error_code == ErrorCode.NONE
        cluster.brokers[FOLLOWER].kill()
        try:
            eventually(
                lambda: (
                    raw.produce("strict", batch_of(b"b")).error_code
                    == ErrorCode.NOT_ENOUGH_REPLICAS
                ),
                "one in-sync replica is too few",
            )
            refused = raw.produce("strict", batch_of(b"c"))
            assert refused.error_message == "1 in sync, min.insync.replicas=3"
            assert raw.produce("strict", batch_of(b"d"), acks=1).error_code == ErrorCode.NONE
        finally:
            cluster.brokers[FOLLOWER].start()
