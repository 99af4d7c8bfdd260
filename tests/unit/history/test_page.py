"""The report page as text. tests/integration/test_lifecycle_page.py opens it in a browser."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from markupsafe import escape

from barnabas.history.page import affected_topics, render_page
from barnabas.history.timeline import (
    BROKER_LANES_MAX,
    LANES_MAX,
    LANES_MIN,
    TICKS_MAX,
    Scale,
    lanes_of,
    merge_outages,
    scale_of,
    topics_shown,
)
from tests.lifecycle_document import HOSTILE, at, broker, outage, problem, sample


def test_names_from_the_cluster_are_escaped() -> None:
    shown = render_page(sample())
    assert HOSTILE not in shown
    assert str(escape(HOSTILE)) in shown
    assert shown.count("<script>") == 1


def test_control_characters_from_the_cluster_are_escaped() -> None:
    hostile = "\"'></script>\n\x1b[31m\x9b\u202e\u2028\ud800"
    document = sample()
    for table in ("topics", "creations", "deletions", "outages", "incidents", "slowest_steps"):
        for row in document[table]:
            for field in {"topic", "by", "host", "why", "cause", "step"} & row.keys():
                row[field] = hostile
    document["bootstrap_servers"] = hostile
    document["problems"] = [problem(hostile)]
    shown = render_page(document)
    shown.encode()
    assert all(line.isprintable() for line in shown.split("\n"))
    assert hostile not in shown
    assert shown.count("</script>") == 1
    shown_name = escape("\"'></script>\\n\\x1b[31m\\x9b\\u202e\\u2028\\ud800")
    assert f'title="{shown_name}"' in shown


def test_page_loads_nothing() -> None:
    shown = render_page(sample())
    assert re.findall(r"https?:|//[a-z]|@import|url\(", re.sub(r"\s//.*", "", shown)) == []
    assert re.findall(r'(?:src|href)="([^"]*)"', shown) == ["data:,"]


def test_alert_precedes_all_other_sections() -> None:
    shown = render_page(sample())
    alert = shown.index("Needs attention")
    assert alert < shown.index("<h2>Timeline")
    assert (
        "<b>late-0</b>: no leader: its only replica is on broker 2, which is down" in shown[alert:]
    )
    assert "start broker 2 again; <code>barnabas brokers explain 2</code>" in shown[alert:]


def test_healthy_page_has_no_alert() -> None:
    document = sample()
    healthy = {
        **document,
        "topics": [{**row, "offline_now": 0} for row in document["topics"]],
        "deletions": [row for row in document["deletions"] if row["state"] == "done"],
        "incidents": [],
        "outages": [],
        "problems": [],
    }
    shown = render_page(healthy)
    assert "Needs attention" not in shown
    assert "No partition was without a leader." in shown


def test_timeline_shows_the_most_eventful_topics() -> None:
    few = topics_shown(sample()["topics"])
    assert [row["topic"] for row in few[:4]] == ["doomed", "late", "orders", "reborn"]
    assert len(few) == LANES_MIN
    many = topics_shown([{**row, "leader_moves": 1} for row in sample()["topics"]])
    assert len(many) == LANES_MAX
    shown = render_page(sample())
    brokers, others = 3, 3  # controllers, incidents, the axis
    assert shown.count('<div class="lane') == brokers + others + len(few)
    assert "the 12 most affected topics, of 66" in shown


def test_overlapping_outages_are_one_mark() -> None:
    rows = [outage("a", 0, 100, 200), outage("a", 1, 150, 300), outage("a", 2, 400, None)]
    first, second = merge_outages(rows, at(10_000))
    assert (first.start, first.until, first.partitions) == (at(100), at(300), {0, 1})
    assert (second.start, second.until, second.partitions) == (at(400), None, {2})
    assert "partitions 0, 1" in first.title
    assert "ongoing" in second.title


def test_causes_and_ongoing_outages_use_plain_words() -> None:
    shown = render_page(sample())
    for text in ("broker 2 failed", "2.0 s so far", ">ongoing</span>", "request to leaders"):
        assert text in shown
    assert '<th class="n wide">requested</th>' in shown
    for text in ("BrokersChanged", ">lasts<", "wish"):
        assert text not in shown


@pytest.mark.parametrize(
    ("length", "texts"),
    [
        (timedelta(milliseconds=9), ["07:59:59.998", "08:00:00.000", "08:00:00.002"]),
        (timedelta(seconds=8), ["08:00:00", "08:00:02", "08:00:04"]),
        (timedelta(seconds=58), ["07:59:50", "08:00:00", "08:00:10"]),
        (timedelta(minutes=70), ["07:50", "08:00", "08:10"]),
        (timedelta(hours=20), ["06:00", "09:00", "12:00"]),
        (timedelta(days=3), ["05-01 00:00", "05-01 12:00", "05-02 00:00"]),
        (timedelta(days=7), ["04-30", "05-01", "05-02"]),
    ],
)
def test_ticks_are_at_round_times(length: timedelta, texts: list[str]) -> None:
    start = at(0) - length / 5
    ticks = list(Scale(start=start, end=start + length).ticks())
    assert [tick.text for tick in ticks[: len(texts)]] == texts
    assert 3 <= len(ticks) <= TICKS_MAX
    assert 0 <= ticks[0].offset_ms <= ticks[1].offset_ms - ticks[0].offset_ms


def test_brokers_have_lanes_with_the_times_they_were_down() -> None:
    document = sample()
    lanes = {lane.name: lane for lane in lanes_of(document, scale_of(document))}
    assert [mark.kind for mark in lanes["broker 2"].marks] == ["up", "failed", "up"]
    assert [mark.kind for mark in lanes["broker 3"].marks] == ["up", "shut-down", "up"]
    failed = lanes["broker 2"].marks[1]
    assert failed.end_ms - failed.start_ms == 5000
    assert failed.text == "broker 2: failed since 2026-05-01 08:00:01.000, 5.0 s"
    assert lanes["broker 1"].kind == "broker bad"
    assert lanes["broker 1"].marks[-1].text.endswith("5.0 s so far")


def test_brokers_that_were_down_have_the_first_lanes_of_many() -> None:
    document = sample()
    document["brokers"] = [broker(number, "up", 0, None) for number in range(50)]
    document["brokers"].append(broker(70, "failed", 0, None))
    names = [lane.name for lane in lanes_of(document, scale_of(document))]
    shown = [name for name in names if name.startswith("broker ")]
    assert len(shown) == BROKER_LANES_MAX
    assert shown[-1] == "broker 70"


def test_partitions_of_an_incident_are_grouped_by_topic() -> None:
    rows = [outage("a", 0, 100, 200), outage("b", 1, 100, 300), outage("b", 0, 100, None)]
    rows.append(outage("c", 0, 100, 200, incident=2))
    found = affected_topics({"incident": 1}, rows)
    assert [(row["topic"], row["partitions"], row["is_ongoing"]) for row in found] == [
        ("b", {0, 1}, True),
        ("a", {0}, False),
    ]
