"""The report page as text. tests/integration/test_lifecycle_page.py opens it in a browser."""

from __future__ import annotations

import re

from markupsafe import escape

from barnabas.history.page import render_page
from barnabas.history.timeline import LANES_MAX, LANES_MIN, merge_outages, topics_shown
from tests.lifecycle_document import HOSTILE, at, outage, problem, sample


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
    assert shown.count('<div class="lane') == 2 + len(few) + 1  # controllers, incidents, the axis
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
    for text in ("broker 2 failed", "ongoing since 05-01 08:00:08", "request to leaders"):
        assert text in shown
    assert '<th class="n wide">requested</th>' in shown
    for text in ("BrokersChanged", ">lasts<", "wish"):
        assert text not in shown
