"""Assignors of the new consumer protocol."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.groups.assignors import (
    ASSIGNORS,
    DEFAULT_ASSIGNOR,
    Assignees,
    AssigneeSpec,
    Owners,
    PartitionCounts,
    all_partitions,
    assign_range,
    assign_to_least_loaded,
    assign_uniform,
    kept_partitions,
)
from barnabas.groups.consumer_records import Assignment

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


def spec(*topics: UUID, instance_id: str | None = None) -> AssigneeSpec:
    return AssigneeSpec(frozenset(topics), {}, instance_id)


def owning(topics: tuple[UUID, ...], assigned: Assignment) -> AssigneeSpec:
    return AssigneeSpec(frozenset(topics), assigned)


def parts(*partitions: int) -> frozenset[int]:
    return frozenset(partitions)


def reassign(
    members: Assignees, previous: dict[str, Assignment], counts: PartitionCounts
) -> dict[str, Assignment]:
    return assign_uniform(
        {
            name: each._replace(assigned=previous.get(name, {}))
            for name, each in sorted(members.items())
        },
        counts,
    )


def sizes(assignments: dict[str, Assignment]) -> dict[str, int]:
    return {name: sum(map(len, each.values())) for name, each in assignments.items()}


def moved(before: dict[str, Assignment], after: dict[str, Assignment]) -> int:
    """Number of partitions that a member of both assignments lost."""
    return sum(
        len(partitions - after[name].get(topic_id, frozenset()))
        for name, each in before.items()
        if name in after
        for topic_id, partitions in each.items()
    )


# ---- both


@st.composite
def groups(draw: st.DrawFn) -> tuple[Assignees, PartitionCounts]:
    counts = {UUID(int=at): draw(st.integers(1, 7)) for at in range(draw(st.integers(0, 4)))}
    members = {}
    for at in range(draw(st.integers(0, 5))):
        topics = draw(st.sets(st.sampled_from([*counts, UUID(int=99)])))
        assigned = {
            topic_id: frozenset(partitions)
            for topic_id in draw(st.sets(st.sampled_from([*counts, UUID(int=99)])))
            if (partitions := draw(st.sets(st.integers(0, 9))))
        }
        instance_id = draw(st.none() | st.just(f"i{9 - at}"))
        members[f"m{at}"] = AssigneeSpec(frozenset(topics), assigned, instance_id)
    return members, counts


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
@settings(max_examples=60, deadline=None)
def test_each_partition_gets_exactly_one_subscriber(
    name: str, group: tuple[Assignees, PartitionCounts]
) -> None:
    members, counts = group
    assignments = ASSIGNORS[name](members, counts)
    assert assignments.keys() == members.keys()
    found = [
        (topic_id, partition)
        for member_id, each in assignments.items()
        for topic_id, partitions in each.items()
        for partition in partitions
        if topic_id in members[member_id].topics
    ]
    subscribed = {topic_id for each in members.values() for topic_id in each.topics}
    expected = [(t, p) for t, count in counts.items() if t in subscribed for p in range(count)]
    assert sorted(found) == sorted(expected)
    assert all(partitions for each in assignments.values() for partitions in each.values())
    assert sum(sizes(assignments).values()) == len(expected)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
@settings(max_examples=20, deadline=None)
def test_result_does_not_depend_on_the_order_of_members(
    name: str, group: tuple[Assignees, PartitionCounts]
) -> None:
    members, counts = group
    backwards = dict(reversed(list(members.items())))
    counts_backwards = dict(reversed(list(counts.items())))
    assert ASSIGNORS[name](members, counts) == ASSIGNORS[name](backwards, counts_backwards)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_group_without_members(name: str) -> None:
    assert ASSIGNORS[name]({}, {A: 3}) == {}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_member_without_topics_gets_nothing(name: str) -> None:
    assert ASSIGNORS[name]({"a": spec(), "b": spec(A)}, {A: 2}) == {"a": {}, "b": {A: parts(0, 1)}}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_unknown_topic_is_ignored(name: str) -> None:
    assert ASSIGNORS[name]({"a": spec(B)}, {A: 2}) == {"a": {}}


def test_uniform_is_the_default() -> None:
    assert next(iter(ASSIGNORS)) == DEFAULT_ASSIGNOR


# ---- range


def test_range_gives_consecutive_partitions() -> None:
    members = {"a": spec(A, B), "b": spec(A, B)}
    assert assign_range(members, {A: 5, B: 5}) == {
        "a": {A: parts(0, 1, 2), B: parts(0, 1, 2)},
        "b": {A: parts(3, 4), B: parts(3, 4)},
    }


def test_range_with_fewer_partitions_than_members() -> None:
    members = {"a": spec(A), "b": spec(A), "c": spec(A)}
    assert assign_range(members, {A: 2}) == {"a": {A: parts(0)}, "b": {A: parts(1)}, "c": {}}


def test_range_divides_each_topic_among_its_subscribers() -> None:
    members = {"a": spec(A), "b": spec(A, B), "c": spec(B)}
    assert assign_range(members, {A: 3, B: 3}) == {
        "a": {A: parts(0, 1)},
        "b": {A: parts(2), B: parts(0, 1)},
        "c": {B: parts(2)},
    }


def test_range_orders_static_members_by_instance_id_and_first() -> None:
    members = {
        "a": spec(A),
        "y": spec(A, instance_id="i2"),
        "z": spec(A, instance_id="i1"),
    }
    assert assign_range(members, {A: 3}) == {
        "z": {A: parts(0)},
        "y": {A: parts(1)},
        "a": {A: parts(2)},
    }


# ---- uniform


def test_uniform_gives_equal_numbers_over_all_topics() -> None:
    members = {"a": spec(A, B), "b": spec(A, B)}
    assert sizes(assign_uniform(members, {A: 1, B: 3})) == {"a": 2, "b": 2}


def test_uniform_keeps_everything_if_it_is_balanced() -> None:
    members = {
        "a": owning((A,), {A: parts(1, 3)}),
        "b": owning((A,), {A: parts(0, 2)}),
    }
    assert assign_uniform(members, {A: 4}) == {"a": {A: parts(1, 3)}, "b": {A: parts(0, 2)}}


def test_uniform_lets_the_larger_member_keep_the_extra_partition() -> None:
    members = {
        "a": owning((A,), {A: parts(0)}),
        "b": owning((A,), {A: parts(1, 2)}),
    }
    assert assign_uniform(members, {A: 3}) == {"a": {A: parts(0)}, "b": {A: parts(1, 2)}}


def test_uniform_moves_as_few_partitions_as_possible_to_a_new_member() -> None:
    members = {
        "a": owning((A,), {A: parts(0, 1, 2)}),
        "b": owning((A,), {A: parts(3, 4, 5)}),
        "c": spec(A),
    }
    after = assign_uniform(members, {A: 6})
    assert sizes(after) == {"a": 2, "b": 2, "c": 2}
    assert after["a"][A] < parts(0, 1, 2)
    assert after["b"][A] < parts(3, 4, 5)


def test_uniform_gives_partitions_of_a_lost_member_to_the_others() -> None:
    members = {"a": owning((A,), {A: parts(0, 1)}), "b": owning((A,), {A: parts(2, 3)})}
    after = assign_uniform(members, {A: 6})
    assert sizes(after) == {"a": 3, "b": 3}
    assert after["a"][A] > parts(0, 1)


def test_uniform_revokes_topics_that_are_no_longer_subscribed() -> None:
    members = {"a": owning((B,), {A: parts(0, 1), B: parts(0)})}
    assert assign_uniform(members, {A: 2, B: 1}) == {"a": {B: parts(0)}}


def test_uniform_drops_partitions_that_do_not_exist() -> None:
    assert assign_uniform({"a": owning((A,), {A: parts(0, 7)})}, {A: 1}) == {"a": {A: parts(0)}}


def test_uniform_assigns_a_partition_with_two_owners_once() -> None:
    members = {"a": owning((A,), {A: parts(0, 1)}), "b": owning((A,), {A: parts(0, 1)})}
    assert sizes(assign_uniform(members, {A: 2})) == {"a": 1, "b": 1}


def test_uniform_with_different_subscriptions_balances_over_topics() -> None:
    members = {"a": spec(A), "b": spec(A, B), "c": spec(B, C)}
    after = assign_uniform(members, {A: 2, B: 2, C: 2})
    assert sizes(after) == {"a": 2, "b": 2, "c": 2}
    assert after["a"] == {A: parts(0, 1)}
    assert after["c"] == {C: parts(0, 1)}


def test_uniform_with_different_subscriptions_moves_from_large_to_small() -> None:
    members = {"a": owning((A, B), {A: parts(0, 1, 2, 3), B: parts(0)}), "b": spec(A)}
    after = assign_uniform(members, {A: 4, B: 1})
    assert sizes(after) == {"a": 3, "b": 2}
    assert after["a"][B] == parts(0)


@given(group=groups())
@settings(max_examples=60, deadline=None)
def test_uniform_is_balanced_and_stable(group: tuple[Assignees, PartitionCounts]) -> None:
    members, counts = group
    first = assign_uniform(members, counts)
    size = sizes(first)
    for giver, assignment in first.items():
        for taker, spec_of_taker in members.items():
            if assignment.keys() & spec_of_taker.topics:
                assert size[giver] <= size[taker] + 1
    assert reassign(members, first, counts) == first


def assign_step_by_step(members: Assignees, counts: PartitionCounts, owners: Owners) -> None:
    """The rule of assign_to_least_loaded: compares all subscribers of each partition."""
    sizes = {each: list(owners.values()).count(each) for each in sorted(members)}
    subscribers = {each: [m for m in sizes if each in members[m].topics] for each in counts}
    order = sorted(
        all_partitions(counts), key=lambda each: (len(subscribers[each[0]]), -counts[each[0]])
    )
    for partition in order:
        if partition not in owners:
            owners[partition] = min(subscribers[partition[0]], key=sizes.__getitem__)
            sizes[owners[partition]] += 1
    has_moved = True
    while has_moved:
        has_moved = False
        for partition in order:
            before = owners[partition]
            after = min(subscribers[partition[0]], key=sizes.__getitem__)
            if sizes[before] > sizes[after] + 1:
                owners[partition] = after
                sizes[before] -= 1
                sizes[after] += 1
                has_moved = True


@given(group=groups())
@settings(max_examples=200, deadline=None)
def test_uniform_with_different_subscriptions_follows_the_rule(
    group: tuple[Assignees, PartitionCounts],
) -> None:
    members, all_counts = group
    subscribed = {topic_id for each in members.values() for topic_id in each.topics}
    counts = {each: count for each, count in all_counts.items() if each in subscribed}
    expected = kept_partitions(members, counts)
    found = dict(expected)
    assign_step_by_step(members, counts, expected)
    assign_to_least_loaded(members, counts, found)
    assert found == expected


class CountingId(str):
    """A member id that counts how often a dict looks one up."""

    __slots__ = ()
    lookups = 0

    def __hash__(self) -> int:
        CountingId.lookups += 1
        return super().__hash__()


def test_uniform_looks_up_few_members_for_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    members: dict[str, AssigneeSpec] = {
        CountingId(f"m{at:03}"): spec(A, B) if at % 2 else spec(A) for at in range(200)
    }
    monkeypatch.setattr(CountingId, "lookups", 0)
    after = assign_uniform(members, {A: 400, B: 400})
    assert set(sizes(after).values()) == {4}
    assert CountingId.lookups < 20 * (200 + 800)


@given(st.integers(1, 8), st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_uniform_moves_only_the_share_of_a_joining_member(count: int, partitions: int) -> None:
    members = {f"m{at}": spec(A) for at in range(count)}
    before = assign_uniform(members, {A: partitions})
    after = reassign({**members, "new": spec(A)}, before, {A: partitions})
    assert moved(before, after) == sizes(after)["new"]


@given(st.integers(2, 8), st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_uniform_moves_nothing_else_after_a_member_left(count: int, partitions: int) -> None:
    members = {f"m{at}": spec(A) for at in range(count)}
    before = assign_uniform(members, {A: partitions})
    del members["m0"]
    assert moved(before, reassign(members, before, {A: partitions})) == 0
