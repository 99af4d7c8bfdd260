"""Goals of the planner: examples, and properties of every plan."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from barnabas.errors import ApiError
from barnabas.model import TopicPartition
from barnabas.reassignment.goals import (
    balance_all,
    change_replication_factor,
    drain_brokers,
    fill_brokers,
    move_to_brokers,
)
from barnabas.reassignment.layout import Layout, broker_loads
from barnabas.reassignment.plan import build_plan
from tests.unit.reassignment.layouts import layout_of, layouts, naive_assignment, tp

Targets = Mapping[TopicPartition, tuple[int, ...]]


def apply(layout: Layout, targets: Targets) -> dict[TopicPartition, tuple[int, ...]]:
    return {**layout.assignment, **targets}


def replica_counts(layout: Layout, targets: Targets) -> list[int]:
    loads = broker_loads(layout, apply(layout, targets), layout.brokers)
    return [load.replicas for load in loads.values()]


def leader_counts(layout: Layout, targets: Targets) -> list[int]:
    loads = broker_loads(layout, apply(layout, targets), layout.brokers)
    return [load.leaders for load in loads.values()]


def is_even(counts: list[int]) -> bool:
    return max(counts) - min(counts) <= 1


def racks_of(layout: Layout, replicas: tuple[int, ...]) -> int:
    return len({layout.brokers.get(broker) or broker for broker in replicas})


# ---- examples


def test_added_broker_gets_one_replica_of_each_other_broker() -> None:
    rows = "a-0 1,2 · a-1 2,3 · a-2 3,1 · a-3 1,3 · a-4 2,1 · a-5 3,2"
    layout = layout_of(rows, brokers=dict.fromkeys([1, 2, 3, 4]))
    targets = fill_brokers(layout, [4])
    assert replica_counts(layout, targets) == [3, 3, 3, 3]
    assert is_even(leader_counts(layout, targets))
    plan = build_plan(layout, targets)
    assert {copy.destination for copy in plan.copies} == {4}
    assert len(plan.copies) == 3


def test_drained_broker_keeps_no_replica_and_other_partitions_stay() -> None:
    layout = layout_of("a-0 1,2 · a-1 2,3 · a-2 3,1", brokers=dict.fromkeys([1, 2, 3, 4]))
    targets = drain_brokers(layout, [3])
    assert targets == {tp("a-1"): (2, 4), tp("a-2"): (4, 1)}


def test_broker_that_is_down_can_be_drained() -> None:
    layout = layout_of(
        "a-0 1,3 · a-1 3,2", brokers={1: None, 2: None}, isr={"a-0": (1,), "a-1": (2,)}
    )
    assert drain_brokers(layout, [3]) == {tp("a-0"): (1, 2), tp("a-1"): (2, 1)}


def test_drain_needs_a_broker_for_every_replica() -> None:
    layout = layout_of("a-0 1,2,3")
    with pytest.raises(ApiError, match="a-0 has 3 replicas, but only 2 brokers would be left"):
        drain_brokers(layout, [3])


def test_unknown_brokers_are_rejected_by_name() -> None:
    layout = layout_of("a-0 1,2")
    for goal in (move_to_brokers, fill_brokers, drain_brokers):
        with pytest.raises(ApiError, match=r"broker 9 .*; live brokers: 1, 2"):
            goal(layout, [9])


def test_broker_with_replicas_that_is_down_cannot_be_a_target() -> None:
    layout = layout_of("a-0 1,2", brokers={1: None})
    with pytest.raises(ApiError, match="broker 2 is not alive"):
        move_to_brokers(layout, [1, 2])


def test_replicas_on_given_brokers_stay() -> None:
    layout = layout_of("a-0 1,2 · a-1 2,1", brokers=dict.fromkeys([1, 2, 3]))
    targets = move_to_brokers(layout, [2, 3])
    assert apply(layout, targets) == {tp("a-0"): (3, 2), tp("a-1"): (2, 3)}


def test_large_replicas_are_spread_over_brokers() -> None:
    layout = layout_of(
        "a-0 1 · a-1 1 · a-2 2 · a-3 2", sizes={"a-0": 500, "a-1": 500, "a-2": 10, "a-3": 10}
    )
    targets = balance_all(layout)
    loads = broker_loads(layout, apply(layout, targets), layout.brokers)
    assert [load.size for load in loads.values()] == [510, 510]
    assert build_plan(layout, targets).copied_bytes == 510


def test_exchange_that_moves_much_for_little_is_not_made() -> None:
    layout = layout_of("a-0 1 · a-1 2", sizes={"a-0": 1000, "a-1": 800})
    assert balance_all(layout) == {}


def test_leaders_are_balanced_without_copies() -> None:
    layout = layout_of("a-0 1,2 · a-1 1,2 · a-2 1,2 · a-3 1,2")
    targets = balance_all(layout)
    assert leader_counts(layout, targets) == [2, 2]
    assert build_plan(layout, targets).copies == []


def test_balance_leaves_replicas_on_brokers_that_are_down() -> None:
    layout = layout_of(
        "a-0 1,3 · a-1 1,3", brokers={1: None, 2: None}, isr={"a-0": (1,), "a-1": (1,)}
    )
    assert all(3 in replicas for replicas in apply(layout, balance_all(layout)).values())


def test_partition_on_one_rack_is_moved_to_two() -> None:
    layout = layout_of("a-0 1,2", brokers={1: "x", 2: "x", 3: "y"})
    assert balance_all(layout) == {tp("a-0"): (1, 3)}


def test_added_replicas_use_other_racks() -> None:
    layout = layout_of("a-0 1", brokers={1: "x", 2: "x", 3: "y"})
    assert change_replication_factor(layout, 2) == {tp("a-0"): (1, 3)}


def test_removed_replica_is_down_or_out_of_sync() -> None:
    layout = layout_of("a-0 1,2,3", isr={"a-0": (3, 1)})
    assert change_replication_factor(layout, 2) == {tp("a-0"): (1, 3)}


def test_last_in_sync_replica_is_kept() -> None:
    layout = layout_of("a-0 1,2,3", isr={"a-0": (3,)})
    (target,) = change_replication_factor(layout, 1).values()
    assert target == (3,)


def test_replication_factor_needs_that_many_live_brokers() -> None:
    layout = layout_of("a-0 1,2,3", brokers={1: None, 2: None}, isr={"a-0": (1, 2)})
    with pytest.raises(
        ApiError, match="replication factor 3 needs 3 live brokers; live brokers: 1, 2"
    ):
        change_replication_factor(layout, 3)


# ---- properties


def check_plan(layout: Layout, targets: Targets, *, factor: int | None = None) -> None:
    for partition, target in targets.items():
        assert len(set(target)) == len(target), "no broker twice"
        before = layout.partitions[partition].replicas
        assert len(target) == (factor or len(before)), "the replication factor is kept"
        assert set(target) - set(before) <= layout.brokers.keys(), (
            "new replicas are on live brokers"
        )
    build_plan(layout, targets)


@given(layouts())
def test_balance_is_even_within_one_replica(layout: Layout) -> None:
    targets = balance_all(layout)
    check_plan(layout, targets)
    assert is_even(replica_counts(layout, targets))


@given(layouts(uniform=True))
def test_balance_is_even_within_one_leader(layout: Layout) -> None:
    assert is_even(leader_counts(layout, balance_all(layout)))


@given(layouts())
def test_balanced_cluster_stays_as_it_is(layout: Layout) -> None:
    targets = balance_all(layout)
    balanced = layout_with(layout, targets)
    assert balance_all(balanced) == {}


@given(layouts())
def test_plans_are_deterministic(layout: Layout) -> None:
    shuffled = Layout(
        brokers=dict(reversed(list(layout.brokers.items()))),
        partitions=dict(reversed(list(layout.partitions.items()))),
    )
    assert balance_all(layout) == balance_all(shuffled)


@given(layouts(with_racks=True))
def test_balance_uses_as_many_racks_as_possible(layout: Layout) -> None:
    targets = balance_all(layout)
    check_plan(layout, targets)
    racks = len(set(layout.brokers.values()))
    for replicas in apply(layout, targets).values():
        assert racks_of(layout, replicas) >= min(len(replicas), racks)


@given(layouts(with_racks=True), st.data())
def test_drained_broker_is_empty_and_only_its_bytes_move(
    layout: Layout, data: st.DataObject
) -> None:
    drained = data.draw(st.sampled_from(sorted(layout.brokers)))
    assume(all(len(each.replicas) < len(layout.brokers) for each in layout.partitions.values()))
    targets = drain_brokers(layout, [drained])
    check_plan(layout, targets)
    assert all(drained not in replicas for replicas in apply(layout, targets).values())
    before = broker_loads(layout, layout.assignment, [drained])[drained]
    assert build_plan(layout, targets).copied_bytes == before.size
    racks = len({rack for each, rack in layout.brokers.items() if each != drained})
    for partition, target in targets.items():
        spread = racks_of(layout, layout.partitions[partition].replicas)
        assert racks_of(layout, target) >= min(len(target), racks, spread)


@given(layouts(), st.data())
def test_plan_for_given_brokers_uses_only_these(layout: Layout, data: st.DataObject) -> None:
    widest = max(len(each.replicas) for each in layout.partitions.values())
    chosen = data.draw(st.sets(st.sampled_from(sorted(layout.brokers)), min_size=widest))
    targets = move_to_brokers(layout, chosen)
    check_plan(layout, targets)
    loads = broker_loads(layout, apply(layout, targets), layout.brokers)
    assert all(load.replicas == 0 for broker, load in loads.items() if broker not in chosen)
    assert is_even([loads[broker].replicas for broker in chosen])


@given(layouts(uniform=True, max_brokers=5))
def test_added_broker_gets_its_share_and_nothing_else_moves(layout: Layout) -> None:
    balanced = layout_with(layout, balance_all(layout))
    grown = Layout(brokers={**balanced.brokers, 9: None}, partitions=balanced.partitions)
    targets = fill_brokers(grown, [9])
    check_plan(grown, targets)
    assert {copy.destination for copy in build_plan(grown, targets).copies} <= {9}
    assert is_even(replica_counts(grown, targets))


@given(layouts(), st.data())
def test_replication_factor_is_reached(layout: Layout, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, len(layout.brokers)))
    targets = change_replication_factor(layout, factor)
    check_plan(layout, targets, factor=factor)
    assert all(len(replicas) == factor for replicas in apply(layout, targets).values())


@given(layouts())
def test_balance_copies_no_more_replicas_than_any_even_plan(layout: Layout) -> None:
    """Sizes are equal, so that only counts matter. Kafka's own assignment is one of the even plans."""
    equal = layout_with(layout, {}, size=100)
    naive = naive_assignment(equal)
    assume(is_even(replica_counts(equal, naive)))
    assert (
        build_plan(equal, balance_all(equal)).copied_bytes <= build_plan(equal, naive).copied_bytes
    )


@pytest.mark.parametrize("added", [1, 2])
def test_added_broker_moves_fewer_bytes_than_kafkas_assignment(added: int) -> None:
    rows = " · ".join(f"a-{number} {number % 3 + 1},{(number + 1) % 3 + 1}" for number in range(12))
    brokers = dict.fromkeys(range(1, 4 + added))
    sizes = {f"a-{number}": 100 * (number + 1) for number in range(12)}
    layout = layout_of(rows, brokers=brokers, sizes=sizes)
    naive = build_plan(layout, naive_assignment(layout))
    for targets in (fill_brokers(layout, range(4, 4 + added)), balance_all(layout)):
        assert build_plan(layout, targets).copied_bytes < naive.copied_bytes


def layout_with(layout: Layout, targets: Targets, size: int | None = None) -> Layout:
    """Return the layout after the targets are reached; with one size for all partitions, if given."""
    from msgspec.structs import replace

    return Layout(
        brokers=layout.brokers,
        partitions={
            each: replace(
                placed,
                replicas=(replicas := tuple(targets.get(each, placed.replicas))),
                isr=replicas,
                leader=replicas[0],
                size=placed.size if size is None else size,
            )
            for each, placed in layout.partitions.items()
        },
    )
