"""Every input that is refused, with its code, and which of two errors is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest

from barnabas.controller.topic_checks import (
    PARTITIONS_MAX,
    TopicDefaults,
    TopicSpec,
    check_added_partitions,
    check_new_topic,
)
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.topic_names import TakenNames
from barnabas.model import Broker, BrokerId
from tests.unit.controller.cluster import broker, ids, replica_assignment

THREE = [broker(1), broker(2), broker(3)]
PARTLY_RACKED = [broker(1, "a"), broker(2)]


def check(
    name: str = "t",
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    assignments: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str | None] | None = None,
    brokers: Sequence[Broker] = THREE,
    in_cache: Sequence[str] = (),
    in_registry: Sequence[str] = (),
    marked: Sequence[str] = (),
) -> tuple[tuple[BrokerId, ...], ...]:
    return check_new_topic(
        TopicSpec(
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            assignments=assignments,
            configs=configs or {},
        ),
        brokers=brokers,
        in_cache=in_cache,
        in_registry=TakenNames(in_registry),
        marked_for_deletion=marked,
        defaults=TopicDefaults(partitions=2, replication_factor=3),
        random=Random(1),
    )


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "with space", "ä"])
def test_illegal_names(name: str) -> None:
    assert refusal(name) is ErrorCode.INVALID_TOPIC_EXCEPTION


def refusal(name: str = "t", **wish: object) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        check(name, **wish)  # type: ignore[arg-type]
    assert refused.value.message
    return refused.value.code


EXISTS = ErrorCode.TOPIC_ALREADY_EXISTS
BAD_ASSIGNMENT = ErrorCode.INVALID_REPLICA_ASSIGNMENT

ROWS: list[tuple[str, dict[str, object], ErrorCode]] = [
    ("exists in the cache", {"in_cache": ["t"]}, EXISTS),
    ("exists in the registry", {"in_registry": ["t"]}, EXISTS),
    ("marked for deletion", {"marked": ["t"]}, EXISTS),
    ("no partitions", {"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
    ("fewer than none", {"partitions": -2}, ErrorCode.INVALID_PARTITIONS),
    ("too many", {"partitions": PARTITIONS_MAX + 1}, ErrorCode.POLICY_VIOLATION),
    ("no replicas", {"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ("fewer than that", {"replication_factor": -2}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ("more than brokers", {"replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ("no broker at all", {"brokers": []}, ErrorCode.INVALID_REPLICATION_FACTOR),
    (
        "racks for some",
        {"brokers": PARTLY_RACKED, "replication_factor": 1},
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    ("both", {"partitions": 1, "assignments": {0: [1]}}, ErrorCode.INVALID_REQUEST),
    ("both", {"replication_factor": 1, "assignments": {0: [1]}}, ErrorCode.INVALID_REQUEST),
    ("null config", {"configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
    ("unequal numbers", {"assignments": {0: [1, 2], 1: [1]}}, BAD_ASSIGNMENT),
    ("a broker twice", {"assignments": {0: [1, 1]}}, BAD_ASSIGNMENT),
    ("a gap", {"assignments": {0: [1], 2: [1]}}, BAD_ASSIGNMENT),
    ("the right sum", {"assignments": {-1: [1], 0: [1], 3: [1]}}, BAD_ASSIGNMENT),
    ("unknown broker", {"assignments": {0: [9]}}, BAD_ASSIGNMENT),
    ("nobody", {"assignments": {0: []}}, BAD_ASSIGNMENT),
    ("no partition", {"assignments": {}}, BAD_ASSIGNMENT),
]


@pytest.mark.parametrize(("what", "wish", "code"), ROWS)
def test_every_row_of_the_table(what: str, wish: dict[str, object], code: ErrorCode) -> None:
    assert refusal(**wish) is code, what  # type: ignore[arg-type]


def test_names_that_differ_by_a_dot_collide() -> None:
    assert refusal("a.b", in_registry=["a_b"]) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert check("a.b", in_registry=["a-b", "ab"])


# Each is wrong in its own way and right in all others; an earlier one is told before every later one.
IN_ORDER: list[tuple[dict[str, object], ErrorCode]] = [
    ({"in_cache": ["bad name"]}, EXISTS),
    ({"configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
    ({"replication_factor": 9}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ({"name": "bad name"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
]


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_the_earlier_of_several_errors_is_told(first: int) -> None:
    wish: dict[str, object] = {"name": "bad name"}
    for each, _ in IN_ORDER[first:]:
        wish |= each
    assert refusal(**wish) is IN_ORDER[first][1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wish", "part_of_message"),
    [
        ({"assignments": {0: [1, 1], 2: [9]}, "partitions": 1}, "not both"),
        ({"assignments": {0: [1, 1], 2: [9]}, "marked": ["t"], "in_registry": ["t"]}, "marked"),
        ({"assignments": {0: [1, 1], 2: [9]}, "in_registry": ["t"]}, "already exists"),
        ({"assignments": {0: [1, 1], 2: [9]}}, "same number"),
        ({"assignments": {0: [1, 1], 2: [9, 8]}}, "twice"),
        ({"assignments": {0: [1, 2], 2: [9, 8]}}, "numbered"),
        ({"assignments": {0: [1, 2], 1: [9, 8]}}, "no broker 8"),
    ],
)
def test_the_order_for_assignments(wish: dict[str, object], part_of_message: str) -> None:
    with pytest.raises(ApiError, match=part_of_message):
        check(**wish)  # type: ignore[arg-type]


def test_a_collision_is_told_before_a_bad_assignment() -> None:
    code = refusal("a.b", in_registry=["a_b"], assignments={0: [1, 1]})
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_an_illegal_name_is_told_before_a_bad_assignment() -> None:
    assert refusal("bad name", assignments={0: [1, 1]}) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_defaults_and_counts_are_placed() -> None:
    placed = check()
    assert [sorted(each) for each in placed] == [[1, 2, 3]] * 2
    assert len(check(partitions=5, replication_factor=1)) == 5


def test_an_assignment_is_taken_as_it_is() -> None:
    assert check(assignments={1: [3, 1], 0: [2, 1]}) == (ids(2, 1), ids(3, 1))


CURRENT = {0: replica_assignment(2, 3), 1: replica_assignment(3, 1)}
MOVING = {0: replica_assignment(3, 2, 1, adding=(3,), removing=(1,))}


@pytest.mark.parametrize(
    ("current", "count", "assignments", "code", "part_of_message"),
    [
        ({}, 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (MOVING, 2, [[3, 1, 2]], BAD_ASSIGNMENT, "2 replicas"),
        (CURRENT, 1, None, ErrorCode.INVALID_PARTITIONS, "higher"),
        (CURRENT, -1, None, ErrorCode.INVALID_PARTITIONS, "higher"),
        (CURRENT, 2, [[9]], ErrorCode.INVALID_PARTITIONS, "already"),
        (CURRENT, 3, [[9], [1, 1]], BAD_ASSIGNMENT, "no broker 9"),
        (CURRENT, 3, [[1, 2], [2, 3]], BAD_ASSIGNMENT, "2 assignments"),
        (CURRENT, 4, [[], [1, 1]], BAD_ASSIGNMENT, "at least one"),
        (CURRENT, 4, [[1, 1], [1]], BAD_ASSIGNMENT, "twice"),
        (CURRENT, 4, [[1, 2], [1]], BAD_ASSIGNMENT, "2 replicas"),
        ({1: replica_assignment(1)}, 2, None, ErrorCode.UNKNOWN_SERVER_ERROR, "partition 0"),
    ],
)
def test_what_is_refused_when_a_topic_grows(
    current: dict[int, object],
    count: int,
    assignments: list[list[int]] | None,
    code: ErrorCode,
    part_of_message: str,
) -> None:
    with pytest.raises(ApiError, match=part_of_message) as refused:
        check_added_partitions(
            current,  # type: ignore[arg-type]
            count=count,
            assignments=assignments,
            brokers=THREE,
        )
    assert refused.value.code is code


def test_a_topic_grows_by_itself_or_as_it_is_told() -> None:
    grown = check_added_partitions(CURRENT, count=4, assignments=None, brokers=THREE)
    assert grown == (ids(1, 3), ids(2, 3))
    assigned = check_added_partitions(CURRENT, count=3, assignments=[[1, 2]], brokers=THREE)
    assert assigned == (ids(1, 2),)


def test_topic_with_unfinished_reassignment_grows_by_partitions_of_its_target_size() -> None:
    (grown,) = check_added_partitions(MOVING, count=2, assignments=None, brokers=THREE)
    assert len(grown) == 2
    assigned = check_added_partitions(MOVING, count=2, assignments=[[1, 2]], brokers=THREE)
    assert assigned == (ids(1, 2),)


def test_topic_that_removes_all_its_replicas_grows_by_their_number() -> None:
    (grown,) = check_added_partitions(
        {0: replica_assignment(1, 2, removing=(1, 2))}, count=2, assignments=None, brokers=THREE
    )
    assert len(grown) == 2


def test_a_topic_does_not_grow_over_brokers_of_which_some_have_racks() -> None:
    with pytest.raises(ApiError) as refused:
        check_added_partitions(
            {0: replica_assignment(1)}, count=2, assignments=None, brokers=PARTLY_RACKED
        )
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
