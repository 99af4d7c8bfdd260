"""Static members that rejoin with a new member id."""

from __future__ import annotations

import pytest

from barnabas.errors import ErrorCode
from barnabas.groups.group import AssignmentProtocol, GroupState
from barnabas.groups.group_transition import JOIN_TIMER, SYNC_TIMER, session_timer
from tests.unit.groups.simulated_group import (
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    STICKY_AND_RANGE,
    SimulatedGroup,
    stable_group,
)

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


def test_rejoining_static_member_causes_no_rebalance() -> None:
    simulated = stable_group("a", "static-s")
    ticket = simulated.join(new="static-t", instance="instance-static-s")
    assert simulated.group.state is STABLE
    assert simulated.open_tickets() == {ticket}, "the response waits for the store"
    assert "static-t" in {each.member_id for each in simulated.finish_store().snapshot.members}
    answer = simulated.joins[ticket]
    assert (answer.generation_id, answer.member_id, answer.leader) == (1, "static-t", "a")
    assert simulated.heartbeat("static-s") is ErrorCode.UNKNOWN_MEMBER_ID
    fenced = simulated.heartbeat("static-s", instance="instance-static-s")
    assert fenced is ErrorCode.FENCED_INSTANCE_ID
    synced = simulated.syncs[simulated.sync("static-t", instance="instance-static-s")]
    assert synced.assignment == b"to static-s"
    assert session_timer("static-s") not in simulated.timers


@pytest.mark.parametrize(
    ("may_skip", "leader", "members"), [(True, "static-t", 2), (False, "static-s", 0)]
)
def test_rejoining_static_leader_does_not_reassign(
    may_skip: bool, leader: str, members: int
) -> None:
    simulated = stable_group("static-s", "b")
    ticket = simulated.join(new="static-t", instance="instance-static-s", may_skip=may_skip)
    simulated.finish_store()
    answer = simulated.joins[ticket]
    assert (answer.leader, answer.skip_assignment) == (leader, may_skip)
    assert len(answer.members) == members
    assert simulated.group.leader == "static-t"


def test_failed_store_restores_the_static_member() -> None:
    simulated = stable_group("a", "static-s")
    ticket = simulated.join(
        new="static-t", instance="instance-static-s", protocols=STICKY_AND_RANGE, session_ms=7000
    )
    simulated.finish_store(ErrorCode.NOT_COORDINATOR)
    assert simulated.join_code(ticket) is ErrorCode.NOT_COORDINATOR
    member = simulated.group.members["static-s"]
    assert (member.protocols, member.session_timeout_ms) == (RANGE, SESSION_MS)
    assert simulated.timers.keys() == {session_timer("a"), session_timer("static-s")}
    assert simulated.heartbeat("static-s", instance="instance-static-s") is ErrorCode.NONE


def test_rejoin_that_changes_the_protocol_starts_a_rebalance() -> None:
    simulated = SimulatedGroup()
    both = (AssignmentProtocol("range", b"r"), AssignmentProtocol("sticky", b"s"))
    simulated.join(new="static-s", instance="i", protocols=both)
    simulated.expire(JOIN_TIMER)
    simulated.sync("static-s", {})
    simulated.finish_store()
    ticket = simulated.join(new="static-t", instance="i", protocols=STICKY_AND_RANGE)
    assert not simulated.stores
    assert (simulated.group.generation, simulated.group.protocol) == (2, "sticky")
    assert simulated.join_code(ticket) is ErrorCode.NONE


def test_rejoin_during_rebalance_fences_previous_member_id() -> None:
    simulated = stable_group("a", "static-s")
    former = simulated.join("static-s", instance="instance-static-s", protocols=STICKY_AND_RANGE)
    now = simulated.join(new="static-t", instance="instance-static-s")
    assert simulated.join_code(former) is ErrorCode.FENCED_INSTANCE_ID
    simulated.join("a")
    assert simulated.join_code(now) is ErrorCode.NONE


def test_rejoin_before_assignment_starts_a_rebalance() -> None:
    simulated = SimulatedGroup()
    simulated.join(new="a")
    simulated.join(new="static-s", instance="i")
    simulated.expire(JOIN_TIMER)
    simulated.expire(JOIN_TIMER)
    former = simulated.sync("static-s", instance="i")
    simulated.join(new="static-t", instance="i")
    assert simulated.sync_code(former) is ErrorCode.FENCED_INSTANCE_ID
    assert simulated.group.state is PREPARING


def test_rejoined_static_member_must_sync_in_time() -> None:
    simulated = SimulatedGroup()
    simulated.join(new="a")
    simulated.join(new="static-s", instance="i")
    simulated.expire(JOIN_TIMER)
    simulated.expire(JOIN_TIMER)
    simulated.sync("a", {"a": b"one", "static-s": b"two"})
    simulated.finish_store()
    simulated.join(new="static-t", instance="i")
    simulated.finish_store()
    assert simulated.group.state is STABLE
    simulated.expire(SYNC_TIMER)
    assert list(simulated.group.members) == ["a"]
    assert simulated.group.state is PREPARING


def test_absent_static_member_survives_a_rebalance() -> None:
    simulated = stable_group("a", "static-s")
    simulated.join("a")
    simulated.expire(JOIN_TIMER)
    assert list(simulated.group.members) == ["a", "static-s"]
    assert simulated.group.state is COMPLETING
    simulated.expire_session("static-s")
    assert list(simulated.group.members) == ["a"]


def test_rebalance_without_joins_waits_for_sessions() -> None:
    simulated = stable_group("static-s", "a")
    simulated.leave("a")
    simulated.expire(JOIN_TIMER)
    assert simulated.group.state is PREPARING
    assert simulated.timers[JOIN_TIMER] == REBALANCE_MS
    simulated.expire_session("static-s")
    assert simulated.group.state is EMPTY


def test_rebalance_answers_rejoining_static_member() -> None:
    simulated = stable_group("a", "static-s")
    ticket = simulated.join(new="static-t", instance="instance-static-s")
    simulated.join("a")
    assert simulated.group.generation == 2
    assert simulated.joins[ticket].generation_id == 2
    simulated.finish_store()
    assert simulated.group.state is COMPLETING
