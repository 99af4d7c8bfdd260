"""A group through its life, one event after the other: who is answered what, what is stored, which timers run."""

from __future__ import annotations

import pytest

from barnabas.errors import ErrorCode
from barnabas.groups.group import Group, GroupState, Protocol
from barnabas.groups.group_events import ended, loaded
from barnabas.groups.group_turn import JOIN_TIMER, SYNC_TIMER, GroupLimits, session_of
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.rebalance import prepare
from barnabas.wire.consumer_protocol import Subscription, encode_subscription
from tests.unit.groups.played_group import (
    LIMITS,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    PlayedGroup,
    stable,
)

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
STICKY_AND_RANGE = (Protocol("sticky", b"s"), Protocol("range", b"r"))
AT_ONCE = GroupLimits(
    session_timeout_ms_min=0,
    session_timeout_ms_max=100_000,
    members_max=2,
    initial_rebalance_delay_ms=0,
)


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
    ticket = played.join(new="b", must_know_id=True)
    assert played.join_code(ticket) is ErrorCode.MEMBER_ID_REQUIRED
    assert played.joins[ticket].member_id == "b"
    assert played.group.state is STABLE
    assert played.timers[session_of("b")] == SESSION_MS
    leader = played.join("a")
    assert played.group.state is PREPARING, "b has an id and may come"
    joined = played.join("b")
    assert played.group.generation == 2
    assert played.join_code(leader) is played.join_code(joined) is ErrorCode.NONE


def test_an_id_that_never_joins_is_forgotten_and_the_rebalance_goes_on() -> None:
    played = stable("a")
    played.join(new="b", must_know_id=True)
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
        ("consumer", (Protocol("sticky", b""),)),
        ("consumer", ()),
    ],
)
def test_who_shares_no_protocol_with_the_others_is_refused(
    protocol_type: str, protocols: tuple[Protocol, ...]
) -> None:
    played = stable("a")
    ticket = played.join(protocol_type=protocol_type, protocols=protocols)
    assert played.join_code(ticket) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert played.group.state is STABLE


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_an_empty_group_takes_nobody_without_a_protocol(
    protocol_type: str, protocols: tuple[Protocol, ...]
) -> None:
    played = PlayedGroup()
    ticket = played.join(protocol_type=protocol_type, protocols=protocols)
    assert played.join_code(ticket) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert played.group.state is EMPTY


def test_the_protocol_that_all_know_and_most_like_best_is_chosen() -> None:
    played = PlayedGroup()
    range_first = (Protocol("range", b"r"), Protocol("sticky", b"s"))
    played.join(new="a", protocols=range_first)
    played.join(new="b", protocols=STICKY_AND_RANGE)
    played.join(new="c", protocols=(Protocol("unknown", b""), *STICKY_AND_RANGE))
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
    played.join("b", protocols=(Protocol("range", b"other topics"),))
    assert played.group.state is PREPARING


def test_who_does_not_come_in_time_is_out() -> None:
    played = stable("a", "b")
    leader = played.join("a")
    played.end(JOIN_TIMER)
    assert list(played.group.members) == ["a"]
    assert [each.member_id for each in played.joins[leader].members] == ["a"]
    assert session_of("b") not in played.timers
    assert played.heartbeat("b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_come_in_time_is_succeeded() -> None:
    played = stable("a", "b", "c")
    played.join("c", protocols=(Protocol("range", b"new"),))
    b = played.join("b")
    played.end(JOIN_TIMER)
    assert played.joins[b].leader == "b"


def test_a_group_that_is_full_takes_nobody_else() -> None:
    played = stable("a", "b", limits=AT_ONCE)
    ticket = played.join()
    assert played.join_code(ticket) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert played.joins[ticket].member_id == ""
    assert played.group.state is STABLE


def test_the_last_to_come_are_out_if_a_group_has_become_too_large() -> None:
    played = stable("a", "b", "c")
    played.limits = AT_ONCE
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
    assert played.timers[session_of("b")] == 300_000
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
    assert played.timers[session_of("a")] == SESSION_MS


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
    del played.timers[session_of("a")]
    assert played.heartbeat("a") is ErrorCode.NONE
    assert played.timers[session_of("a")] == SESSION_MS


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
    assert played.timers[session_of("a")] == SESSION_MS
    syncs = played.sync("b")
    played.end_session("b")
    assert played.open() == {syncs}
    played.sync("a", {})
    played.stored()
    assert played.timers[session_of("b")] == SESSION_MS


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
    played.join(new="w", protocol_type="connect", protocols=(Protocol("default", b""),))
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
    played.join(new="pending", must_know_id=True)
    assert played.leave(member_id, instance=instance) is expected


# ---- static members


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
    assert session_of("static-s") not in played.timers


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
    assert played.timers.keys() == {session_of("a"), session_of("static-s")}
    assert played.heartbeat("static-s", instance="instance-static-s") is ErrorCode.NONE


def test_a_static_member_that_comes_back_with_another_choice_makes_all_join_again() -> None:
    played = PlayedGroup()
    both = (Protocol("range", b"r"), Protocol("sticky", b"s"))
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


# ---- coming and going of the coordinator


def test_a_group_is_the_same_after_it_was_stored_and_read() -> None:
    played = stable("a", "static-s")
    snapshot = played.group.snapshot()
    restored = Group.restored("readers", snapshot, GroupOffsets(), 5)
    assert restored.state is STABLE
    assert restored.snapshot() == snapshot
    assert restored.static_members == played.group.static_members
    assert PlayedGroup(group=restored).heartbeat("a") is ErrorCode.NONE


def test_the_members_of_a_loaded_group_have_a_session_to_be_heard_of() -> None:
    group = Group.restored("readers", stable("a", "b", "c").group.snapshot(), GroupOffsets(), 5)
    played = PlayedGroup(group=group)
    played.turn(loaded)
    assert played.timers == {session_of(each): SESSION_MS for each in "abc"}
    too_many = PlayedGroup(AT_ONCE, Group.restored("x", group.snapshot(), GroupOffsets(), 5))
    too_many.turn(loaded)
    assert too_many.group.state is PREPARING


def test_who_waits_when_the_coordinator_goes_is_told_to_look_for_another() -> None:
    joining = stable("a", "b")
    ticket = joining.join("a")
    joining.turn(lambda turn: ended(turn, ErrorCode.NOT_COORDINATOR))
    assert joining.join_code(ticket) is ErrorCode.NOT_COORDINATOR
    assert joining.group.state is DEAD
    assert joining.heartbeat("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert joining.join_code(joining.join("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert joining.sync_code(joining.sync("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    syncing = stable("a", "b")
    syncing.join("a")
    syncing.join("b")
    ticket = syncing.sync("b")
    syncing.turn(lambda turn: ended(turn, ErrorCode.NOT_COORDINATOR))
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
    assert group.refusal_of_commit(member_id, instance, generation) is expected


def test_anybody_commits_for_an_empty_group_without_a_generation() -> None:
    group = Group(group_id="tools")
    assert group.refusal_of_commit("", None, -1) is ErrorCode.NONE
    assert group.refusal_of_commit("", None, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_do_not_commit_before_they_know_what_they_are_given() -> None:
    played = stable("a", "b")
    played.join("a")
    assert played.group.refusal_of_commit("b", None, 1) is ErrorCode.NONE
    played.join("b")
    assert played.group.refusal_of_commit("b", None, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_knows_what_its_consumers_read() -> None:
    def says(*topics: str) -> tuple[Protocol, ...]:
        return (Protocol("range", encode_subscription(Subscription(topics=topics))),)

    played = PlayedGroup()
    played.join(new="a", protocols=says("x", "y"))
    played.join(new="b", protocols=says("z"))
    played.end(JOIN_TIMER)
    played.end(JOIN_TIMER)
    assert played.group.subscribed_topics() == frozenset("xyz")
    assert not played.group.is_subscribed_to("other")
    restored = Group.restored("r", played.group.snapshot(), GroupOffsets(), 5)
    assert restored.subscribed_topics() == frozenset("xyz")


def test_what_is_not_understood_is_taken_as_read() -> None:
    group = stable("a").group
    assert group.subscribed_topics() is None
    assert group.is_subscribed_to("anything")


def test_every_state_has_a_way_there() -> None:
    played = PlayedGroup(LIMITS)
    with pytest.raises(AssertionError):
        played.turn(lambda turn: turn.move_to(STABLE))
    played.turn(lambda turn: prepare(turn, "to see"))
    assert played.group.state is PREPARING
