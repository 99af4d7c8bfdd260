from __future__ import annotations

import json
from typing import get_args

from barnabas.cli.history.report_text import report_text
from barnabas.controller.events import ControllerEvent
from barnabas.history.report import is_failover, json_types
from barnabas.history.words import (
    CAUSES,
    cause_name,
    describe_cause,
    format_duration,
    format_outage,
    format_time,
    step_name,
    topic_label,
)
from tests.lifecycle_document import at, sample


def test_worst_rows_come_first() -> None:
    document = sample()
    assert [row["topic"] for row in document["topics"]][:3] == ["doomed", "late", "orders"]
    assert [row["state"] for row in document["deletions"]] == ["stuck", "done"]
    assert [row["until"] is None for row in document["outages"]] == [True, False, False]
    # The first is not finished.
    assert [row["ms"] for row in document["creations"]] == [None, 60, 30]


def test_document_is_json_with_times_as_in_events() -> None:
    document = json.loads(json.dumps(json_types(sample())))
    assert document["history"] == {
        "from": "2026-05-01T08:00:00.000Z",
        "until": "2026-05-01T08:00:08.000Z",
        "events": 90,
    }
    assert document["summary"]["failovers"] == 2


def test_controller_that_returns_is_no_failover() -> None:
    election = {"previous": 1, "controller": 1, "elected_at": "2026-05-01T08:00:00.000Z"}
    assert not is_failover(election)
    assert is_failover(election | {"previous": 2})


def test_text_names_the_problems_within_100_columns() -> None:
    text = report_text(sample())
    assert "1 partition OFFLINE now" in text
    assert "1 deletion STUCK" in text
    assert "the return of broker 2" in text
    assert "topics (the 20 most affected of 66)" in text
    assert max(map(len, text.splitlines())) <= 100


def test_durations_have_at_most_two_units() -> None:
    texts = [
        format_duration(ms)
        for ms in (0, 999, 1000, 59_900, 60_000, 3_599_999, 3_600_000, 90_000_000)
    ]
    assert texts == ["0 ms", "999 ms", "1.0 s", "59.9 s", "1 min", "59 min 59 s", "1 h", "1 d 1 h"]
    assert format_duration(None) == ""


def test_names_are_readable() -> None:
    assert format_time(at(123)) == "2026-05-01 08:00:00.123"
    assert topic_label({"topic": "a", "life": 1}) == "a"
    assert [topic_label({"topic": "a", "life": life}) for life in (2, 3, 11, 12, 22, 101)] == [
        *("a (2nd)", "a (3rd)", "a (11th)", "a (12th)", "a (22nd)", "a (101st)"),
    ]
    assert step_name("the return of a broker", 3) == "the return of broker 3"
    assert step_name("LeaderAndIsr", 2) == "broker 2: LeaderAndIsr"
    assert step_name("an election", None) == "an election"
    assert cause_name("BrokersChanged#17") == "BrokersChanged"
    assert cause_name(None) == ""


def test_causes_are_in_words() -> None:
    assert describe_cause("ControlledShutdownReceived#17") == "controlled shutdown"
    assert describe_cause("PreferredElectionRequested#5") == "preferred election"
    assert describe_cause("LogDirFailed#5", 3) == "failed log directory of broker 3"
    assert describe_cause("Future#5") == "Future"
    assert describe_cause(None) == ""


def test_every_event_of_the_controller_has_words() -> None:
    handled = {each.__name__ for each in get_args(ControllerEvent)}
    silent = {"ListReassignmentsReceived"}
    assert handled - silent <= CAUSES.keys()


def test_duration_of_outage_says_whether_it_is_ongoing_and_when_it_was_noticed() -> None:
    assert format_outage(2300, 6000, is_ongoing=False) == "2.3 s, up to +6 s until noticed"
    assert format_outage(2300, 400, is_ongoing=True) == (
        "2.3 s so far, ongoing, up to +0.4 s until noticed"
    )
    assert format_outage(75_000, None, is_ongoing=False) == "1 min 15 s"
