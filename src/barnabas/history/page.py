"""The report as a page: one file of HTML that needs nothing else, for a desk, a phone, and the dark.

What a platform engineer wants to know first stands first: is anything broken now, what was broken, who was in charge.
Whatever comes from the cluster is escaped (see `as_html`), and the page forbids itself to load or to send anything: it
may be mailed around.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime
from hashlib import sha256
from importlib.resources import files

from barnabas.history.page_tables import Cell, duration, instant, number, table
from barnabas.history.report import Document, Row, is_failover
from barnabas.history.timeline import timeline, topics_shown
from barnabas.history.words import (
    as_html,
    cause_name,
    listed,
    millis_of,
    moment,
    span,
    step_name,
    topic_name,
)

CREATIONS, OUTAGES, STEPS, TOPICS, ALERTS, NAMED = 12, 20, 12, 2000, 10, 5
"""So many rows of each; all of them are in the Parquet files."""


def page(document: Document) -> str:
    style, script = asset("page.css"), asset("page.js")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    body = "\n".join(part for part in parts(document) if part)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>Topic lifecycle report</title>
<style>
{style}</style>
</head>
<body>
{body}
<script>{script}</script>
</body>
</html>
"""


def asset(name: str) -> str:
    return files("barnabas.history").joinpath(name).read_text("utf-8")


def parts(document: Document) -> list[str]:
    return [
        header(document),
        cards(document),
        alerts(document),
        timeline_section(document),
        f'<div class="two">{elections(document)}{creations(document)}</div>',
        incidents(document),
        outages(document),
        deletions(document),
        steps(document),
        topics(document),
        FOOTER,
    ]


def header(document: Document) -> str:
    history = document["history"]
    length = span(millis_of(history["until"]) - millis_of(history["from"]))
    return (
        "<header><h1>Topic lifecycle report</h1>"
        f'<p class="dim">{as_html(document["bootstrap_servers"])} · {moment(history["from"])} to '
        f"{moment(history['until'])} UTC ({length}) · {history['events']:,} events · "
        f"made {moment(document['made_at'])[:19]} UTC</p></header>"
    )


# ---- what stands first ----------------------------------------------------------------------------------------


def cards(document: Document) -> str:
    told = document["summary"]
    offline, stuck = told["partitions_offline"], told["stuck_deletions"]
    shown = [
        card("offline now", offline, "partitions without a leader", state(offline)),
        card("stuck deletions", stuck, "wait for a broker", state(stuck)),
        card(
            "failovers", told["failovers"], took("taken over within", told["longest_takeover_ms"])
        ),
        card(
            "incidents", told["incidents"], took("no leader for up to", told["longest_outage_ms"])
        ),
        card("leader moves", told["leader_moves"], "to another broker"),
        card("topics", told["topics"], f"{told['created']:,} created, {told['deleted']:,} deleted"),
        card(
            "creation",
            span(told["median_creation_ms"]) or "–",
            took("median; the slowest", told["slowest_creation_ms"]),
        ),
    ]
    return f'<div class="cards">{"".join(shown)}</div>'


def card(name: str, value: int | str, about: str, kind: str = "") -> str:
    shown = f"{value:,}" if isinstance(value, int) else value
    return f'<div class="card {kind}">{name}<b>{shown}</b><small>{about}</small></div>'


def state(count: int) -> str:
    return "bad" if count else "good"


def took(words: str, ms: int | None) -> str:
    return f"{words} {span(ms)}" if ms is not None else "none"


def alerts(document: Document) -> str:
    lines = [*offline_lines(document), *stuck_lines(document)]
    if not lines:
        return ""
    more = len(lines) - ALERTS
    shown = lines[:ALERTS] + ([f"and {more:,} more, below"] if more > 0 else [])
    items = "".join(f"<li>{line}</li>" for line in shown)
    return f'<section class="alert"><h2>Needs somebody now</h2><ul>{items}</ul></section>'


def offline_lines(document: Document) -> list[str]:
    return [
        f"<b>{as_html(topic_name(row))}</b>: {row['offline_now']} of {row['partitions']} partitions have no leader; "
        f"<code>barnabas topics describe {as_html(row['topic'])}</code> says who could lead"
        for row in document["topics"]
        if row["offline_now"]
    ]


def stuck_lines(document: Document) -> list[str]:
    """Deletions that wait for the same brokers are one line: it is the brokers that somebody has to start."""
    waiting: dict[tuple[int, ...], list[Row]] = {}
    for row in document["deletions"]:
        if row["state"] == "stuck":
            waiting.setdefault(tuple(row["waits_for"] or ()), []).append(row)
    lines = []
    for brokers, rows in waiting.items():
        names = ", ".join(f"<b>{as_html(topic_name(row))}</b>" for row in rows[:NAMED])
        if len(rows) > NAMED:
            names += f" and {len(rows) - NAMED:,} other topics"
        longest = max(row["ms"] for row in rows)
        told = f"the deletion of {names} is stuck, for {span(longest)} by now"
        if brokers:
            who = f"broker {brokers[0]}" if len(brokers) == 1 else f"brokers {listed(brokers)}"
            told += f": start {who} again, which still has replicas to delete"
        lines.append(told)
    return lines


LEGEND = (
    ('<rect class="c1" width="22" height="12" y="3"/>', "controller"),
    ('<line class="failover" x1="11" x2="11" y1="0" y2="18"/>', "failover"),
    ('<rect class="life" width="22" height="4" y="7"/>', "life of a topic"),
    ('<line class="move" x1="11" x2="11" y1="2" y2="16"/>', "leader moved"),
    ('<rect class="outage" x="4" width="14" height="12" y="3"/>', "no leader"),
    ('<rect class="done" width="22" height="10" y="4"/>', "deletion"),
    ('<rect class="stuck" width="22" height="10" y="4"/>', "stuck"),
)


def timeline_section(document: Document) -> str:
    legend = "".join(
        f'<span><svg width="22" height="18" aria-hidden="true">{mark}</svg>{words}</span>'
        for mark, words in LEGEND
    )
    shown = len(topics_shown(document["topics"]))
    about = of_all(shown, len(document["topics"]), "topics with most to tell")
    return (
        f'<section><h2>Timeline <small>{about}</small></h2><div class="legend">{legend}'
        '<span class="tools"><button type="button" id="whole" hidden>whole time</button></span></div>'
        f"{timeline(document)}"
        '<p class="dim"><small>UTC. Drag over a part to see it larger; point at a mark to read what it is.</small></p>'
        "</section>"
    )


# ---- tables ---------------------------------------------------------------------------------------------------


def section(title: str, about: str, content: str) -> str:
    return f"<section><h2>{title} <small>{about}</small></h2>{content}</section>"


def of_all(shown: int, count: int, words: str) -> str:
    return f"the {shown} {words}, of {count:,}" if count > shown else ""


def elections(document: Document) -> str:
    rows: list[list[Cell | str]] = [
        [
            instant(row["elected_at"], "before the history"),
            Cell(after(row), row["controller"]),
            duration(row["takeover_ms"]),
            duration(row["vacant_ms"], "not known" if is_failover(row) else ""),
        ]
        for row in reversed(document["elections"])
    ]
    heads = [("elected", ""), ("broker", "n"), ("taken over in", "n"), ("vacant", "n wide")]
    return section("Controllers", "elections, the last one first", table(heads, rows))


def after(election: Row) -> str:
    previous = election["previous"]
    return f"{election['controller']}" + ("" if previous is None else f" after {previous}")


def creations(document: Document) -> str:
    found = document["creations"]
    waits = [row["ms"] for row in found if row["ms"] is not None]
    longest = max([*waits[:1], 1])
    rows: list[list[Cell | str]] = [
        [
            topic_name(row),
            Cell(steps_bar(row, longest), markup=True),
            duration(row["ms"], "not yet"),
            number(row["partitions"]),
            by(row),
        ]
        for row in found[:CREATIONS]
    ]
    shown = table(
        [
            ("topic", ""),
            ("from wish to leaders", ""),
            ("", "n"),
            ("partitions", "n wide"),
            ("by", "wide"),
        ],
        rows,
        sortable=False,
    )
    legend = (
        '<p class="dim"><small><i class="key wait"></i>waiting for the controller '
        '<i class="key elect"></i>electing leaders</small></p>'
    )
    return section("Slowest creations", of_all(CREATIONS, len(found), "slowest"), shown + legend)


def steps_bar(row: Row, longest: int) -> str:
    """Waiting for the controller, and electing, to the scale of the slowest."""
    if row["ms"] is None:
        return ""
    wait = max(0, millis_of(row["assigned_at"]) - millis_of(row["requested_at"]))
    parts = [("wait", wait, "the controller"), ("elect", row["ms"] - wait, "an election")]
    inside = "".join(
        f'<i class="{kind}" style="width:{100 * ms / longest:.1f}%" title="{words}: {span(ms)}"></i>'
        for kind, ms, words in parts
        if ms > 0
    )
    return f'<div class="steps">{inside}</div>'


def by(row: Row) -> str:
    name = row["by"] or ("a client without a name" if row["host"] else "")
    return f"{name}, automatically" if row.get("automatic") else name


def incidents(document: Document) -> str:
    found = document["incidents"]
    if not found:
        return section("Incidents", "", '<p class="dim">No partition was without a leader.</p>')
    rows: list[list[Cell | str]] = [
        [
            instant(row["from"]),
            cause_name(row["cause"]),
            number(row["partitions"]),
            number(row["topics"]),
            Cell("lasts" if row["until"] is None else span(row["longest_ms"]), row["longest_ms"]),
            Cell(zoom(row["from"], row["until"] or document["made_at"]), markup=True),
        ]
        for row in found[:TOPICS]
    ]
    heads = [("from", ""), ("cause", ""), ("partitions", "n"), ("topics", "n wide")]
    heads += [("without a leader", "n"), ("", "wide")]
    shown = table(heads, rows, bad=[row["until"] is None for row in found])
    return section("Incidents", "what took leaders away, the last first", shown)


def outages(document: Document) -> str:
    found = document["outages"]
    if not found:
        return ""
    rows: list[list[Cell | str]] = [
        [
            topic_name(row),
            number(row["partition"]),
            Cell("lasts" if row["until"] is None else span(row["ms"]), row["ms"]),
            instant(row["from"]),
            cause_name(row["cause"]),
            row["why"] or "",
            Cell(zoom(row["from"], row["until"] or document["made_at"]), markup=True),
        ]
        for row in found[:OUTAGES]
    ]
    heads = [("topic", ""), ("partition", "n"), ("lasted", "n"), ("from", "n")]
    heads += [("cause", "wide"), ("why", "wrap wide"), ("", "wide")]
    shown = table(heads, rows, bad=[row["until"] is None for row in found[:OUTAGES]])
    return section("Outages", of_all(OUTAGES, len(found), "longest"), shown)


def zoom(start: datetime, end: datetime) -> str:
    return (
        f'<button type="button" class="zoom" hidden data-from="{millis_of(start)}" '
        f'data-to="{millis_of(end)}">show</button>'
    )


def deletions(document: Document) -> str:
    found = document["deletions"]
    if not found:
        return ""
    rows: list[list[Cell | str]] = [
        [
            topic_name(row),
            row["state"],
            instant(row["requested_at"]),
            duration(row["ms"]),
            listed(row["waits_for"] or []) if row["state"] != "done" else "",
            listed(row["waited_for"] or []),
            by(row),
        ]
        for row in found[:TOPICS]
    ]
    heads = [("topic", ""), ("state", ""), ("wished", "n wide"), ("took", "n")]
    heads += [("waits for broker", ""), ("waited for", "wide"), ("by", "wide")]
    shown = table(heads, rows, bad=[row["state"] == "stuck" for row in found])
    return section("Deletions", "", shown)


def steps(document: Document) -> str:
    found = document["slowest_steps"]
    rows: list[list[Cell | str]] = [
        [
            topic_name(row),
            step_name(row["step"], row["broker"]),
            duration(row["ms"]),
            instant(row["began_at"]),
            "" if row["ended_at"] is not None else "no answer yet",
            cause_name(row["cause"]),
        ]
        for row in found[:STEPS]
    ]
    heads = [("topic", ""), ("waited for", ""), ("for", "n")]
    heads += [("from", "n wide"), ("", "wide"), ("cause", "wide")]
    bad = [row["ended_at"] is None for row in found[:STEPS]]
    return section("Slowest steps", "what topics waited for", table(heads, rows, bad=bad))


def topics(document: Document) -> str:
    found = document["topics"]
    rows: list[list[Cell | str]] = [
        [
            topic_name(row),
            topic_state(row),
            number(row["partitions"]),
            duration(row["online_after_ms"]),
            Cell(span(row["unavailable_ms"] or None), row["unavailable_ms"]),
            Cell(span(row["longest_outage_ms"] or None), row["longest_outage_ms"]),
            Cell(f"{row['leader_moves']:,}" if row["leader_moves"] else "", row["leader_moves"]),
            Cell(
                f"{step_name(row['slowest_step'], row['slowest_broker'])}, {span(row['slowest_ms'])}"
                if row["slowest_step"]
                else "",
                row["slowest_ms"],
            ),
        ]
        for row in found[:TOPICS]
    ]
    heads = [
        *(
            ("topic", ""),
            ("state", ""),
            ("partitions", "n wide"),
            ("online after", "n"),
            ("unavailable", "n"),
        ),
        *(("longest outage", "n wide"), ("leader moves", "n"), ("slowest step", "wide")),
    ]
    bad = [bool(row["offline_now"]) or row["deletion"] == "stuck" for row in found[:TOPICS]]
    shown = (
        '<input class="filter" type="search" hidden placeholder="part of a name" aria-label="topics with this name"'
        ' data-table="topics">' + table(heads, rows, name="topics", bad=bad)
    )
    about = of_all(TOPICS, len(found), "with most to tell") or "unavailable: summed over partitions"
    return section("Topics", about, shown)


def topic_state(row: Row) -> str:
    if row["deletion"] == "done":
        return "deleted"
    if row["deletion"] is not None:
        return "deletion stuck" if row["deletion"] == "stuck" else "being deleted"
    return f"{row['offline_now']} offline" if row["offline_now"] else "ok"


FOOTER = """<footer><p>From the history of state changes, by the clocks of the controllers. A broker that dies is
noticed when its session ends: a partition counts as unavailable from then on, or from the election of the controller
that found it so. How long nobody was in charge is known only after a controller that resigned.</p></footer>"""
