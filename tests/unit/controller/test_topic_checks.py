"""Validation of new topics and partitions: error codes and their precedence."""

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
def test_invalid_names_are_rejected(name: str) -> None:
    assert rejection(name) is ErrorCode.INVALID_TOPIC_EXCEPTION


def rejection(name: str = "t", **options: object) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        check(name, **options)  # type: ignore[arg-type]
    assert refused.value.message
    return refused.value.code


EXISTS = ErrorCode.TOPIC_ALREADY_EXISTS
BAD_ASSIGNMENT = ErrorCode.INVALID_REPLICA_ASSIGNMENT

REJECTED: list[tuple[str, dict[str, object], ErrorCode]] = [
    ("exists in the cache", {"in_cache": ["t"]}, EXISTS),
    ("exists in the registry", {"in_registry": ["t"]}, EXISTS),
    ("marked for deletion", {"marked": ["t"]}, EXISTS),
    ("no partitions", {"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
    ("negative partitions", {"partitions": -2}, ErrorCode.INVALID_PARTITIONS),
    ("too many partitions", {"partitions": PARTITIONS_MAX + 1}, ErrorCode.POLICY_VIOLATION),
    ("no replicas", {"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ("negative replicas", {"replication_factor": -2}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ("more replicas than brokers", {"replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ("no broker at all", {"brokers": []}, ErrorCode.INVALID_REPLICATION_FACTOR),
    (
        "racks on some brokers",
        {"brokers": PARTLY_RACKED, "replication_factor": 1},
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    (
        "assignment and partitions",
        {"partitions": 1, "assignments": {0: [1]}},
        ErrorCode.INVALID_REQUEST,
    ),
    (
        "assignment and replicas",
        {"replication_factor": 1, "assignments": {0: [1]}},
        ErrorCode.INVALID_REQUEST,
    ),
    ("null config", {"configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
    ("unequal replica counts", {"assignments": {0: [1, 2], 1: [1]}}, BAD_ASSIGNMENT),
    ("duplicate broker", {"assignments": {0: [1, 1]}}, BAD_ASSIGNMENT),
    ("gap in partitions", {"assignments": {0: [1], 2: [1]}}, BAD_ASSIGNMENT),
    ("gap with the right sum", {"assignments": {-1: [1], 0: [1], 3: [1]}}, BAD_ASSIGNMENT),
    ("unknown broker", {"assignments": {0: [9]}}, BAD_ASSIGNMENT),
    ("no replica", {"assignments": {0: []}}, BAD_ASSIGNMENT),
    ("no partition", {"assignments": {}}, BAD_ASSIGNMENT),
]


@pytest.mark.parametrize(("reason", "options", "code"), REJECTED)
def test_invalid_topic_is_rejected_with_code(
    reason: str, options: dict[str, object], code: ErrorCode
) -> None:
    assert rejection(**options) is code, reason  # type: ignore[arg-type]


def test_names_that_differ_by_dot_or_underscore_collide() -> None:
    assert rejection("a.b", in_registry=["a_b"]) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert check("a.b", in_registry=["a-b", "ab"])


# Each entry is wrong in one way only; an earlier entry takes precedence over all later ones.
BY_PRECEDENCE: list[tuple[dict[str, object], ErrorCode]] = [
    ({"in_cache": ["bad name"]}, EXISTS),
    ({"configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
    ({"replication_factor": 9}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ({"name": "bad name"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
]


@pytest.mark.parametrize("first", range(len(BY_PRECEDENCE)))
def test_first_of_several_errors_is_reported(first: int) -> None:
    options: dict[str, object] = {"name": "bad name"}
    for each, _ in BY_PRECEDENCE[first:]:
        options |= each
    assert rejection(**options) is BY_PRECEDENCE[first][1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "part_of_message"),
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
def test_precedence_of_assignment_errors(options: dict[str, object], part_of_message: str) -> None:
    with pytest.raises(ApiError, match=part_of_message):
        check(**options)  # type: ignore[arg-type]


def test_collision_precedes_bad_assignment() -> None:
    code = rejection("a.b", in_registry=["a_b"], assignments={0: [1, 1]})
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_invalid_name_precedes_bad_assignment() -> None:
    assert rejection("bad name", assignments={0: [1, 1]}) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_replicas_are_placed_by_defaults_or_counts() -> None:
    placed = check()
    assert [sorted(each) for each in placed] == [[1, 2, 3]] * 2
    assert len(check(partitions=5, replication_factor=1)) == 5


def test_assignment_is_used_unchanged() -> None:
    assert check(assignments={1: [3, 1], 0: [2, 1]}) == (ids(2, 1), ids(3, 1))


CURRENT = {0: replica_assignment(2, 3), 1: replica_assignment(3, 1)}
REASSIGNED = {0: replica_assignment(3, 2, 1, adding=(3,), removing=(1,))}


@pytest.mark.parametrize(
    ("current", "count", "assignments", "code", "part_of_message"),
    [
        ({}, 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (REASSIGNED, 0, None, ErrorCode.REASSIGNMENT_IN_PROGRESS, "partition 0"),
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
def test_invalid_expansion_is_rejected(
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


def test_expansion_is_placed_or_assigned() -> None:
    grown = check_added_partitions(CURRENT, count=4, assignments=None, brokers=THREE)
    assert grown == (ids(1, 3), ids(2, 3))
    assigned = check_added_partitions(CURRENT, count=3, assignments=[[1, 2]], brokers=THREE)
    assert assigned == (ids(1, 2),)


def test_expansion_with_racks_on_some_brokers_is_rejected() -> None:
    with pytest.raises(ApiError) as refused:
        check_added_partitions(
            {0: replica_assignment(1)}, count=2, assignments=None, brokers=PARTLY_RACKED
        )
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
