"""Groups: storing and loading, dropping, permission to commit, and subscribed topics."""

from __future__ import annotations

import pytest

from barnabas.errors import ErrorCode
from barnabas.groups.group import AssignmentProtocol, Group, GroupState
from barnabas.groups.group_events import end_group, start_sessions
from barnabas.groups.group_transition import JOIN_TIMER, session_timer
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.rebalance import start_rebalance
from barnabas.wire.consumer_protocol import ConsumerSubscription, encode_subscription
from tests.unit.groups.simulated_group import (
    CONFIG,
    SESSION_MS,
    TWO_MEMBERS_MAX,
    SimulatedGroup,
    stable_group,
)

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


def test_group_round_trips_through_snapshot() -> None:
    simulated = stable_group("a", "static-s")
    snapshot = simulated.group.snapshot()
    restored = Group.restore("readers", snapshot, GroupOffsets(), 5)
    assert restored.state is STABLE
    assert restored.snapshot() == snapshot
    assert restored.static_members == simulated.group.static_members
    assert SimulatedGroup(group=restored).heartbeat("a") is ErrorCode.NONE


def test_members_of_loaded_group_get_a_session() -> None:
    group = Group.restore(
        "readers", stable_group("a", "b", "c").group.snapshot(), GroupOffsets(), 5
    )
    simulated = SimulatedGroup(group=group)
    simulated.run(start_sessions)
    assert simulated.timers == {session_timer(each): SESSION_MS for each in "abc"}
    too_many = SimulatedGroup(
        TWO_MEMBERS_MAX, Group.restore("x", group.snapshot(), GroupOffsets(), 5)
    )
    too_many.run(start_sessions)
    assert too_many.group.state is PREPARING


def test_dropped_group_answers_not_coordinator() -> None:
    joining = stable_group("a", "b")
    ticket = joining.join("a")
    joining.run(lambda turn: end_group(turn, ErrorCode.NOT_COORDINATOR))
    assert joining.join_code(ticket) is ErrorCode.NOT_COORDINATOR
    assert joining.group.state is DEAD
    assert joining.heartbeat("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert joining.join_code(joining.join("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert joining.sync_code(joining.sync("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    syncing = stable_group("a", "b")
    syncing.join("a")
    syncing.join("b")
    ticket = syncing.sync("b")
    syncing.run(lambda turn: end_group(turn, ErrorCode.NOT_COORDINATOR))
    assert syncing.sync_code(ticket) is ErrorCode.NOT_COORDINATOR


# ---- commits and subscriptions


@pytest.mark.parametrize(
    ("member_id", "instance", "generation", "expected"),
    [
        ("a", None, 1, ErrorCode.NONE),
        ("a", None, 0, ErrorCode.ILLEGAL_GENERATION),
        ("", None, -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("unknown", None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", None, -1, ErrorCode.ILLEGAL_GENERATION),
        ("a", "instance-static-s", 1, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_only_members_commit_for_group_with_members(
    member_id: str, instance: str | None, generation: int, expected: ErrorCode
) -> None:
    group = stable_group("a", "static-s").group
    assert group.commit_error(member_id, instance, generation) is expected


def test_simple_commit_is_allowed_for_empty_group() -> None:
    group = Group(group_id="tools")
    assert group.commit_error("", None, -1) is ErrorCode.NONE
    assert group.commit_error("", None, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_cannot_commit_before_they_are_synced() -> None:
    simulated = stable_group("a", "b")
    simulated.join("a")
    assert simulated.group.commit_error("b", None, 1) is ErrorCode.NONE
    simulated.join("b")
    assert simulated.group.commit_error("b", None, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_group_knows_subscribed_topics() -> None:
    def subscription_to(*topics: str) -> tuple[AssignmentProtocol, ...]:
        return (
            AssignmentProtocol("range", encode_subscription(ConsumerSubscription(topics=topics))),
        )

    simulated = SimulatedGroup()
    simulated.join(new="a", protocols=subscription_to("x", "y"))
    simulated.join(new="b", protocols=subscription_to("z"))
    simulated.expire(JOIN_TIMER)
    simulated.expire(JOIN_TIMER)
    assert simulated.group.topics == frozenset("xyz")
    assert not simulated.group.is_subscribed_to("other")
    restored = Group.restore("r", simulated.group.snapshot(), GroupOffsets(), 5)
    assert restored.topics == frozenset("xyz")


def test_unknown_subscription_counts_as_subscribed() -> None:
    group = stable_group("a").group
    assert group.topics is None
    assert group.is_subscribed_to("anything")


def test_invalid_state_change_is_an_assertion_error() -> None:
    simulated = SimulatedGroup(CONFIG)
    with pytest.raises(AssertionError):
        simulated.run(lambda turn: turn.move_to(STABLE))
    simulated.run(lambda turn: start_rebalance(turn, "test"))
    assert simulated.group.state is PREPARING
