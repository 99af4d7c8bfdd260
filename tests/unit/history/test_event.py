"""Records of the history may hold any bytes: readers skip malformed events."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.history.event_output import events_text
from barnabas.cli.history.narrator import Narrator
from barnabas.cli.history.report_text import report_text
from barnabas.cli.history.timeline import TopicEvents
from barnabas.cli.terminal.output import to_yaml
from barnabas.client.consumer import ConsumedRecord
from barnabas.controller.states import PartitionState
from barnabas.history.analysis import analyse
from barnabas.history.event import (
    PartitionStateName,
    fields_of,
    read_event,
    skipped_text,
)
from barnabas.history.reader import split_epoch
from barnabas.history.report import document_of
from barnabas.history.spark_analysis import decode_item, encode_item
from barnabas.history.timeline import scale_of

HEAD = {
    "at": "2026-05-01T08:00:00.131Z",
    "broker": 1,
    "role": "controller",
    "epoch": 7,
    "sequence": 12,
    "cause": "TopicsChanged#4",
    "id": "orders-0",
    "result": "done",
}
LED = {"topic": "orders", "partition": 0, "leader": 2, "leader_epoch": 0, "isr": [2, 3, 1]}
EVENTS: dict[str, dict[str, Any]] = {
    "partition": {
        **LED,
        "before": "NewPartition",
        "after": "OnlinePartition",
        "replicas": [2, 3, 1],
        "unclean": True,
    },
    "replica": {**LED, "replica": 2, "before": "NewReplica", "after": "OnlineReplica"},
    "topic": {
        "topic": "orders",
        "after": "created",
        "by": "rdkafka",
        "host": "10.0.0.7",
        "asked_at": "2026-05-01T08:00:00.001Z",
        "partitions": 6,
        "replication_factor": 2,
        "defaults": ["num.partitions"],
        "automatic": True,
        "via": 2,
    },
    "request": {"to": 2, "topics": {"orders": "0-5", "x": "1"}, "partitions": 7, "deletes": 1},
    "answer": {"to": 2, "answers": 11, "errors": {"orders-0": "X"}, "known_already": 2},
    "controller": {"before": None, "after": 1},
}
EVENTS = {
    name: {**HEAD, "what": "request" if name == "answer" else name, **fields}
    for name, fields in EVENTS.items()
}

WORDS = st.sampled_from(
    [
        "orders",
        "done",
        "failed",
        "OnlinePartition",
        "NewReplica",
        "ONLINE",
        "2026",
        "\ud800",
        "\x1b",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=4,
)
FIELDS = sorted({key for event in EVENTS.values() for key in event})


@st.composite
def forged_events(draw: st.DrawFn) -> bytes:
    """Events with some fields replaced or removed, possibly truncated or with other bytes in them."""
    event = dict(draw(st.sampled_from(list(EVENTS.values()))))
    event["sequence"] = draw(st.integers(1, 5))
    for key in draw(st.lists(st.sampled_from(FIELDS), max_size=3)):
        if draw(st.booleans()):
            event.pop(key, None)
        else:
            event[key] = draw(VALUES)
    data = json.dumps(event).encode()
    if draw(st.integers(0, 9)) == 0:
        cut = draw(st.integers(0, len(data)))
        data = data[:cut] + draw(st.binary(max_size=4)) + data[cut + draw(st.integers(0, 4)) :]
    return data


def as_records(values: list[bytes | None]) -> list[ConsumedRecord]:
    return [
        ConsumedRecord("__state_changes", 0, offset, 0, None, value)
        for offset, value in enumerate(values)
    ]


@given(st.lists(forged_events() | st.binary(max_size=20) | st.none(), max_size=12))
def test_timeline_accepts_any_bytes(values: list[bytes | None]) -> None:
    timeline = TopicEvents("orders")
    timeline.add(as_records(values))
    events = timeline.in_order()
    document = {"topic": "orders", "events": events}
    events_text(document, Narrator("orders")).encode()
    json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    to_yaml(document).encode()
    assert timeline.malformed + len(timeline.events) + len(timeline.elections) <= len(values)


@given(st.lists(forged_events(), max_size=12))
def test_report_accepts_any_valid_events(values: list[bytes]) -> None:
    found = [event for value in values if (event := read_event(value)) is not None]
    events = {event.key: event for event in found}
    now = datetime(2026, 5, 1, 9, tzinfo=UTC)
    tables = analyse(events, now, session_timeout_ms=6000)
    assert sum(row["events"] for row in tables["elections"]) == len(events)
    if events:
        document = document_of(tables, servers="here:9092", now=now)
        assert scale_of(document).length_ms > 0
        report_text(document)


@given(forged_events() | st.binary())
def test_events_are_unchanged_between_the_stages_on_spark(value: bytes) -> None:
    event = read_event(value)
    for _, item in () if event is None else split_epoch([event]):
        assert decode_item(encode_item(item)) == item


@pytest.mark.parametrize("name", EVENTS)
def test_each_kind_of_event_is_read(name: str) -> None:
    value = json.dumps({**EVENTS[name], "later": {"version": [1]}}).encode()
    event = read_event(value)
    assert event is not None
    assert event.key == (7, 12)
    assert fields_of(value) == json.loads(value)


def test_partition_states_match_the_controller() -> None:
    assert set(get_args(PartitionStateName)) == set(PartitionState)


DEEP = b'{"later":' + b"[" * 100_000 + b"]" * 100_000 + b","
LARGE = b'{"later":' + b"9" * 5000 + b","


@pytest.mark.parametrize("start", [DEEP, LARGE], ids=["deep", "large"])
def test_event_with_unprintable_field_is_malformed(start: bytes) -> None:
    value = start + json.dumps(EVENTS["partition"]).encode()[1:]
    timeline = TopicEvents("orders")
    assert timeline.add(as_records([value])) == []
    assert timeline.malformed == 1


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("partition", {"leader": None}),
        ("partition", {"isr": "2,3"}),
        ("partition", {"partition": "0"}),
        ("partition", {"after": "online"}),
        ("partition", {"at": "then"}),
        ("partition", {"at": "0001-01-01T00:00:00Z"}),
        ("partition", {"at": "2026-05-01T08:00:00"}),
        ("partition", {"epoch": 2**40}),
        ("partition", {"sequence": 0}),
        ("replica", {"replica": [1]}),
        ("topic", {"defaults": [1]}),
        ("topic", {"partitions": "many"}),
        ("request", {"topics": ["orders"]}),
        ("request", {"topics": {"orders": 1}}),
        ("request", {"part": 13}),
        ("request", {"answers": 11}),
        ("answer", {"errors": {"orders-0": 1}}),
        ("controller", {"after": "1"}),
        ("controller", {"what": "weather"}),
    ],
)
def test_malformed_event_is_counted_and_skipped(name: str, changed: dict[str, Any]) -> None:
    wrong = json.dumps({**EVENTS[name], **changed}).encode()
    right = json.dumps(EVENTS["partition"]).encode()
    assert read_event(wrong) is None
    timeline = TopicEvents("orders")
    timeline.add(as_records([wrong, right]))
    assert timeline.malformed == 1
    assert timeline.in_order() == [EVENTS["partition"]]


@pytest.mark.parametrize(
    ("count", "text"), [(1, "skipped 1 malformed event"), (2, "skipped 2 malformed events")]
)
def test_number_of_skipped_events_is_reported(count: int, text: str) -> None:
    assert skipped_text(count) == text
