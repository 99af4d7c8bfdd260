"""`barnabas lifecycle report`: what became of topics and controllers, as Spark finds it in the history.

The history may be long, and Spark reads it; what can be known without Spark (no broker, no history, a directory that
exists) is said before Spark is started.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.history.history import require_history
from barnabas.cli.options import bootstrap_option, output_option, timeout_option
from barnabas.cli.spark.sql import spark_session, told
from barnabas.cli.terminal.failure import Hinted
from barnabas.cli.terminal.output import Output, note, plural, show, table
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import earliest_offsets, latest_offsets
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.lifecycle.event import skipped
from barnabas.lifecycle.page import page, topic_state
from barnabas.lifecycle.report import (
    Document,
    Row,
    collect,
    document_of,
    is_failover,
    plain,
    rows_of,
)
from barnabas.lifecycle.words import cause_name, listed, moment, span, step_name, topic_name
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import TopicPartition
from barnabas.spark.progress import progress_paused

if TYPE_CHECKING:
    from pyarrow import Table
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.lifecycle.analysis import Analysis

ROWS = 20
"""So many rows of a table in the terminal."""


@click.group()
def lifecycle() -> None:
    """See what became of topics: how they were made, led, lost and deleted."""


@lifecycle.command()
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write every table there as Parquet, too.",
)
@click.option(
    "--html",
    "html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a page with a timeline, too; one that is there is replaced.",
)
@click.option(
    "--master", metavar="URL", help="Any Spark master; all cores of this machine if not given."
)
@bootstrap_option
@timeout_option
@output_option
def report(
    target: Path | None,
    html: Path | None,
    master: str | None,
    bootstrap_servers: str,
    timeout_s: float,
    output: Output,
) -> None:
    """Tell from the history how long topics took to come online, when they had no leader, how often leaders moved, what
    was waited for, which deletions are stuck, and who was controller.

    \b
    barnabas lifecycle report
    barnabas lifecycle report --html report.html --to report
    """
    check_targets(target, html)
    with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
        require_events(cluster)
    with spark_session(
        master, bootstrap_servers, app_name="barnabas lifecycle report", short=True
    ) as spark:
        with told([STATE_CHANGES]):
            analysis, now = analysis_of(spark, bootstrap_servers)
            tables = collect(analysis)
        document = document_of(rows_of(tables), servers=bootstrap_servers, now=now)
        with progress_paused():
            if target is not None:
                write_parquet(tables, target)
            if html is not None:
                write_page(document, html)
            show(output, plain(document), lambda _: text_of(document))
            for written in filter(None, (target, html)):
                note(f"written to {written}")


def check_targets(target: Path | None, html: Path | None) -> None:
    if target is not None and target.exists():
        raise ConfigError("--to", f"{target} exists already; choose another, or remove it")
    if html is not None and not html.absolute().parent.is_dir():
        raise ConfigError("--html", f"there is no directory {html.absolute().parent}")


def require_events(cluster: Cluster) -> None:
    require_history(cluster)
    partition = TopicPartition(STATE_CHANGES, 0)
    first, end = (
        found(cluster, [partition])[partition] for found in (earliest_offsets, latest_offsets)
    )
    if first == end:
        raise nothing_to_report("is empty")


def nothing_to_report(why: str) -> ApiError:
    hint = "it keeps seven days; what happens from now on is in the next report"
    missing = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return Hinted(missing, f"there is nothing to report: {STATE_CHANGES} {why}", hint)


def analysis_of(spark: SparkSession, servers: str) -> tuple[Analysis, datetime]:
    """And the moment it is of: not before the last event, whatever the clock here says."""
    from barnabas.lifecycle.analysis import analyse
    from barnabas.lifecycle.events import distinct_events, read_records

    records: DataFrame = (
        spark.read.format("barnabas")
        .schema("value binary")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", STATE_CHANGES)
        .option("failOnDataLoss", "false")
        .load()
    )
    read = read_records(records).localCheckpoint()
    malformed = read.where("event is null").count()
    if malformed:
        note(skipped(malformed))
    events = distinct_events(read).localCheckpoint()
    (last_ms,) = events.selectExpr("unix_millis(max(at))").first()
    if last_ms is None:
        raise nothing_to_report("has records, but no events")
    now = datetime.fromtimestamp(max(now_ms(), last_ms) / 1000, UTC)
    return analyse(events, now), now


def write_parquet(tables: dict[str, Table], target: Path) -> None:
    """Here, and not where the tasks ran: this may be another machine."""
    import pyarrow.parquet

    try:
        target.mkdir(parents=True)
        for name, rows in tables.items():
            pyarrow.parquet.write_table(rows, target / f"{name}.parquet")
    except OSError as error:
        raise ConfigError("--to", f"cannot write {target}: {error.strerror or error}") from None


def write_page(document: Document, html: Path) -> None:
    try:
        html.write_text(page(document), "utf-8")
    except OSError as error:
        raise ConfigError("--html", f"cannot write {html}: {error.strerror}") from None


# ---- in words -------------------------------------------------------------------------------------------------


def text_of(document: Document) -> str:
    parts = [
        summary_text(document),
        elections_text(document["elections"]),
        incidents_text(document["incidents"]),
        deletions_text(document["deletions"]),
        topics_text(document["topics"]),
        steps_text(document["slowest_steps"]),
    ]
    return "\n\n".join(part for part in parts if part)


def summary_text(document: Document) -> str:
    history, told = document["history"], document["summary"]
    lines = [
        f"{plural(history['events'], 'event')} from {moment(history['from'])} to {moment(history['until'])} UTC",
        f"{plural(told['topics'], 'topic')}; {told['created']:,} created, {told['deleted']:,} deleted",
    ]
    if told["median_creation_ms"] is not None:
        slowest = span(told["slowest_creation_ms"])
        lines.append(
            f"online after {span(told['median_creation_ms'])} (median), {slowest} (slowest)"
        )
    lost = f"{plural(told['outages'], 'outage')} of partitions"
    if told["outages"]:
        lost += f", the longest {span(told['longest_outage_ms'])}"
    lines.append(f"{lost}; {plural(told['leader_moves'], 'move')} of leaders")
    if told["partitions_offline"]:
        lines.append(f"{plural(told['partitions_offline'], 'partition')} without a leader NOW")
    if told["stuck_deletions"]:
        lines.append(f"{plural(told['stuck_deletions'], 'deletion')} STUCK")
    return "\n".join(lines)


def elections_text(elections: list[Row]) -> str:
    heads = ["epoch", "elected (UTC)", "controller", "after", "vacant", "taken over in", "cause"]
    rows = [
        [
            row["epoch"],
            moment(row["elected_at"]) or "before the history",
            row["controller"],
            "" if row["previous"] is None else row["previous"],
            span(row["vacant_ms"]) or ("not known" if is_failover(row) else ""),
            span(row["takeover_ms"]),
            cause_name(row["cause"]),
        ]
        for row in elections[-ROWS:]
    ]
    return shortened("controllers", heads, rows, len(elections), "last")


def incidents_text(incidents: list[Row]) -> str:
    if not incidents:
        return ""
    heads = ["from (UTC)", "cause", "partitions", "topics", "without a leader"]
    rows = [
        [
            moment(row["from"]),
            cause_name(row["cause"]),
            row["partitions"],
            row["topics"],
            f"up to {span(row['longest_ms'])}" + ("" if row["until"] is not None else ", still"),
        ]
        for row in incidents[:ROWS]
    ]
    return shortened("incidents", heads, rows, len(incidents), "last")


def deletions_text(deletions: list[Row]) -> str:
    pending = [row for row in deletions if row["state"] != "done"]
    if not pending:
        return ""
    heads = ["topic", "deletion", "since (UTC)", "for", "waits for broker", "asked by"]
    rows = [
        [
            topic_name(row),
            row["state"],
            moment(row["requested_at"])[:19],
            span(row["ms"]),
            listed(row["waits_for"] or []),
            row["by"] or "",
        ]
        for row in pending[:ROWS]
    ]
    return shortened("deletions that are not done", heads, rows, len(pending), "first")


def topics_text(topics: list[Row]) -> str:
    heads = [
        "topic",
        "state",
        "partitions",
        "online after",
        "unavailable",
        "longest",
        "leader moves",
    ]
    rows = [
        [
            topic_name(row),
            topic_state(row),
            row["partitions"],
            span(row["online_after_ms"]),
            span(row["unavailable_ms"]) if row["unavailable_ms"] else "",
            span(row["longest_outage_ms"]) if row["longest_outage_ms"] else "",
            row["leader_moves"],
        ]
        for row in topics[:ROWS]
    ]
    return shortened("topics", heads, rows, len(topics), "most troubled")


def steps_text(steps: list[Row]) -> str:
    heads = ["topic", "waited for", "for", "from (UTC)", "cause"]
    rows = [
        [
            topic_name(row),
            step_name(row["step"], row["broker"]),
            span(row["ms"]) + ("" if row["ended_at"] is not None else ", still"),
            moment(row["began_at"]),
            cause_name(row["cause"]),
        ]
        for row in steps[: ROWS // 2]
    ]
    return shortened("slowest steps", heads, rows, len(rows), "")


def shortened(title: str, heads: list[str], rows: list[list[Any]], count: int, which: str) -> str:
    """A table under its title, which says if there is more."""
    more = f" (the {len(rows)} {which} of {count:,})" if count > len(rows) else ""
    return f"{title}{more}\n{table(heads, rows)}"
