"""Events of a group: responses, stored records and timers."""

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
    TWO_MEMBERS_MAX,
    SimulatedGroup,
    stable_group,
)

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


# ---- joining


def test_first_member_waits_for_others_and_leads() -> None:
    simulated = SimulatedGroup()
    ticket = simulated.join(new="a")
    assert simulated.group.state is PREPARING
    assert simulated.timers[JOIN_TIMER] == 3000
    assert simulated.open_tickets() == {ticket}
    simulated.expire(JOIN_TIMER)
    answer = simulated.joins[ticket]
    assert (answer.generation_id, answer.leader, answer.member_id) == (1, "a", "a")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [(each.member_id, each.metadata) for each in answer.members] == [("a", b"topics")]
    assert simulated.group.state is COMPLETING


def test_new_members_extend_initial_rebalance_up_to_limit() -> None:
    simulated = SimulatedGroup()
    simulated.join(new="a", rebalance_ms=7000)
    waits = []
    for name in "bcdef":
        if simulated.group.state is not PREPARING:
            break
        simulated.join(new=name, rebalance_ms=7000)
        waits.append(simulated.timers[JOIN_TIMER])
        simulated.expire(JOIN_TIMER)
    assert waits == [3000, 3000, 1000]
    assert simulated.group.generation == 1
    assert len(simulated.group.members) == 4
    assert len({answer.generation_id for answer in simulated.joins.values()}) == 1


def test_only_leader_gets_all_members() -> None:
    simulated = SimulatedGroup()
    a, b = simulated.join(new="a"), simulated.join(new="b")
    simulated.expire(JOIN_TIMER)
    simulated.expire(JOIN_TIMER)
    assert [each.member_id for each in simulated.joins[a].members] == ["a", "b"]
    assert simulated.joins[b].members == ()
    assert simulated.joins[b].leader == "a"


def test_rebalance_waits_for_member_with_assigned_id() -> None:
    simulated = stable_group("a")
    ticket = simulated.join(new="b", requires_member_id=True)
    assert simulated.join_code(ticket) is ErrorCode.MEMBER_ID_REQUIRED
    assert simulated.joins[ticket].member_id == "b"
    assert simulated.group.state is STABLE
    assert simulated.timers[session_timer("b")] == SESSION_MS
    leader = simulated.join("a")
    assert simulated.group.state is PREPARING, "b has an id and may join"
    joined = simulated.join("b")
    assert simulated.group.generation == 2
    assert simulated.join_code(leader) is simulated.join_code(joined) is ErrorCode.NONE


def test_pending_member_id_cannot_join_as_static_member() -> None:
    simulated = stable_group("a")
    simulated.join(new="b", requires_member_id=True)
    refused = simulated.join("b", instance="late")
    assert simulated.join_code(refused) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert simulated.group.state is STABLE
    assert "b" in simulated.group.pending_members


def test_pending_member_id_expires_and_rebalance_completes() -> None:
    simulated = stable_group("a")
    simulated.join(new="b", requires_member_id=True)
    leader = simulated.join("a")
    simulated.expire_session("b")
    assert simulated.join_code(leader) is ErrorCode.NONE
    assert simulated.join_code(simulated.join("b")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_unknown_member_id_is_rejected() -> None:
    simulated = stable_group("a")
    ticket = simulated.join("unknown")
    assert simulated.join_code(ticket) is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulated.joins[ticket].member_id == "unknown"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("connect", RANGE),
        ("consumer", (AssignmentProtocol("sticky", b""),)),
        ("consumer", ()),
    ],
)
def test_member_without_common_protocol_is_rejected(
    protocol_type: str, protocols: tuple[AssignmentProtocol, ...]
) -> None:
    simulated = stable_group("a")
    ticket = simulated.join(protocol_type=protocol_type, protocols=protocols)
    assert simulated.join_code(ticket) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert simulated.group.state is STABLE


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_empty_group_rejects_member_without_protocol(
    protocol_type: str, protocols: tuple[AssignmentProtocol, ...]
) -> None:
    simulated = SimulatedGroup()
    ticket = simulated.join(protocol_type=protocol_type, protocols=protocols)
    assert simulated.join_code(ticket) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert simulated.group.state is EMPTY


def test_common_protocol_with_most_votes_is_chosen() -> None:
    simulated = SimulatedGroup()
    range_first = (AssignmentProtocol("range", b"r"), AssignmentProtocol("sticky", b"s"))
    simulated.join(new="a", protocols=range_first)
    simulated.join(new="b", protocols=STICKY_AND_RANGE)
    simulated.join(new="c", protocols=(AssignmentProtocol("unknown", b""), *STICKY_AND_RANGE))
    simulated.expire(JOIN_TIMER)
    simulated.expire(JOIN_TIMER)
    assert simulated.group.protocol == "sticky"


def test_member_with_old_protocol_changes_the_protocol() -> None:
    simulated = SimulatedGroup()
    simulated.join(new="a", protocols=STICKY_AND_RANGE)
    simulated.expire(JOIN_TIMER)
    assert simulated.group.protocol == "sticky"
    simulated.join(new="b", protocols=RANGE)
    simulated.join("a", protocols=STICKY_AND_RANGE)
    assert simulated.group.protocol == "range"


def test_unchanged_rejoin_of_follower_gets_current_generation() -> None:
    simulated = stable_group("a", "b")
    ticket = simulated.join("b")
    assert simulated.joins[ticket].generation_id == 1
    assert simulated.group.state is STABLE


def test_rejoin_of_leader_starts_a_rebalance() -> None:
    simulated = stable_group("a", "b")
    ticket = simulated.join("a")
    assert simulated.group.state is PREPARING
    assert simulated.open_tickets() == {ticket}
    assert simulated.timers[JOIN_TIMER] == REBALANCE_MS
    assert simulated.heartbeat("b") is ErrorCode.REBALANCE_IN_PROGRESS
    simulated.join("b")
    assert simulated.group.generation == 2


def test_changed_subscription_starts_a_rebalance() -> None:
    simulated = stable_group("a", "b")
    simulated.join("b", protocols=(AssignmentProtocol("range", b"other topics"),))
    assert simulated.group.state is PREPARING


def test_member_that_misses_the_rebalance_is_removed() -> None:
    simulated = stable_group("a", "b")
    leader = simulated.join("a")
    simulated.expire(JOIN_TIMER)
    assert list(simulated.group.members) == ["a"]
    assert [each.member_id for each in simulated.joins[leader].members] == ["a"]
    assert session_timer("b") not in simulated.timers
    assert simulated.heartbeat("b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_that_misses_the_rebalance_is_replaced() -> None:
    simulated = stable_group("a", "b", "c")
    simulated.join("c", protocols=(AssignmentProtocol("range", b"new"),))
    b = simulated.join("b")
    simulated.expire(JOIN_TIMER)
    assert simulated.joins[b].leader == "b"


def test_full_group_rejects_new_members() -> None:
    simulated = stable_group("a", "b", config=TWO_MEMBERS_MAX)
    ticket = simulated.join()
    assert simulated.join_code(ticket) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert simulated.joins[ticket].member_id == ""
    assert simulated.group.state is STABLE


def test_last_members_are_removed_if_group_is_too_large() -> None:
    simulated = stable_group("a", "b", "c")
    simulated.config = TWO_MEMBERS_MAX
    simulated.join("a")
    simulated.join("c")
    ticket = simulated.join("b")
    assert simulated.join_code(ticket) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert list(simulated.group.members) == ["a", "c"]
    assert simulated.group.generation == 2


def test_repeated_join_answers_the_first_request() -> None:
    simulated = stable_group("a", "b")
    first, second = simulated.join("a"), simulated.join("a")
    assert simulated.join_code(first) is ErrorCode.REBALANCE_IN_PROGRESS
    simulated.join("b")
    assert simulated.join_code(second) is ErrorCode.NONE


def test_new_member_without_response_has_five_minutes() -> None:
    simulated = stable_group("a")
    ticket = simulated.join(new="b")
    assert simulated.timers[session_timer("b")] == 300_000
    simulated.expire_session("b")
    assert simulated.join_code(ticket) is ErrorCode.UNKNOWN_MEMBER_ID


# ---- syncing


def test_assignment_is_stored_before_it_is_sent() -> None:
    simulated = SimulatedGroup()
    simulated.join(new="a")
    simulated.join(new="b")
    simulated.expire(JOIN_TIMER)
    simulated.expire(JOIN_TIMER)
    b = simulated.sync("b")
    a = simulated.sync("a", {"a": b"one", "b": b"two"})
    assert simulated.open_tickets() == {a, b}
    assert SYNC_TIMER not in simulated.timers
    (store,) = simulated.stores
    assert [(each.member_id, each.assignment) for each in store.snapshot.members] == [
        ("a", b"one"),
        ("b", b"two"),
    ]
    assert store.snapshot[:4] == ("consumer", 1, "range", "a")
    simulated.finish_store()
    assert simulated.group.state is STABLE
    assert (simulated.syncs[a].assignment, simulated.syncs[b].assignment) == (b"one", b"two")
    assert simulated.timers[session_timer("a")] == SESSION_MS


def test_failed_store_starts_a_rebalance() -> None:
    simulated = SimulatedGroup()
    simulated.join(new="a")
    simulated.expire(JOIN_TIMER)
    ticket = simulated.sync("a", {"a": b"one"})
    simulated.finish_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert simulated.sync_code(ticket) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert simulated.group.state is PREPARING


def test_repeated_sync_of_leader_keeps_first_assignment() -> None:
    simulated = SimulatedGroup()
    simulated.join(new="a")
    simulated.expire(JOIN_TIMER)
    first = simulated.sync("a", {"a": b"one"})
    second = simulated.sync("a", {"a": b"two"})
    assert len(simulated.stores) == 1
    simulated.finish_store()
    assert simulated.sync_code(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert simulated.syncs[second].assignment == b"one"


def test_assignment_of_old_generation_is_not_sent() -> None:
    simulated = SimulatedGroup()
    simulated.join(new="a")
    simulated.expire(JOIN_TIMER)
    ticket = simulated.sync("a", {"a": b"one"})
    simulated.join(new="b")
    assert simulated.sync_code(ticket) is ErrorCode.REBALANCE_IN_PROGRESS
    simulated.join("a")
    assert simulated.group.generation == 2
    simulated.sync("a", {"a": b"two"})
    simulated.finish_store()
    assert simulated.group.state is COMPLETING
    simulated.finish_store()
    assert simulated.group.state is STABLE
    assert simulated.group.members["a"].assignment == b"two"


def test_member_without_assignment_gets_empty_one() -> None:
    simulated = SimulatedGroup()
    simulated.join(new="a")
    simulated.join(new="b")
    simulated.expire(JOIN_TIMER)
    simulated.expire(JOIN_TIMER)
    simulated.sync("a", {"a": b"all"})
    simulated.finish_store()
    assert simulated.syncs[simulated.sync("b")].assignment == b""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "a", "generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "a", "generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "a", "instance": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "a", "instance": "instance-static-s"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"member_id": "a", "protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "a", "protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "a", "protocol_type": "consumer", "protocol": "range"}, ErrorCode.NONE),
    ],
)
def test_invalid_sync_is_rejected(options: dict[str, object], expected: ErrorCode) -> None:
    simulated = stable_group("a", "static-s")
    ticket = simulated.sync(**options)  # type: ignore[arg-type]
    assert simulated.sync_code(ticket) is expected


def test_members_without_sync_are_removed() -> None:
    simulated = SimulatedGroup()
    simulated.join(new="a")
    simulated.join(new="b")
    simulated.expire(JOIN_TIMER)
    simulated.expire(JOIN_TIMER)
    assert simulated.timers[SYNC_TIMER] == REBALANCE_MS
    waits = simulated.sync("b")
    simulated.expire(SYNC_TIMER)
    assert simulated.sync_code(waits) is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(simulated.group.members) == ["b"]
    assert simulated.group.leader == "b"
    assert simulated.group.state is PREPARING


def test_sync_timer_ends_with_its_generation() -> None:
    simulated = SimulatedGroup()
    simulated.join(new="a")
    simulated.expire(JOIN_TIMER)
    assert SYNC_TIMER in simulated.timers
    simulated.join(new="b")
    assert simulated.group.state is PREPARING
    assert SYNC_TIMER not in simulated.timers
    assert not simulated.group.unsynced


def test_sync_during_rebalance_is_rejected() -> None:
    simulated = stable_group("a", "b")
    simulated.join("a")
    assert simulated.sync_code(simulated.sync("b")) is ErrorCode.REBALANCE_IN_PROGRESS


# ---- heartbeats and leaving


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"member_id": "a"}, ErrorCode.NONE),
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "a", "generation": 7}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "a", "instance": "instance-static-s"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"member_id": "static-s", "instance": "instance-static-s"}, ErrorCode.NONE),
        ({"member_id": "static-s", "instance": "another"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_heartbeat_error_codes(options: dict[str, object], expected: ErrorCode) -> None:
    simulated = stable_group("a", "static-s")
    assert simulated.heartbeat(**options) is expected  # type: ignore[arg-type]


def test_heartbeat_renews_the_session() -> None:
    simulated = stable_group("a")
    del simulated.timers[session_timer("a")]
    assert simulated.heartbeat("a") is ErrorCode.NONE
    assert simulated.timers[session_timer("a")] == SESSION_MS


def test_expired_session_removes_member_and_starts_rebalance() -> None:
    simulated = stable_group("a", "b")
    simulated.expire_session("a")
    assert simulated.group.state is PREPARING
    assert simulated.heartbeat("b") is ErrorCode.REBALANCE_IN_PROGRESS
    ticket = simulated.join("b")
    assert simulated.joins[ticket].leader == "b"


def test_reason_of_expired_session_names_its_timer() -> None:
    """The timer of a new member is longer, until its first join response."""
    simulated = SimulatedGroup()
    simulated.join(new="a")
    simulated.join(new="b")
    assert simulated.timers[session_timer("b")] > SESSION_MS
    simulated.expire(JOIN_TIMER)
    simulated.expire(JOIN_TIMER)
    simulated.sync("a")
    assert simulated.timers[session_timer("b")] == SESSION_MS
    simulated.expire_session("b")
    reason = f"session of member b expired after {SESSION_MS} ms"
    assert simulated.log_events[-1] == ("rebalance started", f"reason={reason}")


def test_waiting_member_does_not_expire() -> None:
    simulated = stable_group("a", "b")
    joins = simulated.join("a")
    simulated.expire_session("a")
    assert simulated.open_tickets() == {joins}
    simulated.join("b")
    assert simulated.timers[session_timer("a")] == SESSION_MS
    syncs = simulated.sync("b")
    simulated.expire_session("b")
    assert simulated.open_tickets() == {syncs}
    simulated.sync("a", {})
    simulated.finish_store()
    assert simulated.timers[session_timer("b")] == SESSION_MS


def test_group_without_members_is_stored_empty() -> None:
    simulated = stable_group("a")
    simulated.now_ms = 77
    assert simulated.leave("a") is ErrorCode.NONE
    assert (simulated.group.state, simulated.group.generation) == (EMPTY, 2)
    assert not simulated.timers
    snapshot = simulated.finish_store(ErrorCode.NOT_COORDINATOR).snapshot
    assert snapshot == ("consumer", 2, None, None, 77, ())
    assert simulated.group.state is EMPTY
    assert simulated.heartbeat("a") is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulated.join_code(simulated.join("a")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_empty_group_accepts_another_protocol_type() -> None:
    simulated = stable_group("a")
    simulated.leave("a")
    simulated.join(
        new="w", protocol_type="connect", protocols=(AssignmentProtocol("default", b""),)
    )
    simulated.expire(JOIN_TIMER)
    assert (simulated.group.protocol_type, simulated.group.protocol) == ("connect", "default")


def test_leaving_member_gets_unknown_member_id_for_its_join() -> None:
    simulated = stable_group("a", "b")
    ticket = simulated.join("a")
    assert simulated.leave("a") is ErrorCode.NONE
    assert simulated.join_code(ticket) is ErrorCode.UNKNOWN_MEMBER_ID


def test_removed_member_gets_unknown_member_id_for_its_sync() -> None:
    simulated = SimulatedGroup()
    simulated.join(new="a")
    simulated.join(new="b")
    simulated.expire(JOIN_TIMER)
    simulated.expire(JOIN_TIMER)
    ticket = simulated.sync("b")
    assert simulated.leave("b") is ErrorCode.NONE
    assert simulated.sync_code(ticket) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "instance", "expected"),
    [
        ("a", None, ErrorCode.NONE),
        ("unknown", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "instance-static-s", ErrorCode.NONE),
        ("static-s", "instance-static-s", ErrorCode.NONE),
        ("a", "instance-static-s", ErrorCode.FENCED_INSTANCE_ID),
        ("pending", None, ErrorCode.NONE),
    ],
)
def test_leave_by_member_id_or_instance_id(
    member_id: str, instance: str | None, expected: ErrorCode
) -> None:
    simulated = stable_group("a", "static-s")
    simulated.join(new="pending", requires_member_id=True)
    assert simulated.leave(member_id, instance=instance) is expected
