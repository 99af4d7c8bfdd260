"""Static members: they come back in the place of their former selves, and nobody notices."""

from __future__ import annotations

import pytest

from barnabas.errors import ErrorCode
from barnabas.groups.group import AssignmentProtocol, GroupState
from barnabas.groups.group_transition import JOIN_TIMER, SYNC_TIMER, session_timer
from tests.unit.groups.played_group import (
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    STICKY_AND_RANGE,
    PlayedGroup,
    stable,
)

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


def test_a_static_member_comes_back_to_a_stable_group_and_nobody_notices() -> None:
    played = stable("a", "static-s")
    ticket = played.join(new="static-t", instance="instance-static-s")
    assert played.group.state is STABLE
    assert played.open() == {ticket}, "it is answered when it is stored"
    assert "static-t" in {each.member_id for each in played.stored().snapshot.members}
    answer = played.joins[ticket]
    assert (answer.generation_id, answer.member_id, answer.leader) == (1, "static-t", "a")
    assert played.heartbeat("static-s") is ErrorCode.UNKNOWN_MEMBER_ID
    fenced = played.heartbeat("static-s", instance="instance-static-s")
    assert fenced is ErrorCode.FENCED_INSTANCE_ID
    synced = played.syncs[played.sync("static-t", instance="instance-static-s")]
    assert synced.assignment == b"to static-s"
    assert session_timer("static-s") not in played.timers


@pytest.mark.parametrize(
    ("may_skip", "leader", "members"), [(True, "static-t", 2), (False, "static-s", 0)]
)
def test_a_static_leader_that_comes_back_does_not_assign_anew(
    may_skip: bool, leader: str, members: int
) -> None:
    played = stable("static-s", "b")
    ticket = played.join(new="static-t", instance="instance-static-s", may_skip=may_skip)
    played.stored()
    answer = played.joins[ticket]
    assert (answer.leader, answer.skip_assignment) == (leader, may_skip)
    assert len(answer.members) == members
    assert played.group.leader == "static-t"


def test_a_static_member_whose_return_cannot_be_stored_is_who_it_was() -> None:
    played = stable("a", "static-s")
    ticket = played.join(
        new="static-t", instance="instance-static-s", protocols=STICKY_AND_RANGE, session_ms=7000
    )
    played.stored(ErrorCode.NOT_COORDINATOR)
    assert played.join_code(ticket) is ErrorCode.NOT_COORDINATOR
    member = played.group.members["static-s"]
    assert (member.protocols, member.session_timeout_ms) == (RANGE, SESSION_MS)
    assert played.timers.keys() == {session_timer("a"), session_timer("static-s")}
    assert played.heartbeat("static-s", instance="instance-static-s") is ErrorCode.NONE


def test_a_static_member_that_comes_back_with_another_choice_makes_all_join_again() -> None:
    played = PlayedGroup()
    both = (AssignmentProtocol("range", b"r"), AssignmentProtocol("sticky", b"s"))
    played.join(new="static-s", instance="i", protocols=both)
    played.end(JOIN_TIMER)
    played.sync("static-s", {})
    played.stored()
    ticket = played.join(new="static-t", instance="i", protocols=STICKY_AND_RANGE)
    assert not played.stores
    assert (played.group.generation, played.group.protocol) == (2, "sticky")
    assert played.join_code(ticket) is ErrorCode.NONE


def test_a_static_member_that_comes_back_during_a_rebalance_fences_off_its_former_self() -> None:
    played = stable("a", "static-s")
    former = played.join("static-s", instance="instance-static-s", protocols=STICKY_AND_RANGE)
    now = played.join(new="static-t", instance="instance-static-s")
    assert played.join_code(former) is ErrorCode.FENCED_INSTANCE_ID
    played.join("a")
    assert played.join_code(now) is ErrorCode.NONE


def test_a_static_member_that_comes_back_before_the_assignment_makes_all_join_again() -> None:
    played = PlayedGroup()
    played.join(new="a")
    played.join(new="static-s", instance="i")
    played.end(JOIN_TIMER)
    played.end(JOIN_TIMER)
    former = played.sync("static-s", instance="i")
    played.join(new="static-t", instance="i")
    assert played.sync_code(former) is ErrorCode.FENCED_INSTANCE_ID
    assert played.group.state is PREPARING


def test_a_static_member_that_comes_back_must_ask_for_its_assignment_like_its_former_self() -> None:
    played = PlayedGroup()
    played.join(new="a")
    played.join(new="static-s", instance="i")
    played.end(JOIN_TIMER)
    played.end(JOIN_TIMER)
    played.sync("a", {"a": b"one", "static-s": b"two"})
    played.stored()
    played.join(new="static-t", instance="i")
    played.stored()
    assert played.group.state is STABLE
    played.end(SYNC_TIMER)
    assert list(played.group.members) == ["a"]
    assert played.group.state is PREPARING


def test_a_rebalance_does_not_put_out_a_static_member_that_does_not_come() -> None:
    played = stable("a", "static-s")
    played.join("a")
    played.end(JOIN_TIMER)
    assert list(played.group.members) == ["a", "static-s"]
    assert played.group.state is COMPLETING
    played.end_session("static-s")
    assert list(played.group.members) == ["a"]


def test_a_rebalance_to_which_nobody_comes_waits_for_sessions_to_end() -> None:
    played = stable("static-s", "a")
    played.leave("a")
    played.end(JOIN_TIMER)
    assert played.group.state is PREPARING
    assert played.timers[JOIN_TIMER] == REBALANCE_MS
    played.end_session("static-s")
    assert played.group.state is EMPTY


def test_a_rebalance_that_began_meanwhile_answers_the_static_member_that_came_back() -> None:
    played = stable("a", "static-s")
    ticket = played.join(new="static-t", instance="instance-static-s")
    played.join("a")
    assert played.group.generation == 2
    assert played.joins[ticket].generation_id == 2
    played.stored()
    assert played.group.state is COMPLETING
