from __future__ import annotations

import pytest

from barnabas.client.group_member import NO_GENERATION, GroupMembership, MemberState
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.wire.messages.heartbeat import HeartbeatResponse
from barnabas.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.wire.messages.sync_group import SyncGroupResponse

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
MINE = encode_assignment(ConsumerAssignment((TopicPartitions("orders", (0, 1)),)))


def new_member() -> GroupMembership:
    return GroupMembership(
        "billing",
        ["orders"],
        assignors=("range", "cooperative-sticky"),
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
    )


def subscriptions_of(*member_ids: str) -> tuple[JoinGroupResponseMember, ...]:
    data = encode_subscription(ConsumerSubscription(("orders",)))
    return tuple(JoinGroupResponseMember(member, None, data) for member in member_ids)


def join(member: GroupMembership, *, leader: str = "m-1", generation: int = 4) -> GroupMembership:
    member.on_join(
        JoinGroupResponse(
            generation_id=generation,
            protocol_name="range",
            leader=leader,
            member_id="m-1",
            members=subscriptions_of("m-1", "m-2") if leader == "m-1" else (),
        )
    )
    return member


def stable_member() -> GroupMembership:
    member = join(new_member())
    member.on_sync(SyncGroupResponse(assignment=MINE))
    return member


def test_member_rejoins_with_assigned_member_id() -> None:
    member = new_member()
    assert member.join([]).member_id == ""
    code = ErrorCode.MEMBER_ID_REQUIRED
    member.on_join(JoinGroupResponse(error_code=code, member_id="m-1"))
    assert member.state is MemberState.UNJOINED
    assert member.join([]).member_id == "m-1"
    assert not member.has_lost_partitions


def test_join_offers_every_assignor_with_owned_partitions() -> None:
    request = stable_member().join([ORDERS_1, ORDERS_0])
    assert [protocol.name for protocol in request.protocols] == ["range", "cooperative-sticky"]
    assert request.protocol_type == "consumer"
    for protocol in request.protocols:
        owned = (TopicPartitions("orders", (0, 1)),)
        assert decode_subscription(protocol.metadata) == ConsumerSubscription(
            ("orders",), None, owned, 4
        )


def test_leader_assigns_partitions_to_all_members() -> None:
    member = join(new_member())
    assert member.state is MemberState.JOINED
    assert member.group_topics == {"orders"}
    request = member.sync({"orders": 3})
    assert (request.generation_id, request.protocol_name) == (4, "range")
    shares = {each.member_id: decode_assignment(each.assignment) for each in request.assignments}
    assert shares == {
        "m-1": ConsumerAssignment((TopicPartitions("orders", (0, 1)),)),
        "m-2": ConsumerAssignment((TopicPartitions("orders", (2,)),)),
    }


def test_follower_sends_no_assignment_and_receives_its_own() -> None:
    member = join(new_member(), leader="m-2")
    assert member.sync({}).assignments == ()
    assert member.on_sync(SyncGroupResponse(assignment=MINE)) == [ORDERS_0, ORDERS_1]
    assert member.state is MemberState.STABLE


def test_rebalance_keeps_member_id_and_generation() -> None:
    member = stable_member()
    member.on_heartbeat(HeartbeatResponse())
    assert member.state is MemberState.STABLE
    member.on_heartbeat(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert (member.state, member.has_lost_partitions) == (MemberState.UNJOINED, False)
    assert member.join([]).member_id == "m-1"
    assert member.generation == 4


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m-1")],
)
def test_fenced_member_owns_nothing(code: ErrorCode, member_id: str) -> None:
    member = stable_member()
    member.on_heartbeat(HeartbeatResponse(error_code=code))
    assert (member.state, member.has_lost_partitions) == (MemberState.UNJOINED, True)
    assert (member.member_id, member.generation) == (member_id, NO_GENERATION)
    member.join([])
    assert not member.has_lost_partitions


def test_sync_during_rebalance_rejoins() -> None:
    member = join(new_member())
    code = ErrorCode.REBALANCE_IN_PROGRESS
    assert member.on_sync(SyncGroupResponse(error_code=code)) == []
    assert member.state is MemberState.UNJOINED


def test_fatal_join_error_is_raised() -> None:
    with pytest.raises(ApiError, match="INCONSISTENT_GROUP_PROTOCOL: group billing"):
        new_member().on_join(
            JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id="m-1")
        )


def test_member_with_invalid_subscription_is_named() -> None:
    member = join(new_member())
    member.members = (JoinGroupResponseMember("m-9", None, b"\x00"),)
    with pytest.raises(ApiError, match="member m-9 of group billing"):
        member.sync({"orders": 1})
