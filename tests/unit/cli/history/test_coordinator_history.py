"""The events of groups and transactional ids as text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.history.coordinator_narrator import CoordinatorNarrator
from barnabas.cli.history.coordinator_timeline import GroupEvents, TransactionEvents
from barnabas.cli.history.event_output import events_text
from barnabas.cli.history.timeline import Event, TopicEvents
from barnabas.client.consumer import ConsumedRecord
from barnabas.history.spark_analysis import key_events

HEAD = {"at": "2026-05-01T08:00:00.131Z", "broker": 2, "run": 1_777_622_400_123, "result": "done"}
GROUP = {
    **HEAD,
    "sequence": 1,
    "role": "group coordinator",
    "coordinator_epoch": 3,
    "what": "group",
    "id": "billing",
    "group": "billing",
    "protocol": "classic",
    "generation": 4,
    "members": 2,
    "after": "rebalanced",
    "why": "member a joins",
}
TRANSACTION = {
    **HEAD,
    "sequence": 2,
    "role": "transaction coordinator",
    "coordinator_epoch": 3,
    "what": "transaction",
    "id": "t",
    "transactional_id": "t",
    "producer_id": 1000,
    "producer_epoch": 5,
    "after": "aborted",
}
MARKER = {
    **HEAD,
    "sequence": 3,
    "role": "leader",
    "what": "transaction",
    "id": "orders-0",
    "partition": "orders-0",
    "producer_id": 1000,
    "producer_epoch": 5,
    "after": "aborted",
    "why": "WriteTxnMarkers",
    "by": "admin",
    "host": "10.0.0.7",
}
ELECTION = {
    "at": "2026-05-01T08:00:00.131Z",
    "broker": 1,
    "role": "controller",
    "epoch": 7,
    "sequence": 12,
    "cause": "Startup#1",
    "what": "controller",
    "id": "controller",
    "before": None,
    "after": 1,
    "result": "done",
}


def as_records(events: Iterable[dict[str, Any] | bytes]) -> list[ConsumedRecord]:
    values = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in events]
    return [
        ConsumedRecord("__state_changes", 0, offset, 0, None, value)
        for offset, value in enumerate(values)
    ]


def lines(*events: Event) -> list[str]:
    return list(CoordinatorNarrator().lines(list(events)))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "rebalanced to generation 4 with 2 members: member a joins"),
        ({"protocol": "consumer"}, "rebalanced to epoch 4 with 2 members: member a joins"),
        (
            {
                "after": "member removed",
                "member": "a-1",
                "client": "a",
                "member_host": "10.0.0.7",
                "members": 1,
                "why": "its session expired after 45000 ms",
            },
            "removed member a-1 (a at 10.0.0.7), 1 member left: its session expired after 45000 ms",
        ),
        (
            {"after": "empty", "why": "member a left"},
            "empty, the last member is gone: member a left",
        ),
        ({"after": "deleted", "why": "a client requested it"}, "deleted: a client requested it"),
        (
            {"after": "migrated", "protocol": "consumer", "why": None},
            "migrated to the consumer protocol, epoch 4 with 2 members",
        ),
        (
            {"after": "loaded", "why": None},
            "loaded by a new coordinator, classic protocol, generation 4 with 2 members",
        ),
        ({"after": "changed by a later version", "why": None}, "changed by a later version"),
    ],
)
def test_text_of_group_events(fields: Event, text: str) -> None:
    heading, line = lines({**GROUP, **fields})
    assert heading == "2026-05-01 coordinator 2, epoch 3"
    assert " ".join(line.split()) == f"08:00:00.131 {text}"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"open_ms": 12_000, "partitions": 2, "why": "timeout"},
            "aborted the transaction of producer 1000, epoch 5 (open for 12.0 s, 2 partitions): timeout",
        ),
        (
            {"why": "InitProducerId", "by": "app", "host": "10.0.0.7"},
            "aborted the transaction of producer 1000, epoch 5: InitProducerId by app at 10.0.0.7",
        ),
        ({"after": "fenced", "why": "EndTxn"}, "fenced producer 1000, epoch 5: EndTxn"),
        (
            {"after": "taken over", "partitions": 1},
            "took over the transaction of producer 1000, epoch 5 (1 partition)",
        ),
        ({"after": "expired", "why": "old"}, "expired, last producer 1000, epoch 5: old"),
        ({"after": "later"}, "later, producer 1000, epoch 5"),
    ],
)
def test_text_of_transaction_events(fields: Event, text: str) -> None:
    _, line = lines({**TRANSACTION, **fields})
    assert " ".join(line.split()) == f"08:00:00.131 {text}"


def test_text_of_a_marker_names_its_partition() -> None:
    heading, line = lines(MARKER)
    assert heading == "2026-05-01 leader 2 of partition orders-0"
    assert " ".join(line.split()) == (
        "08:00:00.131 aborted the transaction of producer 1000, epoch 5 in this partition:"
        " WriteTxnMarkers by admin at 10.0.0.7"
    )


def test_heading_is_repeated_for_another_coordinator_or_day() -> None:
    later = {**GROUP, "at": "2026-05-02T08:00:00.131Z"}
    shown = lines(GROUP, GROUP, later, {**later, "coordinator_epoch": 4, "broker": 1})
    assert [line for line in shown if not line.startswith(" ")] == [
        "2026-05-01 coordinator 2, epoch 3",
        "2026-05-02 coordinator 2, epoch 3",
        "2026-05-02 coordinator 1, epoch 4",
    ]


def test_events_of_a_group_are_deduplicated_and_ordered_by_coordinator() -> None:
    timeline = GroupEvents("billing")
    second = {**GROUP, "sequence": 1, "run": HEAD["run"], "broker": 1, "coordinator_epoch": 4}
    other = {**GROUP, "sequence": 9, "group": "other", "left_out": 7}
    added = timeline.add(as_records([second, GROUP, GROUP, other, other, TRANSACTION]))
    assert added == [second, GROUP]
    assert timeline.in_order() == [GROUP, second]
    assert (timeline.malformed, timeline.left_out) == (0, 7)


def test_markers_belong_to_the_producers_of_a_transactional_id() -> None:
    early = {**MARKER, "at": "2026-05-01T07:59:00.131Z"}
    other = {**MARKER, "sequence": 4, "producer_id": 1001}
    timeline = TransactionEvents("t")
    assert timeline.add(as_records([early, other, TRANSACTION])) == [TRANSACTION]
    assert timeline.in_order() == [early, TRANSACTION]
    known = TransactionEvents("t", [1001])
    assert known.add(as_records([early, other])) == [other]


def test_readers_of_topics_and_of_coordinators_skip_events_of_each_other() -> None:
    records = as_records([GROUP, TRANSACTION, MARKER, ELECTION, b"{"])
    topics = TopicEvents("billing")
    assert topics.add(records) == [ELECTION]
    groups = GroupEvents("billing")
    assert groups.add(records) == [GROUP]
    assert topics.malformed == groups.malformed == 1
    rows = list(key_events((record.offset, record.value) for record in records))
    assert [row[:2] for row in rows] == [(7, 12), (None, None)]


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
FIELDS = sorted({*GROUP, *TRANSACTION, *MARKER, "open_ms", "partitions", "left_out", "member"})


@given(
    st.lists(
        st.tuples(
            st.sampled_from([GROUP, TRANSACTION, MARKER]),
            st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3),
        ),
        max_size=8,
    )
)
def test_any_fields_are_shown_or_skipped(forged: list[tuple[Event, Event]]) -> None:
    records = as_records({**event, **fields} for event, fields in forged)
    for timeline in (GroupEvents("billing"), TransactionEvents("t", [1000])):
        timeline.add(records)
        events = timeline.in_order()
        events_text({"events": events}, CoordinatorNarrator()).encode(errors="surrogatepass")
        assert timeline.malformed + len(events) <= len(records)
