"""The new consumer protocol by hand, on real brokers: heartbeats, descriptions, offsets, failover and migration."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from barnabas import LocalCluster
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.consumer_protocol import ConsumerSubscription, encode_subscription
from barnabas.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from barnabas.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
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
)
from tests.compatibility.raw import Raw
from tests.compatibility.raw_member import one_group_per_partition, wait_until_loaded

PARTITIONS = 2
SETTINGS = {
    "offsets.topic.num.partitions": PARTITIONS,
    "group.initial.rebalance.delay.ms": 0,
    "controlled.shutdown.enable": False,
}
NUMBERS = count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as running:
        with Raw(running.bootstrap_servers) as raw:
            wait_until_loaded(raw, *one_group_per_partition(PARTITIONS))
        running.create_topic("orders", partitions=4)
        yield running


@pytest.fixture
def raw(cluster: LocalCluster) -> Iterator[Raw]:
    with Raw(cluster.bootstrap_servers) as raw:
        yield raw


@pytest.fixture
def group() -> str:
    return f"group-{next(NUMBERS)}"


def send(
    raw: Raw, group: str, member_id: str, epoch: int, **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member_id, member_epoch=epoch, **fields
    )
    return raw.ask(request, ConsumerGroupHeartbeatResponse)


def join(raw: Raw, group: str, member_id: str = "") -> ConsumerGroupHeartbeatResponse:
    return send(
        raw,
        group,
        member_id,
        0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )


def partitions_of(response: ConsumerGroupHeartbeatResponse) -> tuple[UUID, tuple[int, ...]]:
    assert response.error_code == ErrorCode.NONE, response
    assert response.assignment is not None
    (topic,) = response.assignment.topic_partitions
    return topic.topic_id, topic.partitions


def describe(raw: Raw, group: str) -> DescribedConsumerGroup:
    request = ConsumerGroupDescribeRequest(group_ids=(group,))
    (found,) = raw.ask(request, ConsumerGroupDescribeResponse).groups
    return found


def commit(raw: Raw, group: str, member_id: str, epoch: int, *, version: int = 9) -> int:
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=(OffsetCommitRequestTopic("orders", (OffsetCommitRequestPartition(0, 5),)),),
    )
    (topic,) = raw.ask(request, OffsetCommitResponse, version).topics
    return topic.partitions[0].error_code


def fetch(raw: Raw, group: str, member_id: str | None, epoch: int) -> tuple[int, int]:
    """Error code and committed offset of orders-0."""
    topics = (OffsetFetchRequestTopic("orders", (0,)),)
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group, member_id, epoch, topics),))
    (found,) = raw.ask(request, OffsetFetchResponse, 9).groups
    offset = found.topics[0].partitions[0].committed_offset if found.topics else -1
    return found.error_code, offset


def test_two_members_share_a_topic(raw: Raw, group: str) -> None:
    first = join(raw, group)
    assert first.member_id
    assert first.member_epoch == 1
    assert first.heartbeat_interval_ms == 5000
    topic_id, partitions = partitions_of(first)
    assert partitions == (0, 1, 2, 3)

    second = join(raw, group, "second")
    assert second.assignment is not None
    assert second.assignment.topic_partitions == ()
    _, kept = partitions_of(send(raw, group, first.member_id, 1))
    assert len(kept) == 2
    owned = (HeartbeatTopicPartitions(topic_id, kept),)
    assert send(raw, group, first.member_id, 1, topic_partitions=owned).member_epoch == 2
    _, taken = partitions_of(send(raw, group, "second", 2))
    assert sorted(kept + taken) == [0, 1, 2, 3]

    found = describe(raw, group)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 2, 2)
    assert found.assignor_name == "uniform"
    by_id = {each.member_id: each for each in found.members}
    assert by_id.keys() == {first.member_id, "second"}
    assert by_id["second"].assignment.topic_partitions == ((topic_id, "orders", taken),)
    assert by_id["second"].assignment == by_id["second"].target_assignment
    listed = raw.ask(ListGroupsRequest(types_filter=("consumer",)), ListGroupsResponse).groups
    assert (group, "consumer", "Stable", "consumer") in listed
    (classic,) = raw.ask(DescribeGroupsRequest(groups=(group,)), DescribeGroupsResponse).groups
    assert classic.group_state == "Dead"


def test_admin_client_describes_the_group(cluster: LocalCluster, raw: Raw, group: str) -> None:
    join(raw, group, "m")
    with Cluster(cluster.bootstrap_servers) as client:
        found = GroupAdmin(client).describe_group(group)
        assert not GroupAdmin(client).describe_group("unknown").exists
    assert (found.state, found.assignor, found.is_active) == ("Stable", "uniform", True)
    (member,) = found.members
    assert member.partitions == tuple(TopicPartition("orders", each) for each in range(4))


def test_errors(raw: Raw, group: str) -> None:
    def code(*arguments: Any, **fields: Any) -> int:
        return send(raw, *arguments, **fields).error_code

    assert code(group, "m", 1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert code(group, "m", -1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert code("", "m", 1) == ErrorCode.INVALID_REQUEST
    assert code(group, "", 0) == ErrorCode.INVALID_REQUEST
    assert describe(raw, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    join(raw, group, "m")
    assert code(group, "m", 7) == ErrorCode.FENCED_MEMBER_EPOCH
    assert code(group, "other", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(group, "m", 1, server_assignor="sticky") == ErrorCode.UNSUPPORTED_ASSIGNOR


def test_offsets_need_the_member_epoch(raw: Raw, group: str) -> None:
    join(raw, group, "m")
    assert commit(raw, group, "m", 1) == ErrorCode.NONE
    assert commit(raw, group, "m", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(raw, group, "other", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(raw, group, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(raw, group, "m", 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert fetch(raw, group, "m", 1) == (ErrorCode.NONE, 5)
    assert fetch(raw, group, None, -1) == (ErrorCode.NONE, 5)
    assert fetch(raw, group, "m", 3) == (ErrorCode.STALE_MEMBER_EPOCH, -1)
    assert fetch(raw, group, "other", 1) == (ErrorCode.UNKNOWN_MEMBER_ID, -1)
    assert delete(raw, group) == ErrorCode.NON_EMPTY_GROUP
    send(raw, group, "m", -1)
    assert describe(raw, group).group_state == "Empty"
    assert delete(raw, group) == ErrorCode.NONE
    assert describe(raw, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def delete(raw: Raw, group: str) -> int:
    request = DeleteGroupsRequest(groups_names=(group,))
    (result,) = raw.ask(request, DeleteGroupsResponse).results
    return result.error_code


def join_classic(raw: Raw, group: str, member_id: str = "") -> JoinGroupResponse:
    metadata = encode_subscription(ConsumerSubscription(("orders",)))
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol("range", metadata),),
    )
    found = raw.ask(request, JoinGroupResponse, 5)
    if found.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        return join_classic(raw, group, found.member_id)
    return found


def test_group_migrates_in_both_directions(raw: Raw, group: str) -> None:
    classic = join_classic(raw, group)
    assert classic.error_code == ErrorCode.NONE
    assert commit(raw, group, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    joined = join(raw, group, "new")
    assert joined.error_code == ErrorCode.NONE
    assert len(describe(raw, group).members) == 2
    beat = HeartbeatRequest(
        group_id=group, generation_id=classic.generation_id, member_id=classic.member_id
    )
    assert raw.ask(beat, HeartbeatResponse, 3).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = join_classic(raw, group, classic.member_id)
    assert (again.error_code, again.generation_id) == (ErrorCode.NONE, joined.member_epoch)
    assert send(raw, group, "new", -1).error_code == ErrorCode.NONE
    assert describe(raw, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (found,) = raw.ask(DescribeGroupsRequest(groups=(group,)), DescribeGroupsResponse).groups
    assert found.group_state == "PreparingRebalance"
    again = join_classic(raw, group, classic.member_id)
    assert again.leader == classic.member_id


def test_group_survives_a_restart(group: str) -> None:
    with LocalCluster(settings=SETTINGS) as cluster:
        with Raw(cluster.bootstrap_servers) as raw:
            wait_until_loaded(raw, *one_group_per_partition(PARTITIONS))
        cluster.create_topic("orders", partitions=4)
        with Raw(cluster.bootstrap_servers) as raw:
            join(raw, group, "m")
            commit(raw, group, "m", 1)
            before = describe(raw, group)
        cluster.kill(1)
        cluster.restore()
        with Raw(cluster.bootstrap_servers) as raw:
            wait_until_loaded(raw, *one_group_per_partition(PARTITIONS))
            assert describe(raw, group) == before
            assert send(raw, group, "m", 1).error_code == ErrorCode.NONE
            assert fetch(raw, group, "m", 1) == (ErrorCode.NONE, 5)


def test_protocol_can_be_disabled(group: str) -> None:
    settings = {**SETTINGS, "group.coordinator.rebalance.protocols": "classic"}
    with LocalCluster(settings=settings) as cluster, Raw(cluster.bootstrap_servers) as raw:
        assert join(raw, group).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert describe(raw, group).error_code == ErrorCode.UNSUPPORTED_VERSION
