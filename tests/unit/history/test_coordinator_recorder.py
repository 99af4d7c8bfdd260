from __future__ import annotations

from barnabas.history import coordinator_recorder
from barnabas.history.coordinator_event import GroupEvent, read_coordinator_event
from tests.unit.history.coordinator_events import RUN, CoordinatorEventList

FACTS = {
    "coordinator_epoch": 3,
    "protocol": "classic",
    "generation": 4,
    "members": 2,
    "after": "rebalanced",
    "why": "member a left",
    "member": None,
}


def test_event_is_identified_by_broker_run_and_sequence() -> None:
    found = CoordinatorEventList()
    found.recorder.record_group("billing", FACTS)
    found.recorder.record_group('"\né', FACTS)
    first, second = (read_coordinator_event(each.line.encode()) for each in found.lines)
    assert isinstance(first, GroupEvent)
    assert first.key == (2, RUN, 1)
    assert first.order == (3, RUN, 1)
    assert (first.group, first.generation, first.why) == ("billing", 4, "member a left")
    assert isinstance(second, GroupEvent)
    assert (second.group, second.key) == ('"\né', (2, RUN, 2))
    assert found.events[0] == {
        "at": "2026-05-01T08:00:00.123Z",
        "broker": 2,
        "run": RUN,
        "sequence": 1,
        "role": "group coordinator",
        "what": "group",
        "id": "billing",
        "group": "billing",
        **{name: value for name, value in FACTS.items() if value is not None},
        "result": "done",
    }


def test_burst_of_events_is_limited_and_counted() -> None:
    found = CoordinatorEventList()
    for number in range(coordinator_recorder.BURST_MAX + 500):
        found.recorder.record_group(f"g{number}", FACTS)
    assert len(found.lines) == coordinator_recorder.BURST_MAX
    found.clock.at_ms += 2000
    for number in range(10):
        found.recorder.record_group(f"later{number}", FACTS)
    assert [(event["id"], event.get("left_out")) for event in found.events[-2:]] == [
        ("later0", 500),
        ("later1", None),
    ]
    found.clock.at_ms -= 60_000  # a clock that is set back allows no more events
    found.recorder.record_group("g", FACTS)
    assert found.events[-1]["id"] == "later1"


def test_long_line_is_left_out() -> None:
    found = CoordinatorEventList()
    found.recorder.record_group("g" * 20_000, FACTS)
    found.recorder.record_group("g", FACTS)
    assert found.facts("id", "left_out") == [("g", 1)]


def test_marker_has_no_transactional_id() -> None:
    found = CoordinatorEventList()
    producer = {"producer_id": 7, "producer_epoch": 0, "after": "aborted"}
    found.recorder.record_marker("orders-0", producer)
    found.recorder.record_transaction("t", producer)
    fields = found.facts("role", "id", "partition", "transactional_id")
    assert fields == [
        ("leader", "orders-0", "orders-0", None),
        ("transaction coordinator", "t", None, "t"),
    ]
