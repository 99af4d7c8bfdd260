"""A group as others see it: stored and read, loaded and let go, who may commit for it, what it reads."""

from __future__ import annotations

import pytest

from barnabas.errors import ErrorCode
from barnabas.groups.group import AssignmentProtocol, Group, GroupState
from barnabas.groups.group_events import end_group, start_sessions
from barnabas.groups.group_transition import JOIN_TIMER, session_timer
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.rebalance import start_rebalance
from barnabas.wire.consumer_protocol import ConsumerSubscription, encode_subscription
from tests.unit.groups.played_group import (
    LIMITS,
    SESSION_MS,
    TWO_AT_MOST,
    PlayedGroup,
    stable,
)

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


def test_a_group_is_the_same_after_it_was_stored_and_read() -> None:
    played = stable("a", "static-s")
    snapshot = played.group.snapshot()
    restored = Group.restore("readers", snapshot, GroupOffsets(), 5)
    assert restored.state is STABLE
    assert restored.snapshot() == snapshot
    assert restored.static_members == played.group.static_members
    assert PlayedGroup(group=restored).heartbeat("a") is ErrorCode.NONE


def test_the_members_of_a_loaded_group_have_a_session_to_be_heard_of() -> None:
    group = Group.restore("readers", stable("a", "b", "c").group.snapshot(), GroupOffsets(), 5)
    played = PlayedGroup(group=group)
    played.turn(start_sessions)
    assert played.timers == {session_timer(each): SESSION_MS for each in "abc"}
    too_many = PlayedGroup(TWO_AT_MOST, Group.restore("x", group.snapshot(), GroupOffsets(), 5))
    too_many.turn(start_sessions)
    assert too_many.group.state is PREPARING


def test_who_waits_when_the_coordinator_goes_is_told_to_look_for_another() -> None:
    joining = stable("a", "b")
    ticket = joining.join("a")
    joining.turn(lambda turn: end_group(turn, ErrorCode.NOT_COORDINATOR))
    assert joining.join_code(ticket) is ErrorCode.NOT_COORDINATOR
    assert joining.group.state is DEAD
    assert joining.heartbeat("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert joining.join_code(joining.join("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert joining.sync_code(joining.sync("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    syncing = stable("a", "b")
    syncing.join("a")
    syncing.join("b")
    ticket = syncing.sync("b")
    syncing.turn(lambda turn: end_group(turn, ErrorCode.NOT_COORDINATOR))
    assert syncing.sync_code(ticket) is ErrorCode.NOT_COORDINATOR


# ---- committing, and what is read


@pytest.mark.parametrize(
    ("member_id", "instance", "generation", "expected"),
    [
        ("a", None, 1, ErrorCode.NONE),
        ("a", None, 0, ErrorCode.ILLEGAL_GENERATION),
        ("", None, -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("nobody", None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", None, -1, ErrorCode.ILLEGAL_GENERATION),
        ("a", "instance-static-s", 1, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_only_members_commit_for_a_group_that_has_some(
    member_id: str, instance: str | None, generation: int, expected: ErrorCode
) -> None:
    group = stable("a", "static-s").group
    assert group.commit_error(member_id, instance, generation) is expected


def test_anybody_commits_for_an_empty_group_without_a_generation() -> None:
    group = Group(group_id="tools")
    assert group.commit_error("", None, -1) is ErrorCode.NONE
    assert group.commit_error("", None, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_do_not_commit_before_they_know_what_they_are_given() -> None:
    played = stable("a", "b")
    played.join("a")
    assert played.group.commit_error("b", None, 1) is ErrorCode.NONE
    played.join("b")
    assert played.group.commit_error("b", None, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_knows_what_its_consumers_read() -> None:
    def says(*topics: str) -> tuple[AssignmentProtocol, ...]:
        return (
            AssignmentProtocol("range", encode_subscription(ConsumerSubscription(topics=topics))),
        )

    played = PlayedGroup()
    played.join(new="a", protocols=says("x", "y"))
    played.join(new="b", protocols=says("z"))
    played.end(JOIN_TIMER)
    played.end(JOIN_TIMER)
    assert played.group.topics == frozenset("xyz")
    assert not played.group.is_subscribed_to("other")
    restored = Group.restore("r", played.group.snapshot(), GroupOffsets(), 5)
    assert restored.topics == frozenset("xyz")


def test_what_is_not_understood_is_taken_as_read() -> None:
    group = stable("a").group
    assert group.topics is None
    assert group.is_subscribed_to("anything")


def test_every_state_has_a_way_there() -> None:
    played = PlayedGroup(LIMITS)
    with pytest.raises(AssertionError):
        played.turn(lambda turn: turn.move_to(STABLE))
    played.turn(lambda turn: start_rebalance(turn, "to see"))
    assert played.group.state is PREPARING
