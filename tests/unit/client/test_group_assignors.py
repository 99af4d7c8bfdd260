from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.group_assignors import (
    Assignments,
    MemberSubscription,
    assign_cooperative_sticky,
    assign_range,
    flatten,
    to_topic_partitions,
)
from barnabas.model import TopicPartition
from barnabas.wire.consumer_protocol import ConsumerSubscription


def candidates(
    topics: Mapping[str, str], owned: Assignments | None = None, generation: int = 1
) -> list[MemberSubscription]:
    return [
        MemberSubscription(
            member,
            ConsumerSubscription(
                tuple(names.split()),
                None,
                to_topic_partitions((owned or {}).get(member, ())),
                generation,
            ),
        )
        for member, names in topics.items()
    ]


def numbers(shares: Assignments) -> dict[str, list[int]]:
    return {member: [partition.partition for partition in each] for member, each in shares.items()}


def partitions(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("orders", number) for number in numbers]


def test_range_assigns_contiguous_partitions() -> None:
    shares = assign_range(candidates({"b": "orders", "a": "orders"}), {"orders": 5})
    assert numbers(shares) == {"a": [0, 1, 2], "b": [3, 4]}


def test_range_assigns_each_topic_to_its_subscribers() -> None:
    shares = assign_range(
        candidates({"a": "x y", "b": "y gone", "c": ""}), {"x": 1, "y": 2, "unread": 3}
    )
    assert shares == {
        "a": [TopicPartition("x", 0), TopicPartition("y", 0)],
        "b": [TopicPartition("y", 1)],
        "c": [],
    }


def test_range_orders_static_members_first() -> None:
    named = MemberSubscription("z-9", ConsumerSubscription(("orders",)), instance_id="worker-1")
    (other,) = candidates({"a": "orders"})
    assert numbers(assign_range([other, named], {"orders": 2})) == {"a": [1], "z-9": [0]}


def test_sticky_keeps_fair_share_and_withholds_moved_partitions() -> None:
    owned = {"a": partitions(0, 1, 2), "b": partitions(3, 4)}
    members = candidates({"a": "orders", "b": "orders", "c": "orders"}, owned)
    first = assign_cooperative_sticky(members, {"orders": 5})
    assert numbers(first) == {"a": [0, 1], "b": [3, 4], "c": []}
    members = candidates({"a": "orders", "b": "orders", "c": "orders"}, first, generation=2)
    second = assign_cooperative_sticky(members, {"orders": 5})
    assert numbers(second) == {"a": [0, 1], "b": [3, 4], "c": [2]}


def test_newer_generation_owns_the_partition() -> None:
    (late,) = candidates({"a": "orders"}, {"a": partitions(0)}, generation=7)
    (early,) = candidates({"b": "orders"}, {"b": partitions(0, 1)}, generation=6)
    shares = assign_cooperative_sticky([early, late], {"orders": 2})
    assert numbers(shares) == {"a": [0], "b": [1]}


def test_partition_claimed_twice_in_one_generation_is_free() -> None:
    both = candidates(
        {"a": "orders", "b": "orders"}, {"a": partitions(0), "b": partitions(0)}, generation=3
    )
    assert sorted(map(len, assign_cooperative_sticky(both, {"orders": 1}).values())) == [0, 1]


def test_deleted_or_unsubscribed_partitions_are_dropped() -> None:
    owned = {"a": [*partitions(0, 9), TopicPartition("bills", 0)]}
    shares = assign_cooperative_sticky(
        candidates({"a": "orders"}, owned), {"orders": 1, "bills": 1}
    )
    assert shares == {"a": partitions(0)}


counts = st.dictionaries(st.sampled_from("xyz"), st.integers(0, 7))
subscriptions = st.dictionaries(
    st.sampled_from("abcdef"), st.sets(st.sampled_from("xyz")).map(" ".join), min_size=1
)


@given(subscriptions, subscriptions, counts)
def test_sticky_assigns_every_partition_once_and_fairly(
    before: dict[str, str], after: dict[str, str], topics: dict[str, int]
) -> None:
    shares = assign_cooperative_sticky(candidates(before), topics)
    rounds = 2 if len(set(after.values())) == 1 else 4
    for generation in range(1, rounds + 1):
        owned = shares
        shares = assign_cooperative_sticky(candidates(after, owned, generation), topics)
        for member in owned.keys() & after.keys():
            kept = {p for p in owned[member] if p.topic in after[member].split()}
            taken = {p for other, theirs in shares.items() if other != member for p in theirs}
            assert not taken & kept, "a partition was assigned before its owner revoked it"
    readable = {
        TopicPartition(topic, number)
        for topic, count in topics.items()
        for number in range(count)
        if any(topic in names.split() for names in after.values())
    }
    assert sorted(p for each in shares.values() for p in each) == sorted(readable)
    for giver, given_to in shares.items():
        for taker, names in after.items():
            if len(shares[giver]) - len(shares[taker]) >= 2:
                assert not any(p.topic in names.split() for p in given_to)
    again = assign_cooperative_sticky(candidates(after, shares, generation=9), topics)
    assert again == shares, "a balanced assignment is stable"


def test_grouping_and_flattening_are_inverse() -> None:
    some = [TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("a", 1)]
    assert flatten(to_topic_partitions(some)) == sorted(some)
