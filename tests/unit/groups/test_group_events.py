"""A group through its life, one event after the other: who is answered what, what is stored, which timers run."""

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
    TWO_AT_MOST,
    PlayedGroup,
    stable,
)

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


# ---- joining


def test_the_first_member_waits_for_others_and_leads() -> None:
    played = PlayedGroup()
    ticket = played.join(new="a")
    assert played.group.state is PREPARING
    assert played.timers[JOIN_TIMER] == 3000
    assert played.open() == {ticket}
    played.end(JOIN_TIMER)
    answer = played.joins[ticket]
    assert (answer.generation_id, answer.leader, answer.member_id) == (1, "a", "a")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [(each.member_id, each.metadata) for each in answer.members] == [("a", b"topics")]
    assert played.group.state is COMPLETING


def test_newcomers_put_off_the_first_rebalance_but_not_for_ever() -> None:
    played = PlayedGroup()
    played.join(new="a", rebalance_ms=7000)
    waits = []
    for name in "bcdef":
        if played.group.state is not PREPARING:
            break
        played.join(new=name, rebalance_ms=7000)
        waits.append(played.timers[JOIN_TIMER])
        played.end(JOIN_TIMER)
    assert waits == [3000, 3000, 1000]
    assert played.group.generation == 1
    assert len(played.group.members) == 4
    assert len({answer.generation_id for answer in played.joins.values()}) == 1


def test_only_the_leader_is_told_of_everybody() -> None:
    played = PlayedGroup()
    a, b = played.join(new="a"), played.join(new="b")
    played.end(JOIN_TIMER)
    played.end(JOIN_TIMER)
    assert [each.member_id for each in played.joins[a].members] == ["a", "b"]
    assert played.joins[b].members == ()
    assert played.joins[b].leader == "a"


def test_a_newcomer_is_given_its_id_and_a_rebalance_waits_for_it() -> None:
    played = stable("a")
    ticket = played.join(new="b", requires_member_id=True)
    assert played.join_code(ticket) is ErrorCode.MEMBER_ID_REQUIRED
    assert played.joins[ticket].member_id == "b"
    assert played.group.state is STABLE
    assert played.timers[session_timer("b")] == SESSION_MS
    leader = played.join("a")
    assert played.group.state is PREPARING, "b has an id and may come"
    joined = played.join("b")
    assert played.group.generation == 2
    assert played.join_code(leader) is played.join_code(joined) is ErrorCode.NONE


def test_an_id_is_not_for_who_has_an_instance() -> None:
    played = stable("a")
    played.join(new="b", requires_member_id=True)
    refused = played.join("b", instance="late")
    assert played.join_code(refused) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert played.group.state is STABLE
    assert "b" in played.group.pending_members


def test_an_id_that_never_joins_is_forgotten_and_the_rebalance_goes_on() -> None:
    played = stable("a")
    played.join(new="b", requires_member_id=True)
    leader = played.join("a")
    played.end_session("b")
    assert played.join_code(leader) is ErrorCode.NONE
    assert played.join_code(played.join("b")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_with_an_unknown_id_is_refused() -> None:
    played = stable("a")
    ticket = played.join("nobody")
    assert played.join_code(ticket) is ErrorCode.UNKNOWN_MEMBER_ID
    assert played.joins[ticket].member_id == "nobody"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("connect", RANGE),
        ("consumer", (AssignmentProtocol("sticky", b""),)),
        ("consumer", ()),
    ],
)
def test_who_shares_no_protocol_with_the_others_is_refused(
    protocol_type: str, protocols: tuple[AssignmentProtocol, ...]
) -> None:
    played = stable("a")
    ticket = played.join(protocol_type=protocol_type, protocols=protocols)
    assert played.join_code(ticket) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert played.group.state is STABLE


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_an_empty_group_takes_nobody_without_a_protocol(
    protocol_type: str, protocols: tuple[AssignmentProtocol, ...]
) -> None:
    played = PlayedGroup()
    ticket = played.join(protocol_type=protocol_type, protocols=protocols)
    assert played.join_code(ticket) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert played.group.state is EMPTY


def test_the_protocol_that_all_know_and_most_like_best_is_chosen() -> None:
    played = PlayedGroup()
    range_first = (AssignmentProtocol("range", b"r"), AssignmentProtocol("sticky", b"s"))
    played.join(new="a", protocols=range_first)
    played.join(new="b", protocols=STICKY_AND_RANGE)
    played.join(new="c", protocols=(AssignmentProtocol("unknown", b""), *STICKY_AND_RANGE))
    played.end(JOIN_TIMER)
    played.end(JOIN_TIMER)
    assert played.group.protocol == "sticky"


def test_a_member_that_only_knows_the_old_protocol_brings_all_back_to_it() -> None:
    played = PlayedGroup()
    played.join(new="a", protocols=STICKY_AND_RANGE)
    played.end(JOIN_TIMER)
    assert played.group.protocol == "sticky"
    played.join(new="b", protocols=RANGE)
    played.join("a", protocols=STICKY_AND_RANGE)
    assert played.group.protocol == "range"


def test_a_follower_that_says_nothing_new_only_missed_an_answer() -> None:
    played = stable("a", "b")
    ticket = played.join("b")
    assert played.joins[ticket].generation_id == 1
    assert played.group.state is STABLE


def test_the_leader_of_a_stable_group_may_ask_for_a_rebalance() -> None:
    played = stable("a", "b")
    ticket = played.join("a")
    assert played.group.state is PREPARING
    assert played.open() == {ticket}
    assert played.timers[JOIN_TIMER] == REBALANCE_MS
    assert played.heartbeat("b") is ErrorCode.REBALANCE_IN_PROGRESS
    played.join("b")
    assert played.group.generation == 2


def test_a_follower_that_reads_something_else_now_makes_all_join_again() -> None:
    played = stable("a", "b")
    played.join("b", protocols=(AssignmentProtocol("range", b"other topics"),))
    assert played.group.state is PREPARING


def test_who_does_not_come_in_time_is_out() -> None:
    played = stable("a", "b")
    leader = played.join("a")
    played.end(JOIN_TIMER)
    assert list(played.group.members) == ["a"]
    assert [each.member_id for each in played.joins[leader].members] == ["a"]
    assert session_timer("b") not in played.timers
    assert played.heartbeat("b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_come_in_time_is_succeeded() -> None:
    played = stable("a", "b", "c")
    played.join("c", protocols=(AssignmentProtocol("range", b"new"),))
    b = played.join("b")
    played.end(JOIN_TIMER)
    assert played.joins[b].leader == "b"


def test_a_group_that_is_full_takes_nobody_else() -> None:
    played = stable("a", "b", limits=TWO_AT_MOST)
    ticket = played.join()
    assert played.join_code(ticket) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert played.joins[ticket].member_id == ""
    assert played.group.state is STABLE


def test_the_last_to_come_are_out_if_a_group_has_become_too_large() -> None:
    played = stable("a", "b", "c")
    played.limits = TWO_AT_MOST
    played.join("a")
    played.join("c")
    ticket = played.join("b")
    assert played.join_code(ticket) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert list(played.group.members) == ["a", "c"]
    assert played.group.generation == 2


def test_a_member_that_asks_again_is_answered_on_both() -> None:
    played = stable("a", "b")
    first, second = played.join("a"), played.join("a")
    assert played.join_code(first) is ErrorCode.REBALANCE_IN_PROGRESS
    played.join("b")
    assert played.join_code(second) is ErrorCode.NONE


def test_a_newcomer_that_is_never_answered_has_five_minutes() -> None:
    played = stable("a")
    ticket = played.join(new="b")
    assert played.timers[session_timer("b")] == 300_000
    played.end_session("b")
    assert played.join_code(ticket) is ErrorCode.UNKNOWN_MEMBER_ID


# ---- syncing


def test_an_assignment_is_stored_before_anybody_hears_of_it() -> None:
    played = PlayedGroup()
    played.join(new="a")
    played.join(new="b")
    played.end(JOIN_TIMER)
    played.end(JOIN_TIMER)
    b = played.sync("b")
    a = played.sync("a", {"a": b"one", "b": b"two"})
    assert played.open() == {a, b}
    assert SYNC_TIMER not in played.timers
    (store,) = played.stores
    assert [(each.member_id, each.assignment) for each in store.snapshot.members] == [
        ("a", b"one"),
        ("b", b"two"),
    ]
    assert store.snapshot[:5] == ("readers", "consumer", 1, "range", "a")
    played.stored()
    assert played.group.state is STABLE
    assert (played.syncs[a].assignment, played.syncs[b].assignment) == (b"one", b"two")
    assert played.timers[session_timer("a")] == SESSION_MS


def test_an_assignment_that_cannot_be_stored_is_told_and_all_join_again() -> None:
    played = PlayedGroup()
    played.join(new="a")
    played.end(JOIN_TIMER)
    ticket = played.sync("a", {"a": b"one"})
    played.stored(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert played.sync_code(ticket) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert played.group.state is PREPARING


def test_a_generation_has_one_assignment_even_if_its_leader_asks_twice() -> None:
    played = PlayedGroup()
    played.join(new="a")
    played.end(JOIN_TIMER)
    first = played.sync("a", {"a": b"one"})
    second = played.sync("a", {"a": b"two"})
    assert len(played.stores) == 1
    played.stored()
    assert played.sync_code(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert played.syncs[second].assignment == b"one"


def test_what_was_stored_for_a_generation_that_is_over_is_not_given_out() -> None:
    played = PlayedGroup()
    played.join(new="a")
    played.end(JOIN_TIMER)
    ticket = played.sync("a", {"a": b"one"})
    played.join(new="b")
    assert played.sync_code(ticket) is ErrorCode.REBALANCE_IN_PROGRESS
    played.join("a")
    assert played.group.generation == 2
    played.sync("a", {"a": b"of the second"})
    played.stored()
    assert played.group.state is COMPLETING
    played.stored()
    assert played.group.state is STABLE
    assert played.group.members["a"].assignment == b"of the second"


def test_a_member_that_was_forgotten_by_the_leader_is_given_nothing() -> None:
    played = PlayedGroup()
    played.join(new="a")
    played.join(new="b")
    played.end(JOIN_TIMER)
    played.end(JOIN_TIMER)
    played.sync("a", {"a": b"all"})
    played.stored()
    assert played.syncs[played.sync("b")].assignment == b""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "a", "generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "a", "generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "a", "instance": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "a", "instance": "instance-static-s"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"member_id": "a", "protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "a", "protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "a", "protocol_type": "consumer", "protocol": "range"}, ErrorCode.NONE),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(
    options: dict[str, object], expected: ErrorCode
) -> None:
    played = stable("a", "static-s")
    ticket = played.sync(**options)  # type: ignore[arg-type]
    assert played.sync_code(ticket) is expected


def test_members_that_do_not_ask_for_their_assignment_are_out() -> None:
    played = PlayedGroup()
    played.join(new="a")
    played.join(new="b")
    played.end(JOIN_TIMER)
    played.end(JOIN_TIMER)
    assert played.timers[SYNC_TIMER] == REBALANCE_MS
    waits = played.sync("b")
    played.end(SYNC_TIMER)
    assert played.sync_code(waits) is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(played.group.members) == ["b"]
    assert played.group.leader == "b"
    assert played.group.state is PREPARING


def test_the_time_to_ask_for_an_assignment_ends_with_its_generation() -> None:
    played = PlayedGroup()
    played.join(new="a")
    played.end(JOIN_TIMER)
    assert SYNC_TIMER in played.timers
    played.join(new="b")
    assert played.group.state is PREPARING
    assert SYNC_TIMER not in played.timers
    assert not played.group.unsynced


def test_a_sync_during_a_rebalance_sends_the_member_back_to_join() -> None:
    played = stable("a", "b")
    played.join("a")
    assert played.sync_code(played.sync("b")) is ErrorCode.REBALANCE_IN_PROGRESS


# ---- staying and leaving


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"member_id": "a"}, ErrorCode.NONE),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "a", "generation": 7}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "a", "instance": "instance-static-s"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"member_id": "static-s", "instance": "instance-static-s"}, ErrorCode.NONE),
        ({"member_id": "static-s", "instance": "another"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_heartbeat_is_answered(options: dict[str, object], expected: ErrorCode) -> None:
    played = stable("a", "static-s")
    assert played.heartbeat(**options) is expected  # type: ignore[arg-type]


def test_a_heartbeat_begins_the_session_anew() -> None:
    played = stable("a")
    del played.timers[session_timer("a")]
    assert played.heartbeat("a") is ErrorCode.NONE
    assert played.timers[session_timer("a")] == SESSION_MS


def test_a_member_that_is_not_heard_of_is_out_and_the_others_join_again() -> None:
    played = stable("a", "b")
    played.end_session("a")
    assert played.group.state is PREPARING
    assert played.heartbeat("b") is ErrorCode.REBALANCE_IN_PROGRESS
    ticket = played.join("b")
    assert played.joins[ticket].leader == "b"


def test_who_waits_for_the_coordinator_need_not_be_heard_of() -> None:
    played = stable("a", "b")
    joins = played.join("a")
    played.end_session("a")
    assert played.open() == {joins}
    played.join("b")
    assert played.timers[session_timer("a")] == SESSION_MS
    syncs = played.sync("b")
    played.end_session("b")
    assert played.open() == {syncs}
    played.sync("a", {})
    played.stored()
    assert played.timers[session_timer("b")] == SESSION_MS


def test_the_last_member_that_leaves_leaves_an_empty_group_that_is_stored() -> None:
    played = stable("a")
    played.now_ms = 77
    assert played.leave("a") is ErrorCode.NONE
    assert (played.group.state, played.group.generation) == (EMPTY, 2)
    assert not played.timers
    snapshot = played.stored(ErrorCode.NOT_COORDINATOR).snapshot
    assert snapshot == ("readers", "consumer", 2, None, None, 77, ())
    assert played.group.state is EMPTY
    assert played.heartbeat("a") is ErrorCode.UNKNOWN_MEMBER_ID
    assert played.join_code(played.join("a")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_takes_members_of_another_kind() -> None:
    played = stable("a")
    played.leave("a")
    played.join(new="w", protocol_type="connect", protocols=(AssignmentProtocol("default", b""),))
    played.end(JOIN_TIMER)
    assert (played.group.protocol_type, played.group.protocol) == ("connect", "default")


def test_a_member_that_leaves_while_it_waits_is_told_so() -> None:
    played = stable("a", "b")
    ticket = played.join("a")
    assert played.leave("a") is ErrorCode.NONE
    assert played.join_code(ticket) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_is_removed_while_it_waits_for_its_assignment_is_told_so() -> None:
    played = PlayedGroup()
    played.join(new="a")
    played.join(new="b")
    played.end(JOIN_TIMER)
    played.end(JOIN_TIMER)
    ticket = played.sync("b")
    assert played.leave("b") is ErrorCode.NONE
    assert played.sync_code(ticket) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "instance", "expected"),
    [
        ("a", None, ErrorCode.NONE),
        ("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "instance-static-s", ErrorCode.NONE),
        ("static-s", "instance-static-s", ErrorCode.NONE),
        ("a", "instance-static-s", ErrorCode.FENCED_INSTANCE_ID),
        ("pending", None, ErrorCode.NONE),
    ],
)
def test_leaving_by_id_or_by_instance_id(
    member_id: str, instance: str | None, expected: ErrorCode
) -> None:
    played = stable("a", "static-s")
    played.join(new="pending", requires_member_id=True)
    assert played.leave(member_id, instance=instance) is expected
