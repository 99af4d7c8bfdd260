"""Plans: the reasons against them, the bytes they copy, their duration, and batches."""

from __future__ import annotations

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.reassignment.layout import BrokerLoad
from barnabas.reassignment.plan import ReplicaCopy, build_plan, find_problems
from tests.unit.reassignment.layouts import layout_of, tp

LAYOUT = layout_of(
    "a-0 1,2 · a-1 2,3 · a-2 3,1",
    brokers={1: None, 2: None, 3: None, 4: None},
    sizes={"a-0": 100, "a-1": 200, "a-2": 400},
)


def test_plan_lists_copies_and_skips_unchanged_partitions() -> None:
    plan = build_plan(LAYOUT, {tp("a-2"): (4, 1), tp("a-0"): (1, 2), tp("a-1"): (3, 2)})
    assert plan.targets == {tp("a-1"): (3, 2), tp("a-2"): (4, 1)}
    assert plan.copies == [ReplicaCopy(tp("a-2"), source=3, destination=4, size=400)]
    assert plan.copied_bytes == 400
    assert plan.reordered == [tp("a-1")]


def test_duration_is_that_of_the_busiest_broker() -> None:
    plan = build_plan(LAYOUT, {tp("a-0"): (4, 2), tp("a-1"): (4, 3), tp("a-2"): (2, 1)})
    assert plan.seconds_at(100) == 4.0  # broker 3 sends 400 bytes of a-2; broker 4 receives 300
    assert build_plan(LAYOUT, {}).seconds_at(100) == 0


def test_loads_compare_before_and_after() -> None:
    loads = build_plan(LAYOUT, {tp("a-2"): (4, 1)}).loads()
    assert loads[3] == (BrokerLoad(1, 2, 600), BrokerLoad(0, 1, 200))
    assert loads[4] == (BrokerLoad(0, 0, 0), BrokerLoad(1, 1, 400))


def test_batches_keep_the_order() -> None:
    targets = {tp(f"a-{number}"): (4,) for number in range(3)}
    plan = build_plan(LAYOUT, targets)
    assert [list(batch) for batch in plan.batches(2)] == [[tp("a-0"), tp("a-1")], [tp("a-2")]]
    assert list(plan.batches(None)) == [targets]


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ((), "a-0 would have no replica"),
        ((1, 1), "a-0 would have two replicas on broker 1"),
        ((1, 9), "a-0 would move to broker 9, which does not exist"),
        ((-1,), "a-0 would move to broker -1, which does not exist"),
    ],
)
def test_invalid_targets_are_refused(target: tuple[int, ...], problem: str) -> None:
    assert find_problems(LAYOUT, {tp("a-0"): target}) == [problem]


def test_unknown_partition_is_refused() -> None:
    assert find_problems(LAYOUT, {tp("b-7"): (1,)}) == ["b-7 does not exist"]


def test_broker_that_is_down_is_no_target() -> None:
    layout = layout_of("a-0 1,2 · a-1 1,3", brokers={1: None, 2: None}, isr={"a-1": (1,)})
    assert find_problems(layout, {tp("a-0"): (1, 3)}) == [
        "a-0 would move to broker 3, which is not alive"
    ]


def test_plan_that_loses_the_last_in_sync_replica_is_refused() -> None:
    layout = layout_of("a-0 1,2,3", isr={"a-0": (3,)})
    assert find_problems(layout, {tp("a-0"): (1, 2)}) == [
        "a-0 would lose its last in-sync replica, on broker 3"
    ]
    assert find_problems(layout, {tp("a-0"): (1, 3)}) == []


def test_partition_without_leader_cannot_be_copied() -> None:
    layout = layout_of("a-0 3", brokers={1: None}, isr={"a-0": (3,)})
    assert find_problems(layout, {tp("a-0"): (1,)}) == [
        "a-0 has no leader: new replicas have nothing to copy from"
    ]


def test_single_replica_can_move_while_its_broker_lives() -> None:
    layout = layout_of("a-0 1", brokers={1: None, 2: None})
    assert find_problems(layout, {tp("a-0"): (2,)}) == []


def test_error_names_the_first_problems() -> None:
    targets = {tp(f"b-{number}"): (1,) for number in range(7)}
    with pytest.raises(ApiError) as caught:
        build_plan(LAYOUT, targets)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert caught.value.message.startswith("b-0 does not exist; b-1 does not exist; ")
    assert caught.value.message.endswith("b-4 does not exist; and 2 more problems")
