"""What only brokers should ask, asked by a client: wrong epochs, replica ids that are none, more than there is."""

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


# ---- epochs: looked at before who leads


@pytest.fixture
def in_a_later_epoch(cluster: LocalCluster) -> LocalCluster:
    """A follower was away, which begins another epoch: so there is an older one as well as a newer one."""
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
def test_another_epoch_is_told_by_leaders_and_followers_to_whoever_fetches(
    in_a_later_epoch: LocalCluster, broker: int, replica: int
) -> None:
    with at(in_a_later_epoch, LEADER) as raw:
        now = epoch_of(raw)
    with at(in_a_later_epoch, broker) as raw:
        eventually(
            lambda: (
                as_replica(raw, replica, 0, epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
            ),
            "an older epoch is fenced",
        )
        newer = as_replica(raw, replica, 0, epoch=now + 1)
        assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("broker", [LEADER, FOLLOWER])
def test_another_epoch_is_told_to_who_asks_for_offsets(
    in_a_later_epoch: LocalCluster, broker: int
) -> None:
    with at(in_a_later_epoch, LEADER) as raw:
        now = epoch_of(raw)
    answer = ErrorCode.NONE if broker == LEADER else ErrorCode.NOT_LEADER_OR_FOLLOWER
    with at(in_a_later_epoch, broker) as raw:

        def codes(epoch: int) -> list[int]:
            return [latest(raw, -1, epoch=epoch).error_code, end_of_epoch(raw, epoch)]

        eventually(lambda: codes(0) == [ErrorCode.FENCED_LEADER_EPOCH] * 2, "fenced")
        assert codes(now + 1) == [ErrorCode.UNKNOWN_LEADER_EPOCH] * 2
        assert codes(now) == [answer] * 2


def test_who_has_no_copy_knows_no_epochs(cluster: LocalCluster) -> None:
    with at(cluster, STRANGER) as raw:
        for epoch in (-1, 0, 99):
            answer = as_replica(raw, -1, 0, epoch=epoch)
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# ---- replica ids


@pytest.mark.parametrize("replica", [STRANGER, NOBODY])
def test_a_broker_that_is_no_replica_copies_nothing(cluster: LocalCluster, replica: int) -> None:
    with at(cluster, LEADER) as raw:
        raw.produce("t", batch_of(b"a"))
        knowing = as_replica(raw, replica, 0, epoch=epoch_of(raw))
        assert knowing.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        for version in (14, 17):
            unknowing = as_replica(raw, replica, 0, version=version)
            assert unknowing.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert not unknowing.records


def test_followers_copy_from_the_leader_only(cluster: LocalCluster) -> None:
    with at(cluster, FOLLOWER) as raw:
        for replica in (FOLLOWER, STRANGER):
            answer = as_replica(raw, replica, 0)
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_client_that_passes_for_a_replica_cannot_claim_more_than_there_is(
    cluster: LocalCluster,
) -> None:
    with at(cluster, LEADER) as raw:
        end = raw.produce("t", batch_of(b"a")).base_offset + 1
        for version in (14, 17):
            answer = as_replica(raw, FOLLOWER, end + 1, version=version)
            assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert raw.fetch("t", end).high_watermark == end
        assert raw.produce("t", batch_of(b"b")).base_offset == end


def test_a_former_life_of_a_follower_is_not_believed(cluster: LocalCluster) -> None:
    with at(cluster, LEADER) as raw:
        end = raw.produce("t", batch_of(b"a")).base_offset + 1
        eventually(
            lambda: (
                as_replica(raw, FOLLOWER, end, life=0).error_code
                == ErrorCode.NOT_LEADER_OR_FOLLOWER
            ),
            "the follower has told which life it is in",
        )
        assert as_replica(raw, FOLLOWER, end).error_code == ErrorCode.NONE, "an unknown life may be"


# ---- offsets


def test_offsets_for_consumers_are_on_the_leader_and_for_tools_everywhere(
    cluster: LocalCluster,
) -> None:
    with at(cluster, LEADER) as leader, at(cluster, FOLLOWER) as follower:
        end = leader.produce("t", batch_of(b"a")).base_offset + 1
        assert latest(leader, -1).offset == end
        for replica in (-1, FOLLOWER):
            assert latest(follower, replica).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        eventually(lambda: latest(follower, -2).offset == end, "the follower has copied it")


# ---- in sync


def test_no_more_need_be_in_sync_than_there_are_replicas(cluster: LocalCluster) -> None:
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
                "one of two is too few",
            )
            refused = raw.produce("strict", batch_of(b"c"))
            assert refused.error_message == "1 in sync, min.insync.replicas=3"
            assert raw.produce("strict", batch_of(b"d"), acks=1).error_code == ErrorCode.NONE
        finally:
            cluster.brokers[FOLLOWER].start()
