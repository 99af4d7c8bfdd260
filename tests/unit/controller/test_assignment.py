"""Replica assignment: Kafka's worked examples and general invariants."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.assignment import (
    alternate_racks,
    assign_at_random,
    assign_replicas,
    continue_assignment,
    is_being_reassigned,
    origin_replicas,
    reassign_to,
    target_replicas,
    with_replica,
    without_replica,
)
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import Broker, BrokerId
from tests.unit.controller.cluster import broker, ids, replica_assignment

SIX = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
FOUR = {0: "a", 1: "a", 2: "b", 3: "b"}


def brokers(*numbers: int) -> list[Broker]:
    return [broker(number) for number in numbers]


def brokers_on_racks(racks: dict[int, str]) -> list[Broker]:
    return [broker(number, rack) for number, rack in racks.items()]


def rows(text: str) -> tuple[tuple[BrokerId, ...], ...]:
    """Parse `0,1 · 1,2` as the replicas of partitions."""
    return tuple(ids(*map(int, row.split(","))) for row in text.split("·"))


def test_five_brokers_ten_partitions_three_replicas() -> None:
    placed = assign_replicas(
        brokers(0, 1, 2, 3, 4), partitions=10, replication_factor=3, start=0, shift=0
    )
    assert placed == rows(
        "0,1,2 · 1,2,3 · 2,3,4 · 3,4,0 · 4,0,1 · 0,2,3 · 1,3,4 · 2,4,0 · 3,0,1 · 4,1,2"
    )


def test_three_brokers_six_partitions_with_other_start() -> None:
    placed = assign_replicas(brokers(0, 1, 2), partitions=6, replication_factor=3, start=2, shift=1)
    assert placed == rows("2,1,0 · 0,2,1 · 1,0,2 · 2,0,1 · 0,1,2 · 1,2,0")


def test_assignment_uses_list_position_not_broker_id() -> None:
    placed = assign_replicas(brokers(7, 1, 3), partitions=4, replication_factor=2, start=1, shift=1)
    assert placed == rows("3,1 · 7,3 · 1,7 · 3,7")


def test_one_broker_and_one_replica() -> None:
    assert assign_replicas(
        brokers(5), partitions=3, replication_factor=1, start=0, shift=0
    ) == rows("5 · 5 · 5")


def test_racks_alternate() -> None:
    assert alternate_racks({BrokerId(b): rack for b, rack in SIX.items()}) == [0, 3, 1, 5, 4, 2]
    assert alternate_racks({BrokerId(b): rack for b, rack in FOUR.items()}) == [0, 2, 1, 3]
    uneven = {0: "b", 1: "b", 2: "b", 3: "a"}
    assert alternate_racks({BrokerId(b): rack for b, rack in uneven.items()}) == [3, 0, 1, 2]


def test_six_brokers_on_three_racks() -> None:
    placed = assign_replicas(
        brokers_on_racks(SIX), partitions=7, replication_factor=3, start=0, shift=0
    )
    assert placed == rows("0,3,1 · 3,1,5 · 1,5,4 · 5,4,2 · 4,2,0 · 2,0,3 · 0,4,2")


def test_four_brokers_on_two_racks() -> None:
    placed = assign_replicas(
        brokers_on_racks(FOUR), partitions=5, replication_factor=2, start=0, shift=0
    )
    assert placed == rows("0,2 · 2,1 · 1,3 · 3,0 · 0,3")


def test_racks_on_some_brokers_only_are_rejected() -> None:
    some = [broker(0, "a"), broker(1), broker(2, "b"), broker(3)]
    with pytest.raises(ApiError) as refused:
        assign_replicas(some, partitions=1, replication_factor=1, start=0, shift=0)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "1, 3" in refused.value.message


def test_expansion_continues_from_first_partition() -> None:
    grown = continue_assignment(
        brokers(0, 1, 2, 3), first_replicas=ids(2, 3, 0, 1), current=1, total=7
    )
    assert grown == rows("3,2,0,1 · 0,3,1,2 · 1,0,2,3 · 2,3,0,1 · 3,0,1,2 · 0,1,2,3")
    grown = continue_assignment(brokers(0, 1, 2, 3), first_replicas=ids(1, 2), current=1, total=3)
    assert grown == rows("2,0 · 3,1")


def test_expansion_starts_at_next_broker_if_first_is_gone() -> None:
    three = brokers(1, 3, 7)
    from_next = continue_assignment(three, first_replicas=ids(2), current=1, total=2)
    assert from_next == rows("7")
    from_first = continue_assignment(three, first_replicas=ids(9), current=1, total=2)
    assert from_first == rows("3")


@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)).filter(lambda each: each[0] >= each[1]),
    partitions=st.integers(1, 60),
    seed=st.integers(),
    racks=st.integers(0, 4),
)
def test_replicas_are_distinct_and_spread_over_racks_and_leaders(
    sizes: tuple[int, int], partitions: int, seed: int, racks: int
) -> None:
    count, replication_factor = sizes
    rack_of = {BrokerId(b): f"r{b % racks}" if racks else None for b in range(count)}
    placed = assign_at_random(
        [broker(b, rack) for b, rack in rack_of.items()],
        partitions=partitions,
        replication_factor=replication_factor,
        random=Random(seed),
    )
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == replication_factor
        if racks:
            used = {rack_of[each] for each in replicas}
            assert len(used) == min(replication_factor, len(set(rack_of.values())))
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(b, 0) for b in rack_of) <= 1


@given(st.integers(1, 8), st.integers(1, 20), st.data())
def test_expansion_equals_assignment_of_larger_topic(
    count: int, more: int, data: st.DataObject
) -> None:
    # Only within one round over the brokers: later the shift has grown by an unknown amount.
    first = data.draw(st.integers(1, count))
    replication_factor = data.draw(st.integers(1, count))
    start = data.draw(st.integers(0, count - 1))
    some = brokers(*range(count))
    at_once = assign_replicas(
        some,
        partitions=first + more,
        replication_factor=replication_factor,
        start=start,
        shift=start,
    )
    grown = continue_assignment(some, first_replicas=at_once[0], current=first, total=first + more)
    assert grown == at_once[first:]


def test_reassignment_keeps_origin_and_target() -> None:
    moving = reassign_to(replica_assignment(1, 2, 3), ids(4, 5, 6))
    assert moving == replica_assignment(4, 5, 6, 1, 2, 3, adding=(4, 5, 6), removing=(1, 2, 3))
    assert origin_replicas(moving) == ids(1, 2, 3)
    assert target_replicas(moving) == ids(4, 5, 6)
    assert is_being_reassigned(moving)
    assert not is_being_reassigned(replica_assignment(1, 2))


def test_second_reassignment_starts_from_first_origin() -> None:
    again = reassign_to(reassign_to(replica_assignment(1, 2), ids(3, 4)), ids(2, 5))
    assert again == replica_assignment(2, 5, 1, adding=(5,), removing=(1,))


def test_cancelled_reassignment_restores_origin() -> None:
    moving = reassign_to(replica_assignment(1, 2), ids(3, 2))
    assert reassign_to(moving, origin_replicas(moving)) == replica_assignment(2, 1)


def test_replica_is_appended_and_removed_from_all_lists() -> None:
    assert with_replica(replica_assignment(1, 2), BrokerId(3)) == replica_assignment(1, 2, 3)
    moving = replica_assignment(3, 1, 2, adding=(3,), removing=(1,))
    assert without_replica(moving, BrokerId(3)) == replica_assignment(1, 2, removing=(1,))
    assert without_replica(moving, BrokerId(1)) == replica_assignment(3, 2, adding=(3,))
