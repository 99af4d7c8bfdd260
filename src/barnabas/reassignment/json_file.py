"""Kafka's JSON for reassignments: `{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2]}]}`.

`log_dirs` is optional: one directory per replica, or "any". Other fields are ignored. The messages are those of Kafka's
tool, because scripts look for them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition
from barnabas.reassignment.layout import Assignment, ReplicaIds

ANY_LOG_DIR = "any"
VERSION = 1
INT32 = range(-(2**31), 2**31)
TOPIC_CHARACTERS_MAX = 1000
"""Longer names are rejected before they are sent. A topic name has at most 249 characters."""
SURROGATE = re.compile(r"[\ud800-\udfff]")
"""JSON may contain half of a surrogate pair, which UTF-8 cannot encode."""


class InvalidReassignmentJson(BarnabasError):
    """The JSON cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ReassignmentFile(NamedTuple):
    """Parsed JSON, in the order of the file. A partition may be repeated: `check_reassignment_file` rejects that.

    `log_dirs` maps (partition, broker) to the requested directory.
    """

    targets: list[tuple[TopicPartition, ReplicaIds]]
    log_dirs: dict[tuple[TopicPartition, int], str]


def parse_reassignment_json(text: str) -> ReassignmentFile:
    """Parse the JSON. Raises InvalidReassignmentJson."""
    targets: list[tuple[TopicPartition, ReplicaIds]] = []
    log_dirs: dict[tuple[TopicPartition, int], str] = {}
    for item in json_list(parse_versioned_json(text), "partitions"):
        partition = TopicPartition(
            json_field(item, "topic", str), json_field(item, "partition", int)
        )
        replicas = tuple(json_field(item, "replicas", list))
        directories = item.get("log_dirs", [ANY_LOG_DIR] * len(replicas))
        if not is_list_of(directories, str) or any(map(SURROGATE.search, directories)):
            raise InvalidReassignmentJson(
                f"log_dirs must be a list of directories in {json.dumps(item)}"
            )
        if len(directories) != len(replicas):
            raise InvalidReassignmentJson(
                f"Size of replicas list {list(replicas)} is different from size of log dirs list "
                f"{java_list(directories)} for partition {partition}"
            )
        targets.append((partition, replicas))
        for broker, directory in zip(replicas, directories, strict=True):
            if directory != ANY_LOG_DIR:
                log_dirs[partition, broker] = directory
    return ReassignmentFile(targets, log_dirs)


def check_reassignment_file(found: ReassignmentFile) -> dict[TopicPartition, ReplicaIds]:
    """Return the targets. Raises InvalidReassignmentJson if they are empty or ambiguous."""
    if not found.targets:
        raise InvalidReassignmentJson("Partition reassignment list cannot be empty")
    if any(not replicas for _, replicas in found.targets):
        raise InvalidReassignmentJson("Partition replica list cannot be empty")
    repeated = duplicates([partition for partition, _ in found.targets])
    if repeated:
        raise InvalidReassignmentJson(
            f"Partition reassignment contains duplicate topic partitions: {','.join(map(str, repeated))}"
        )
    doubled = [
        f"{partition} contains multiple entries for {','.join(map(str, duplicates(replicas)))}"
        for partition, replicas in found.targets
        if duplicates(replicas)
    ]
    if doubled:
        raise InvalidReassignmentJson(
            f"Partition replica lists may not contain duplicate entries: {'. '.join(doubled)}"
        )
    return dict(found.targets)


def parse_topics_json(text: str) -> list[str]:
    """Parse `{"topics":[{"topic":"orders"}],"version":1}`. Raises InvalidReassignmentJson."""
    return [
        json_field(item, "topic", str) for item in json_list(parse_versioned_json(text), "topics")
    ]


def reassignment_document(
    assignment: Assignment, log_dirs: Mapping[tuple[TopicPartition, int], str] | None = None
) -> dict[str, Any]:
    """Return the assignment in Kafka's format, ordered by partition."""
    directories = log_dirs or {}
    return {
        "version": VERSION,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(replicas),
                "log_dirs": [directories.get((partition, each), ANY_LOG_DIR) for each in replicas],
            }
            for partition, replicas in sorted(assignment.items())
        ],
    }


def parse_versioned_json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidReassignmentJson(f"The input string is not a valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidReassignmentJson("The input string is not a JSON object")
    version = found.get("version", VERSION)
    if version != VERSION:
        raise InvalidReassignmentJson(f"Not supported version field value {version}")
    return found


def json_list(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    items = found.get(name, [])
    if not is_list_of(items, dict):
        raise InvalidReassignmentJson(f"{name} must be a list of objects")
    return items  # type: ignore[no-any-return]


def is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


def json_field(item: dict[str, Any], name: str, kind: type) -> Any:
    """Return a field that a request can carry: a string in UTF-8, a 32-bit integer, or a list of such integers."""
    value = item.get(name)
    if type(value) is not kind or not is_encodable_value(value):
        expected = {str: "a string", int: "a 32-bit integer", list: "a list of broker ids"}[kind]
        raise InvalidReassignmentJson(f"{name} must be {expected} in {json.dumps(item)}")
    return value


def is_encodable_value(value: Any) -> bool:
    match value:
        case str():
            return len(value) <= TOPIC_CHARACTERS_MAX and not SURROGATE.search(value)
        case int():
            return value in INT32
        case _:
            return all(type(each) is int and each in INT32 for each in value)


def duplicates(values: Iterable[Any]) -> list[Any]:
    return sorted(each for each, count in Counter(values).items() if count > 1)


def java_list(values: list[Any]) -> str:
    return f"[{', '.join(map(str, values))}]"
