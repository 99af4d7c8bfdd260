"""Kafka's JSON for reassignments."""

from __future__ import annotations

import json

import pytest

from barnabas.reassignment.json_file import (
    InvalidReassignmentJson,
    check_reassignment_file,
    parse_reassignment_json,
    parse_topics_json,
    reassignment_document,
)
from tests.unit.reassignment.layouts import tp


def test_document_round_trips() -> None:
    assignment = {tp("b-1"): (2, 1), tp("a-0"): (1, 2)}
    log_dirs = {(tp("a-0"), 2): "/data/x"}
    document = reassignment_document(assignment, log_dirs)
    assert document["partitions"][0] == {
        "topic": "a", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/data/x"],
    }  # fmt: skip
    found = parse_reassignment_json(json.dumps(document))
    assert check_reassignment_file(found) == assignment
    assert found.log_dirs == log_dirs


def test_unknown_fields_and_missing_version_are_accepted() -> None:
    text = '{"partitions":[{"topic":"a","partition":0,"replicas":[1],"x":1}],"moved_bytes":7}'
    assert parse_reassignment_json(text).targets == [(tp("a-0"), (1,))]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "not a valid JSON"),
        ("[]", "not a JSON object"),
        ('{"version":2}', "Not supported version field value 2"),
        (
            r'{"partitions":[{"topic":"\ud800","partition":0,"replicas":[1]}]}',
            "topic must be a string",
        ),
        ('{"partitions":[{"topic":"a","partition":2147483648,"replicas":[1]}]}', "32-bit integer"),
        ('{"partitions":[{"topic":"a","partition":0,"replicas":[4294967296]}]}', "broker ids"),
        ('{"partitions":[{"topic":"a","partition":0}]}', "replicas must be a list"),
        (
            '{"partitions":[{"topic":"a","partition":"0","replicas":[1]}]}',
            "partition must be a 32-bit integer",
        ),
        (
            '{"partitions":[{"topic":"a","partition":0,"replicas":["1"]}]}',
            "replicas must be a list of broker ids",
        ),
        (
            '{"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any"]}]}',
            r"Size of replicas list \[1, 2\] is different from size of log dirs list \[any\]",
        ),
        *(
            (
                f'{{"partitions":[{{"topic":"a","partition":0,"replicas":[1],"log_dirs":{dirs}}}]}}',
                "log_dirs must be a list of directories",
            )
            for dirs in ("5", "null", "[5]", '"any"', r'["\ud800"]')
        ),
    ],
)
def test_unusable_json_is_rejected(text: str, problem: str) -> None:
    with pytest.raises(InvalidReassignmentJson, match=problem):
        parse_reassignment_json(text)


@pytest.mark.parametrize(
    ("partitions", "problem"),
    [
        ([], "Partition reassignment list cannot be empty"),
        ([("a", 0, [])], "Partition replica list cannot be empty"),
        ([("a", 0, [1]), ("a", 0, [2])], "contains duplicate topic partitions: a-0"),
        ([("a", 0, [1, 1])], "duplicate entries: a-0 contains multiple entries for 1"),
    ],
)
def test_ambiguous_targets_are_rejected(
    partitions: list[tuple[str, int, list[int]]], problem: str
) -> None:
    items = [{"topic": t, "partition": p, "replicas": r} for t, p, r in partitions]
    with pytest.raises(InvalidReassignmentJson, match=problem):
        check_reassignment_file(parse_reassignment_json(json.dumps({"partitions": items})))


def test_topics_are_parsed() -> None:
    assert parse_topics_json('{"topics":[{"topic":"a"},{"topic":"b"}],"version":1}') == ["a", "b"]
