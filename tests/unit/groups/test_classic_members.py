"""Members of the classic protocol in a group of the new consumer protocol, and migration between both."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.classic_members import (
    handle_classic_sync,
)
from barnabas.groups.consumer_group import ConsumerGroupState, MemberState
from barnabas.groups.consumer_records import Assignment, is_consumer_key, read_consumer_record
from barnabas.groups.group import AssignmentProtocol, Group, GroupMember, GroupState
from barnabas.groups.group_events import SyncEvent
from barnabas.groups.group_transition import Timer, TimerKind, session_timer
from barnabas.groups.migration import can_downgrade, can_upgrade, downgrade, upgrade
from barnabas.groups.records import group_key, group_tombstone, read_group
from barnabas.wire.consumer_protocol import (
    ConsumerAssignment,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
)
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupResponse
from tests.unit.groups.simulated_consumer_group import (
    CLASSIC_REBALANCE_MS,
    CLASSIC_SESSION_MS,
    A,
    SimulatedConsumerGroup,
    join_event,
    parts,
    subscription,
)


class SimulatedMixedGroup(SimulatedConsumerGroup):
    """A group with a member x of the new protocol."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        super().__init__(config, a=4)
        self.join("x", "a")


def topics_of(response: SyncGroupResponse) -> dict[str, tuple[int, ...]]:
    assert response.error_code == ErrorCode.NONE
    return dict(decode_assignment(response.assignment).assigned_partitions)


def error(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        action()
    return caught.value.code


def settled() -> SimulatedMixedGroup:
    """Member x has partitions 0 and 1, the classic member has 2 and 3."""
    sim = SimulatedMixedGroup()
    sim.join_classic(join_event())
    kept: Assignment = {A: parts(0, 1)}
    sim.heartbeat("x", 1)
    sim.heartbeat("x", 1, kept)
    assert sim.heartbeat_classic("classic", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    sim.join_classic(join_event("classic"))
    sim.sync_classic("classic", 2)
    assert sim.group.state is ConsumerGroupState.STABLE
    return sim


# ---- joining


def test_classic_member_joins_and_waits_for_its_partitions() -> None:
    sim = SimulatedMixedGroup()
    joined = sim.join_classic(join_event())
    assert (joined.member_id, joined.generation_id) == ("classic", 2)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "cooperative-sticky")
    assert (joined.leader, joined.members) == ("", ())
    assert sim.timers[session_timer("classic")] == CLASSIC_SESSION_MS
    assert sim.timers[Timer(TimerKind.SYNC, "classic")] == CLASSIC_REBALANCE_MS
    assert topics_of(sim.sync_classic("classic", 2)) == {}
    assert Timer(TimerKind.SYNC, "classic") not in sim.timers
    # While x owns the partitions, the member has no reason to rejoin.
    assert sim.heartbeat_classic("classic", 2) is ErrorCode.NONE
    sim.heartbeat("x", 1)
    assert sim.heartbeat_classic("classic", 2) is ErrorCode.NONE
    sim.heartbeat("x", 1, {A: parts(0, 1)})
    assert sim.heartbeat_classic("classic", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert sim.ensured == [Timer(TimerKind.JOIN, "classic")]
    assert sim.join_classic(join_event("classic")).generation_id == 2
    assert topics_of(sim.sync_classic("classic", 2)) == {"a": (2, 3)}
    assert sim.group.state is ConsumerGroupState.STABLE
    assert sim.heartbeat_classic("classic", 2) is ErrorCode.NONE


def test_classic_member_revokes_and_rejoins() -> None:
    sim = settled()
    sim.join("y", "a")
    sim.join("z", "a")
    assert sim.heartbeat_classic("classic", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = sim.join_classic(join_event("classic", owned={"a": (2, 3)}))
    assert joined.generation_id == 2
    assert sim.member("classic").state is MemberState.UNREVOKED_PARTITIONS
    (kept,) = topics_of(sim.sync_classic("classic", 2))["a"]
    assert sim.heartbeat_classic("classic", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = sim.join_classic(join_event("classic", owned={"a": (kept,)}))
    assert joined.generation_id == 4
    assert topics_of(sim.sync_classic("classic", 4)) == {"a": (kept,)}


def test_classic_member_that_revoked_everything_first() -> None:
    sim = settled()
    sim.join("y", "a")
    sim.join("z", "a")
    joined = sim.join_classic(join_event("classic"))
    assert joined.generation_id == 4
    assert len(topics_of(sim.sync_classic("classic", 4))["a"]) == 1


def test_classic_members_alone_notice_new_partitions() -> None:
    sim = settled()
    sim.leave("x")
    sim.join_classic(join_event("classic", owned={"a": (2, 3)}))
    assert len(topics_of(sim.sync_classic("classic", 3))["a"]) == 4
    assert sim.heartbeat_classic("classic", 3) is ErrorCode.NONE
    sim.set_topic("a", 5)
    assert sim.heartbeat_classic("classic", 3) is ErrorCode.REBALANCE_IN_PROGRESS
    sim.join_classic(join_event("classic", owned={"a": (0, 1, 2, 3)}))
    assert len(topics_of(sim.sync_classic("classic", 4))["a"]) == 5


def test_new_classic_member_gets_its_id_first() -> None:
    sim = SimulatedMixedGroup()
    joined = sim.join_classic(join_event(requires_member_id=True))
    assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert joined.member_id == "classic"
    assert sim.group.members.keys() == {"x"}
    joined = sim.join_classic(join_event("classic", requires_member_id=True))
    assert joined.error_code == ErrorCode.NONE


def test_protocols_of_classic_members_must_match() -> None:
    sim = settled()
    other = join_event("other", protocol="range")
    assert error(lambda: sim.join_classic(other)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    connect = join_event("other", protocol_type="connect")
    assert error(lambda: sim.join_classic(connect)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    empty = join_event("other")._replace(protocols=())
    assert error(lambda: sim.join_classic(empty)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_classic_member_with_too_many_topics() -> None:
    sim = SimulatedConsumerGroup(a=4)
    sim.join("x", "a")
    many = AssignmentProtocol("range", subscription(*(f"t{at}" for at in range(10_001))))
    event = join_event()._replace(protocols=(many,))
    assert error(lambda: sim.join_classic(event)) is ErrorCode.INVALID_REQUEST


def test_classic_heartbeats_look_up_topics_only_after_a_change() -> None:
    sim = settled()
    sim.set_topic("b", 1)
    sim.lookups = 0
    for _ in range(3):
        assert sim.heartbeat_classic("classic", 2) is ErrorCode.NONE
    assert sim.lookups == 1


def test_empty_instance_id_is_not_that_of_dynamic_members() -> None:
    sim = SimulatedConsumerGroup(a=4)
    sim.join("x", "a")
    sim.join_classic(join_event("", instance_id=""))
    sim.join("y", "a")
    assert sim.group.static_members == {"": "classic"}
    assert sim.group.targets.keys() == {"x", "y", "classic"}
    assigned = [part for each in sim.group.targets.values() for part in each[A]]
    assert sorted(assigned) == [0, 1, 2, 3]
    sim.leave("x")
    sim.leave("y")
    assert sim.group.static_members == {"": "classic"}


def test_invalid_subscription_of_a_classic_member() -> None:
    sim = settled()
    event = join_event("other")._replace(
        protocols=(AssignmentProtocol("cooperative-sticky", b"\0"),)
    )
    assert error(lambda: sim.join_classic(event)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert sim.group.members.keys() == {"x", "classic"}


def test_full_group_rejects_classic_members() -> None:
    sim = SimulatedMixedGroup(BrokerConfig(group_consumer_max_size=1))
    assert error(lambda: sim.join_classic(join_event())) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_static_classic_member_takes_over() -> None:
    sim = SimulatedMixedGroup()
    sim.join_classic(join_event(instance_id="i"))
    second = join_event(instance_id="i")._replace(new_member_id="second")
    joined = sim.join_classic(second)
    assert joined.member_id == "second"
    assert sim.group.members.keys() == {"x", "second"}
    old = join_event("classic", instance_id="i")
    assert error(lambda: sim.join_classic(old)) is ErrorCode.FENCED_INSTANCE_ID


def test_member_changes_to_the_new_protocol() -> None:
    sim = SimulatedMixedGroup()
    sim.join_classic(join_event(instance_id="i"))
    sim.leave_classic(MemberIdentity("", "i"))
    sim.join("new", "a", instance_id="i")
    assert sim.member("new").classic is None
    assert sim.group.classic_count == 0


# ---- SyncGroup, Heartbeat, LeaveGroup


def test_errors_of_sync() -> None:
    sim = settled()
    assert error(lambda: sim.sync_classic("z", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(lambda: sim.sync_classic("x", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(lambda: sim.sync_classic("classic", 1)) is ErrorCode.ILLEGAL_GENERATION
    for options in ({"protocol": "range"}, {"protocol_type": "connect"}):
        action = lambda options=options: sim.sync_classic("classic", 2, **options)  # noqa: E731
        assert error(action) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert topics_of(sim.sync_classic("classic", 2, protocol=None, protocol_type=None))


def test_sync_in_an_old_generation_must_rejoin() -> None:
    sim = settled()
    sim.join("y", "a")
    response = sim.sync_classic("classic", 2)
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert sim.ensured == [Timer(TimerKind.JOIN, "classic")]


def test_errors_of_classic_heartbeats() -> None:
    sim = settled()
    assert error(lambda: sim.heartbeat_classic("z", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(lambda: sim.heartbeat_classic("x", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(lambda: sim.heartbeat_classic("classic", 3)) is ErrorCode.ILLEGAL_GENERATION


def test_classic_members_leave() -> None:
    sim = settled()
    codes = sim.leave_classic(
        MemberIdentity("classic"), MemberIdentity("x"), MemberIdentity("z"), MemberIdentity("", "j")
    )
    assert codes == [ErrorCode.NONE] + [ErrorCode.UNKNOWN_MEMBER_ID] * 3
    assert sim.group.members.keys() == {"x"}
    assert sim.group.epoch == 3
    assert sim.timers.keys() == {session_timer("x")}


def test_nobody_leaves() -> None:
    sim = settled()
    assert sim.leave_classic(MemberIdentity("z")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert sim.records == []


@pytest.mark.parametrize("kind", [TimerKind.JOIN, TimerKind.SYNC, TimerKind.SESSION])
def test_classic_member_that_is_late_is_removed(kind: TimerKind) -> None:
    sim = settled()
    timer = Timer(kind, "classic")
    sim.timers[timer] = 1
    sim.expire(timer)
    assert sim.group.members.keys() == {"x"}


@pytest.mark.parametrize(
    ("epoch", "code"), [(2, ErrorCode.NONE), (1, ErrorCode.ILLEGAL_GENERATION)]
)
def test_commits_of_classic_members(epoch: int, code: ErrorCode) -> None:
    assert settled().group.commit_error("classic", epoch, 7) is code
    assert settled().group.fetch_error("classic", epoch) is code


# ---- migration


def classic_group(*, protocol_type: str = "consumer") -> Group:
    """A stable group in generation 5: member p has partition 0, member q has 1 and 2."""
    group = Group(
        group_id="app",
        state=GroupState.STABLE,
        generation=5,
        protocol_type=protocol_type,
        protocol="range",
    )
    for member_id, partitions in {"p": (0,), "q": (1, 2)}.items():
        assignment = ConsumerAssignment((TopicPartitions("a", partitions),))
        group.add(
            GroupMember(
                member_id=member_id,
                instance_id=None,
                client_id="client",
                client_host="/host",
                rebalance_timeout_ms=CLASSIC_REBALANCE_MS,
                session_timeout_ms=CLASSIC_SESSION_MS,
                protocols=(
                    AssignmentProtocol("sticky", subscription("b")),
                    AssignmentProtocol("range", subscription("a")),
                ),
                assignment=encode_assignment(assignment),
            )
        )
    return group


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("bidirectional", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_policy_allows_directions(policy: str, up: bool, down: bool) -> None:
    config = BrokerConfig(group_consumer_migration_policy=policy)
    assert can_upgrade(classic_group(), config) is up
    assert can_downgrade(settled().group, ["x"], config) is down
    assert can_upgrade(Group(group_id="app"), config)


def test_group_of_another_protocol_type_is_not_upgraded() -> None:
    assert not can_upgrade(classic_group(protocol_type="connect"), BrokerConfig())


def test_large_groups_are_not_migrated() -> None:
    assert not can_upgrade(classic_group(), BrokerConfig(group_consumer_max_size=1))
    sim = settled()
    sim.join_classic(join_event("second"))
    assert can_downgrade(sim.group, ["x"], BrokerConfig(group_max_size=2))
    assert not can_downgrade(sim.group, ["x"], BrokerConfig(group_max_size=1))


def test_upgraded_members_keep_their_partitions() -> None:
    sim = SimulatedConsumerGroup(a=3)
    before = classic_group()
    group, records = upgrade(before, BrokerConfig(), sim.topics.get)
    assert records[0] == group_tombstone("app")
    assert all(is_consumer_key(key) for key, _ in records[1:])
    assert group.offsets is before.offsets
    assert (group.epoch, group.target_epoch) == (5, 5)
    assert group.members["q"].assigned == {A: parts(1, 2)}
    assert group.members["q"].subscribed_topics == {"a"}
    assert group.members["q"].epoch == 5
    assert group.classic_count == 2
    sim.group = group
    sim.log = [read_consumer_record(*each) for each in records[1:]]
    restored = sim.restored()
    assert restored is not None
    assert restored.members == group.members
    sim.join("x", "a")
    assert sim.group.epoch == 6
    transition = sim.transition()
    sync = SyncEvent("q", None, 5, "consumer", "range", {})
    response = handle_classic_sync(transition, sync)
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_empty_group_is_upgraded_without_members() -> None:
    for generation in (0, 3):  # Kafka also writes a group of generation 0
        before = Group(group_id="app", generation=generation, protocol_type="connect")
        group, records = upgrade(before, BrokerConfig(), lambda _: None)
        assert (group.epoch, group.members, records) == (0, {}, [group_tombstone("app")])


def test_group_with_invalid_subscription_is_not_upgraded() -> None:
    group = classic_group()
    group.members["p"].protocols = (AssignmentProtocol("range", b"\0"),)
    migrate = error(lambda: upgrade(group, BrokerConfig(), lambda _: None))
    assert migrate is ErrorCode.GROUP_ID_NOT_FOUND


def test_group_with_too_many_topics_is_not_upgraded() -> None:
    group = classic_group()
    many = subscription(*(f"t{at}" for at in range(10_001)))
    group.members["p"].protocols = (AssignmentProtocol("range", many),)
    migrate = error(lambda: upgrade(group, BrokerConfig(), lambda _: None))
    assert migrate is ErrorCode.GROUP_ID_NOT_FOUND


def test_group_with_too_long_protocol_name_is_not_upgraded() -> None:
    group = classic_group()
    group.members["p"].protocols += (AssignmentProtocol("n" * 40_000, subscription("a")),)
    migrate = error(lambda: upgrade(group, BrokerConfig(), lambda _: None))
    assert migrate is ErrorCode.GROUP_ID_NOT_FOUND


def test_downgraded_group_keeps_classic_members() -> None:
    sim = settled()
    group, records = downgrade(sim.group, ["x"], now_ms=7)
    assert (group.state, group.generation, group.protocol) == (
        GroupState.STABLE,
        2,
        "cooperative-sticky",
    )
    assert group.members.keys() == {"classic"}
    member = group.members["classic"]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (
        CLASSIC_SESSION_MS,
        CLASSIC_REBALANCE_MS,
    )
    assert decode_assignment(member.assignment).assigned_partitions == (
        TopicPartitions("a", (2, 3)),
    )
    assert group.leader == "classic"
    assert group.offsets is sim.group.offsets
    *tombstones, (key, value) = records
    assert all(value is None and is_consumer_key(key) for key, value in tombstones)
    assert key == group_key("app")
    assert value is not None
    assert read_group(value) == group.snapshot()


def test_only_the_last_member_of_the_new_protocol_causes_a_downgrade() -> None:
    sim = settled()
    config = BrokerConfig()
    assert not can_downgrade(sim.group, ["classic"], config)
    assert not can_downgrade(sim.group, ["x", "classic"], config)
    assert can_downgrade(sim.group, ["x"], config)
    sim.join("y", "a")
    assert not can_downgrade(sim.group, ["x"], config)
