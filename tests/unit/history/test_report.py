from __future__ import annotations

import json

from barnabas.cli.history.report_text import report_text
from barnabas.history.report import json_types
from barnabas.history.words import (
    cause_name,
    describe_cause,
    format_duration,
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


def test_cause_of_an_outage_names_the_failed_brokers() -> None:
    assert describe_cause("BrokersChanged#17", [3]) == "broker 3 failed"
    assert describe_cause("BrokersChanged#17", [2, 3]) == "brokers 2, 3 failed"
    assert describe_cause("BrokersChanged#17", [None]) == "brokers changed"
    assert describe_cause("TopicsChanged#5", [3]) == "TopicsChanged"
    assert describe_cause(None) == ""
