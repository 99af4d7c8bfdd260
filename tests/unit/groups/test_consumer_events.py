"""Heartbeats, joins, departures and time-outs in a group of the new consumer protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Self

import pytest

from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups import consumer_events
from barnabas.groups.consumer_events import (
    assign_targets,
    read_owned_partitions,
    rebalance_timer,
    start_consumer_sessions,
)
from barnabas.groups.consumer_group import ConsumerGroupState, MemberState
from barnabas.groups.consumer_records import CurrentAssignmentValue, SubscribedTopic
from barnabas.groups.group_transition import SetTimer, session_timer
from barnabas.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from tests.unit.groups.simulated_consumer_group import (
    INTERVAL_MS,
    SESSION_MS,
    A,
    B,
    SimulatedConsumerGroup,
    assignment_of,
    parts,
)

JOIN: dict[str, Any] = {
    "group_id": "app",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1000,
    "subscribed_topic_names": ("a",),
    "topic_partitions": (),
}
STATIC_LEAVE: dict[str, Any] = {
    "group_id": "app",
    "member_id": "m",
    "member_epoch": -2,
    "instance_id": "i",
}


def error(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        action()
    return caught.value.code


class CountingSet(frozenset[int]):
    """A frozenset that counts how many elements are copied into such sets."""

    copied = 0

    def __new__(cls, elements: Iterable[int] = ()) -> Self:
        made = super().__new__(cls, elements)
        CountingSet.copied += len(made)
        return made

    def __or__(self, other: Iterable[int]) -> CountingSet:  # type: ignore[override]
        return CountingSet(self.union(other))


def two_members() -> SimulatedConsumerGroup:
    """Member x has partitions 0 and 1 of topic a, member y has 2 and 3."""
    sim = SimulatedConsumerGroup(a=4)
    sim.join("x", "a")
    sim.join("y", "a")
    sim.heartbeat("x", 1)
    kept = sim.member("x").assigned
    sim.heartbeat("x", 1, kept)
    sim.heartbeat("y", 2)
    assert sim.group.state is ConsumerGroupState.STABLE
    return sim


# ---- requests that are invalid on their own


@pytest.mark.parametrize(
    "change",
    [
        {"group_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"member_epoch": -3},
        {"member_epoch": 1, "member_id": ""},
        {"member_epoch": -1, "member_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": (HeartbeatTopicPartitions(A, (0,)),)},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": ()},
        {"subscribed_topic_names": ("a",) * 10_001},
        {"member_epoch": 1, "subscribed_topic_names": ("a",) * 10_001},
        {"subscribed_topic_regex": "a.*"},
    ],
)
def test_invalid_request(change: dict[str, Any]) -> None:
    sim = SimulatedConsumerGroup(a=1)
    request = ConsumerGroupHeartbeatRequest(**JOIN | change)
    assert error(lambda: sim.send(request)) is ErrorCode.INVALID_REQUEST
    assert not sim.log


@pytest.mark.parametrize("change", [{"member_id": ""}, {"instance_id": None}])
def test_invalid_static_leave(change: dict[str, Any]) -> None:
    sim = SimulatedConsumerGroup(a=1)
    request = ConsumerGroupHeartbeatRequest(**STATIC_LEAVE | change)
    assert error(lambda: sim.send(request)) is ErrorCode.INVALID_REQUEST


def test_unknown_assignor() -> None:
    sim = SimulatedConsumerGroup(a=1)
    assert error(lambda: sim.join("x", "a", assignor="sticky")) is ErrorCode.UNSUPPORTED_ASSIGNOR


@pytest.mark.parametrize("entries", [1, 500])
def test_owned_partitions_are_copied_once(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    monkeypatch.setattr(consumer_events, "frozenset", CountingSet, raising=False)
    monkeypatch.setattr(CountingSet, "copied", 0)
    count = 1000 // entries
    rows = [
        HeartbeatTopicPartitions(A, tuple(range(at, at + count))) for at in range(0, 1000, count)
    ]
    request = ConsumerGroupHeartbeatRequest(
        group_id="app", member_id="m", member_epoch=1, topic_partitions=(*rows, *rows[:1])
    )
    assert read_owned_partitions(request) == {A: parts(*range(1000))}
    assert CountingSet.copied == 1000


# ---- joining


def test_first_member_gets_all_partitions_and_epoch_1() -> None:
    sim = SimulatedConsumerGroup(a=2, b=1)
    response = sim.join("x", "a", "b")
    assert (response.member_id, response.member_epoch) == ("x", 1)
    assert response.heartbeat_interval_ms == INTERVAL_MS
    assert assignment_of(response) == {A: parts(0, 1), B: parts(0)}
    assert sim.key_names() == [
        "MemberMetadata",
        "Subscription",
        "ConsumerGroupEpoch",
        "TargetAssignment",
        "TargetEpoch",
        "CurrentAssignment",
    ]
    assert sim.timers == {session_timer("x"): SESSION_MS}
    assert sim.group.state is ConsumerGroupState.STABLE


def test_member_without_an_id_gets_one() -> None:
    sim = SimulatedConsumerGroup(a=1)
    assert sim.join("", "a").member_id == "new"
    assert list(sim.group.members) == ["new"]


def test_join_stores_the_client() -> None:
    sim = SimulatedConsumerGroup(a=1)
    sim.join("x", "a", assignor="range")
    member = sim.member("x")
    assert (member.client_id, member.client_host) == ("client", "/host")
    assert (member.rebalance_timeout_ms, member.server_assignor) == (300_000, "range")
    assert member.subscribed_topics == {"a"}


def test_topic_that_does_not_exist_is_waited_for() -> None:
    sim = SimulatedConsumerGroup()
    assert assignment_of(sim.join("x", "a")) == {}
    sim.set_topic("a", 1)
    response = sim.heartbeat("x", 1)
    assert (response.member_epoch, assignment_of(response)) == (2, {A: parts(0)})


def test_second_member_waits_until_the_first_releases() -> None:
    sim = SimulatedConsumerGroup(a=4)
    sim.join("x", "a")
    response = sim.join("y", "a")
    assert (response.member_epoch, assignment_of(response)) == (2, {})
    assert sim.member("y").state is MemberState.UNRELEASED_PARTITIONS
    assert sim.group.state == "Reconciling"

    response = sim.heartbeat("x", 1)
    kept = assignment_of(response)
    assert kept == {A: parts(0, 1)}
    assert response.member_epoch == 1
    assert sim.member("x").state is MemberState.UNREVOKED_PARTITIONS
    assert sim.timers[rebalance_timer("x")] == 300_000
    assert assignment_of(sim.heartbeat("y", 2)) is None

    response = sim.heartbeat("x", 1, kept)
    assert (response.member_epoch, response.assignment) == (2, None)
    assert rebalance_timer("x") not in sim.timers
    assert assignment_of(sim.heartbeat("y", 2)) == {A: parts(2, 3)}
    assert sim.group.state is ConsumerGroupState.STABLE


def test_stable_heartbeat_writes_nothing() -> None:
    sim = two_members()
    response = sim.heartbeat("x", 2)
    assert sim.records == []
    assert (response.member_epoch, response.assignment) == (2, None)


def test_full_heartbeat_gets_the_assignment() -> None:
    sim = two_members()
    request = ConsumerGroupHeartbeatRequest(**JOIN | {"member_id": "x", "member_epoch": 2})
    response = sim.send(request)
    assert assignment_of(response) == sim.member("x").assigned


def test_group_that_is_full() -> None:
    config = BrokerConfig(group_consumer_max_size=1)
    sim = SimulatedConsumerGroup(config, a=1)
    sim.join("x", "a")
    assert error(lambda: sim.join("y", "a")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert error(lambda: sim.join("", "a")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert sim.heartbeat("x", 1).member_epoch == 1


# ---- changes of subscriptions and topics


def test_changed_subscription_bumps_the_group_epoch() -> None:
    sim = SimulatedConsumerGroup(a=1, b=1)
    sim.join("x", "a")
    response = sim.heartbeat("x", 1, {A: parts(0)}, topics=("a", "b"))
    assert (response.member_epoch, sim.group.epoch) == (2, 2)
    assert assignment_of(response) == {A: parts(0), B: parts(0)}


def test_same_subscription_in_another_order_changes_nothing() -> None:
    sim = SimulatedConsumerGroup(a=1, b=1)
    sim.join("x", "a", "b")
    sim.heartbeat("x", 1, topics=("b", "a", "a"))
    assert sim.records == []


def test_unsubscribed_topic_is_revoked_first() -> None:
    sim = SimulatedConsumerGroup(a=1, b=1)
    sim.join("x", "a", "b")
    response = sim.heartbeat("x", 1, {A: parts(0), B: parts(0)}, topics=("a",))
    assert (response.member_epoch, assignment_of(response)) == (1, {A: parts(0)})
    assert sim.heartbeat("x", 1, {A: parts(0)}).member_epoch == 2
    assert sim.group.subscription.keys() == {"a"}


def test_heartbeats_look_up_topics_only_after_a_change() -> None:
    sim = two_members()
    sim.lookups = 0
    sim.heartbeat("x", 2)
    sim.heartbeat("y", 2)
    assert sim.lookups == 0
    sim.set_topic("b", 1)
    sim.heartbeat("x", 2)
    sim.heartbeat("y", 2)
    assert sim.lookups == 1


def test_join_looks_up_only_the_topics_of_the_member() -> None:
    sim = SimulatedConsumerGroup(a=1, b=1)
    sim.join("x", *(f"missing-{at}" for at in range(100)))
    sim.lookups = 0
    sim.join("y", "a", "b")
    sim.leave("y")
    assert sim.lookups == 2
    assert sim.group.subscription == {}


def test_topics_are_checked_after_a_failover() -> None:
    sim = SimulatedConsumerGroup(a=1)
    sim.join("x", "a")
    restored = sim.restored()
    assert restored is not None
    sim.group, sim.lookups = restored, 0
    sim.heartbeat("x", 1)
    sim.heartbeat("x", 1)
    assert sim.lookups == 1


def test_assignment_looks_up_equal_subscriptions_once() -> None:
    class CountingDict(dict[str, SubscribedTopic]):
        lookups = 0

        def __contains__(self, name: object) -> bool:
            CountingDict.lookups += 1
            return super().__contains__(name)

    sim = SimulatedConsumerGroup(a=4, b=4)
    for name in ("x", "y", "z"):
        sim.join(name, "a", "b")
    sim.join("other", "a")
    updated, topics = sim.member("x"), CountingDict(sim.group.subscription)
    target = assign_targets(sim.transition(), None, updated, topics, sim.group.epoch)
    assert target == sim.group.targets["x"]
    assert CountingDict.lookups == 3


def test_update_of_a_member_counts_only_its_own_topics() -> None:
    sim = two_members()
    counted: list[str] = []

    class CountingCounter(Counter[str]):
        def __getitem__(self, name: str) -> int:
            counted.append(name)
            return super().__getitem__(name)

        def __isub__(self, other: Any) -> Self:  # type: ignore[misc]
            counted.extend(self)
            return super().__isub__(other)

    names = {f"other-{at}": 1 for at in range(100)}
    sim.group.topic_counts = CountingCounter({**sim.group.topic_counts, **names})
    sim.group.put(sim.member("x"))
    assert set(counted) == {"a"}
    assert sim.group.topic_counts["a"] == 2
    sim.group.remove("x")
    sim.group.remove("y")
    assert sim.group.topic_counts == names


def test_new_partitions_are_assigned() -> None:
    sim = SimulatedConsumerGroup(a=1)
    sim.join("x", "a")
    sim.set_topic("a", 3)
    response = sim.heartbeat("x", 1)
    assert (response.member_epoch, assignment_of(response)) == (2, {A: parts(0, 1, 2)})
    assert "-Subscription" not in sim.key_names()
    assert "Subscription" in sim.key_names()


def test_deleted_topic_is_revoked() -> None:
    sim = SimulatedConsumerGroup(a=1, b=1)
    sim.join("x", "a", "b")
    sim.delete_topic("a")
    response = sim.heartbeat("x", 1, {B: parts(0)})
    assert (response.member_epoch, assignment_of(response)) == (2, {B: parts(0)})


def test_assignor_with_most_votes() -> None:
    sim = SimulatedConsumerGroup(a=1)
    assert sim.group.assignor == "uniform"
    sim.join("x", "a", assignor="range")
    assert sim.group.assignor == "range"
    sim.join("y", "a", assignor="uniform")
    assert sim.group.assignor == "uniform"
    sim.join("z", "a", assignor="range")
    assert sim.group.assignor == "range"


# ---- epochs


def test_heartbeat_of_an_unknown_member() -> None:
    sim = two_members()
    assert error(lambda: sim.heartbeat("z", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(lambda: sim.leave("z")) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("epoch", [3, 100])
def test_later_epoch_is_fenced(epoch: int) -> None:
    sim = two_members()
    assert error(lambda: sim.heartbeat("x", epoch)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_previous_epoch_is_accepted_with_a_part_of_the_assignment() -> None:
    sim = two_members()
    assert sim.heartbeat("x", 1, sim.member("x").assigned).member_epoch == 2
    assert sim.heartbeat("x", 1, {}).member_epoch == 2


@pytest.mark.parametrize("owned", [None, {A: parts(0, 2)}, {B: parts(0)}])
def test_previous_epoch_is_fenced_otherwise(owned: Any) -> None:
    sim = two_members()
    assert error(lambda: sim.heartbeat("x", 1, owned)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_older_epoch_is_fenced() -> None:
    sim = two_members()
    sim.join("z", "a")
    sim.heartbeat("x", 2)
    sim.heartbeat("x", 2, sim.member("x").assigned)
    assert error(lambda: sim.heartbeat("x", 1, {})) is ErrorCode.FENCED_MEMBER_EPOCH


def test_repeated_join_gets_the_same_epoch() -> None:
    sim = SimulatedConsumerGroup(a=1)
    first = sim.join("x", "a")
    again = sim.join("x", "a")
    assert (again.member_epoch, assignment_of(again)) == (1, assignment_of(first))
    assert sim.records == []


def test_late_rejoin_with_a_known_id_is_fenced() -> None:
    sim = two_members()
    assert error(lambda: sim.join("x", "a")) is ErrorCode.FENCED_MEMBER_EPOCH


# ---- leaving and time-outs


def test_partitions_of_a_leaving_member_are_free_at_once() -> None:
    sim = two_members()
    response = sim.leave("x")
    assert (response.member_id, response.member_epoch) == ("x", -1)
    assert sim.key_names() == [
        "-CurrentAssignment",
        "-TargetAssignment",
        "-MemberMetadata",
        "ConsumerGroupEpoch",
    ]
    assert sim.timers.keys() == {session_timer("y")}
    assert sim.group.state is ConsumerGroupState.ASSIGNING
    response = sim.heartbeat("y", 2)
    assert (response.member_epoch, assignment_of(response)) == (3, {A: parts(0, 1, 2, 3)})


def test_last_member_leaves_an_empty_group() -> None:
    sim = SimulatedConsumerGroup(a=1)
    sim.join("x", "a")
    sim.leave("x")
    assert sim.group.state is ConsumerGroupState.EMPTY
    assert (sim.group.epoch, sim.group.subscription, sim.group.owners) == (2, {}, {})
    assert not sim.group.targets
    assert assignment_of(sim.join("y", "a")) == {A: parts(0)}


def test_expired_session_removes_the_member() -> None:
    sim = two_members()
    sim.expire(session_timer("x"))
    assert list(sim.group.members) == ["y"]
    assert sim.group.epoch == 3


def test_expired_timer_of_a_member_that_left() -> None:
    sim = two_members()
    sim.timers[session_timer("z")] = 1
    sim.expire(session_timer("z"))
    assert sim.records == []


def test_member_that_does_not_release_partitions_is_removed() -> None:
    sim = SimulatedConsumerGroup(a=2)
    sim.join("x", "a")
    sim.join("y", "a")
    sim.heartbeat("x", 1)
    sim.expire(rebalance_timer("x"))
    assert list(sim.group.members) == ["y"]
    assert assignment_of(sim.heartbeat("y", 2)) == {A: parts(0, 1)}
    assert error(lambda: sim.heartbeat("x", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_late_rebalance_timer_is_ignored() -> None:
    sim = two_members()
    sim.timers[rebalance_timer("x")] = 1
    sim.expire(rebalance_timer("x"))
    assert sim.records == []


# ---- static members


def static_group() -> SimulatedConsumerGroup:
    sim = SimulatedConsumerGroup(a=2)
    sim.join("x", "a", instance_id="i")
    return sim


def test_static_member_that_restarts_keeps_its_partitions() -> None:
    sim = static_group()
    sim.join("y", "a")
    sim.heartbeat("x", 1, instance_id="i")
    sim.heartbeat("x", 1, sim.member("x").assigned, instance_id="i")
    sim.heartbeat("y", 2)
    before = sim.member("x").assigned
    response = sim.leave("x", -2, instance_id="i")
    assert (response.member_epoch, sim.member("x").epoch) == (-2, -2)
    assert sim.key_names() == ["CurrentAssignment"]
    assert session_timer("x") in sim.timers
    sim.heartbeat("y", 2)
    assert sim.records == []

    response = sim.join("x2", "a", instance_id="i")
    assert (response.member_epoch, assignment_of(response)) == (2, before)
    assert sim.group.members.keys() == {"x2", "y"}
    assert sim.group.static_members == {"i": "x2"}
    assert sim.group.epoch == 2
    assert sim.group.state is ConsumerGroupState.STABLE
    assert sim.key_names()[:3] == ["-CurrentAssignment", "-TargetAssignment", "-MemberMetadata"]


def test_static_member_may_restart_with_the_same_member_id() -> None:
    sim = static_group()
    sim.leave("x", -2, instance_id="i")
    response = sim.join("x", "a", instance_id="i")
    assert (response.member_epoch, assignment_of(response)) == (1, {A: parts(0, 1)})
    assert sim.group.members.keys() == {"x"}


def test_static_member_that_restarts_with_another_subscription() -> None:
    sim = static_group()
    sim.set_topic("b", 1)
    sim.leave("x", -2, instance_id="i")
    response = sim.join("x2", "b", instance_id="i")
    # The member rejoined without partitions, so nothing has to be revoked.
    assert (response.member_epoch, assignment_of(response)) == (2, {B: parts(0)})
    assert sim.group.subscription.keys() == {"b"}
    assert sim.group.owners == {(B, 0): "x2"}


def test_instance_id_in_use_is_unreleased() -> None:
    sim = static_group()
    rejoin = error(lambda: sim.join("x2", "a", instance_id="i"))
    assert rejoin is ErrorCode.UNRELEASED_INSTANCE_ID


def test_replaced_static_member_is_fenced() -> None:
    sim = static_group()
    sim.leave("x", -2, instance_id="i")
    sim.join("x2", "a", instance_id="i")
    old = error(lambda: sim.heartbeat("x", 1, instance_id="i"))
    assert old is ErrorCode.FENCED_INSTANCE_ID
    for epoch in (-1, -2):
        left = error(lambda epoch=epoch: sim.leave("x", epoch, instance_id="i"))  # type: ignore[misc]
        assert left is ErrorCode.FENCED_INSTANCE_ID


def test_unknown_instance_id() -> None:
    sim = static_group()
    assert error(lambda: sim.heartbeat("x", 1, instance_id="j")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(lambda: sim.leave("x", -2, instance_id="j")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_that_does_not_return_is_removed() -> None:
    sim = static_group()
    sim.leave("x", -2, instance_id="i")
    sim.expire(session_timer("x"))
    assert sim.group.state is ConsumerGroupState.EMPTY
    assert sim.group.static_members == {}


def test_static_member_that_leaves_for_good() -> None:
    sim = static_group()
    sim.leave("x", -1, instance_id="i")
    assert sim.group.state is ConsumerGroupState.EMPTY


def test_static_member_that_left_while_it_revoked_is_not_removed_by_the_rebalance_timer() -> None:
    sim = static_group()
    sim.join("y", "a")
    sim.heartbeat("x", 1, instance_id="i")
    sim.leave("x", -2, instance_id="i")
    assert assignment_of(sim.heartbeat("y", 2)) == {A: parts(1)}
    sim.expire(rebalance_timer("x"))
    assert sim.group.members.keys() == {"x", "y"}


# ---- loading and offsets


def test_sessions_start_after_loading() -> None:
    sim = SimulatedConsumerGroup(a=2)
    sim.join("x", "a")
    sim.join("y", "a")
    sim.heartbeat("x", 1)
    transition = sim.transition()
    start_consumer_sessions(transition)
    assert transition.timers == [
        SetTimer(session_timer("x"), SESSION_MS),
        SetTimer(rebalance_timer("x"), 300_000),
        SetTimer(session_timer("y"), SESSION_MS),
    ]
    assert not transition.records


def test_group_is_restored_from_its_records() -> None:
    sim = two_members()
    restored = sim.restored()
    assert restored is not None
    assert restored.members == sim.group.members
    assert restored.targets == sim.group.targets
    assert restored.owners == sim.group.owners
    assert restored.subscription == sim.group.subscription
    assert restored.topic_counts == sim.group.topic_counts
    assert (restored.epoch, restored.target_epoch) == (2, 2)
    assert restored.state is ConsumerGroupState.STABLE


def test_deleted_group_is_not_restored() -> None:
    sim = two_members()
    for record in sim.group.tombstones():
        sim.log.append(record)
        sim.group.apply(record)
    assert not sim.group.members
    assert sim.restored() is None


def test_records_of_a_member_without_metadata_are_ignored() -> None:
    sim = two_members()
    sim.log = [each for each in sim.log if type(each.key).__name__ != "MemberMetadataKey"]
    restored = sim.restored()
    assert restored is not None
    assert not restored.members
    assert restored.owners == {}


def test_unknown_member_state_in_the_log() -> None:
    sim = two_members()
    key = next(each.key for each in sim.log if type(each.key).__name__ == "CurrentAssignmentKey")
    sim.group.apply(sim.log[0]._replace(key=key, value=CurrentAssignmentValue(2, 1, 99)))
    assert sim.member("x").state is MemberState.UNKNOWN
    assert error(lambda: sim.heartbeat("x", 2)) is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "code"),
    [
        ("x", 2, 9, ErrorCode.NONE),
        ("x", 2, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("x", 1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 3, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", -1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("z", 2, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits(member_id: str, epoch: int, version: int, code: ErrorCode) -> None:
    assert two_members().group.commit_error(member_id, epoch, version) is code


@pytest.mark.parametrize(
    ("epoch", "code"), [(-1, ErrorCode.NONE), (0, ErrorCode.UNKNOWN_MEMBER_ID)]
)
def test_commits_to_an_empty_group(epoch: int, code: ErrorCode) -> None:
    sim = SimulatedConsumerGroup(a=1)
    assert sim.group.commit_error("", epoch, 2) is code


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("x", 2, ErrorCode.NONE),
        ("x", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("z", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_offset_fetches(member_id: str | None, epoch: int, code: ErrorCode) -> None:
    assert two_members().group.fetch_error(member_id, epoch) is code
