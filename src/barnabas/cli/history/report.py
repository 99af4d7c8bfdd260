"""`barnabas lifecycle report`: an analysis of the history of all topics and controllers, with Spark.

Errors that do not depend on Spark (no broker, no history, an existing --to directory) are reported before it starts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.explain.gather import gather_facts
from barnabas.cli.explain.registry_facts import RegistryPlace
from barnabas.cli.history.availability import require_history
from barnabas.cli.history.report_text import report_text
from barnabas.cli.options import (
    bootstrap_option,
    master_option,
    output_option,
    servers_text,
    timeout_option,
)
from barnabas.cli.spark.session import spark_session, translate_errors
from barnabas.cli.terminal.failure import CommandError
from barnabas.cli.terminal.output import OutputFormat, print_note, show
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import earliest_offsets, latest_offsets
from barnabas.errors import BarnabasError, ConfigError
from barnabas.explain.cluster import explain_cluster
from barnabas.explain.finding import Severity
from barnabas.explain.text import finding_document
from barnabas.history.event import skipped_text
from barnabas.history.page import render_page
from barnabas.history.report import Document, Row, collect, document_of, json_types, rows_of
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import TopicPartition
from barnabas.progress_line import progress_paused

if TYPE_CHECKING:
    from pyarrow import Table
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.history.analysis import Analysis


@click.group()
def lifecycle() -> None:
    """Report on topics: creations, leadership, outages, deletions."""


@lifecycle.command()
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write every table to this directory, as Parquet.",
)
@click.option(
    "--html",
    "html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write an HTML page with a timeline; an existing file is replaced.",
)
@master_option
@bootstrap_option
@timeout_option
@output_option
def report(
    target: Path | None,
    html: Path | None,
    master: str | None,
    bootstrap_servers: str,
    timeout_s: float,
    output: OutputFormat,
) -> None:
    """Analyse the history: creation times, outages, leader moves, slow steps, stuck deletions and controller changes.
    Needs Spark.

    \b
    barnabas lifecycle report
    barnabas lifecycle report --html report.html --to report
    """
    check_targets(target, html)
    with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
        require_events(cluster)
        problems = current_problems(cluster, servers_text(bootstrap_servers))
    with spark_session(
        master, bootstrap_servers, app_name="barnabas lifecycle report", short=True
    ) as spark:
        with translate_errors([STATE_CHANGES]):
            analysis, now = read_and_analyse(spark, bootstrap_servers)
            tables = collect(analysis)
        document = document_of(
            rows_of(tables), servers=bootstrap_servers, now=now, problems=problems
        )
        with progress_paused():
            if target is not None:
                write_parquet(tables, target)
            if html is not None:
                write_page(document, html)
            show(output, json_types(document), lambda _: report_text(document))
            for written in filter(None, (target, html)):
                print_note(f"written to {written}")


def check_targets(target: Path | None, html: Path | None) -> None:
    if target is not None and target.exists():
        raise ConfigError("--to", f"{target} exists already; choose another, or remove it")
    if html is not None and not html.absolute().parent.is_dir():
        raise ConfigError("--html", f"there is no directory {html.absolute().parent}")


def require_events(cluster: Cluster) -> None:
    require_history(cluster)
    partition = TopicPartition(STATE_CHANGES, 0)
    first, end = (
        read(cluster, [partition])[partition] for read in (earliest_offsets, latest_offsets)
    )
    if first == end:
        raise nothing_to_report("is empty")


def current_problems(cluster: Cluster, servers: str) -> list[Row]:
    """Return the errors and warnings of `cluster explain`; none if the cluster does not answer any more."""
    try:
        facts = gather_facts(cluster, RegistryPlace()).facts
    except BarnabasError:
        return []
    found = [each for each in explain_cluster(facts) if each.severity is not Severity.NOTE]
    return [finding_document(each, facts.now_ms, servers, facts.start_commands) for each in found]


def nothing_to_report(why: str) -> CommandError:
    hint = "events are kept for seven days; run the report again after a topic was created, changed or deleted"
    return CommandError(f"there is nothing to report: {STATE_CHANGES} {why}", hint)


def read_and_analyse(spark: SparkSession, servers: str) -> tuple[Analysis, datetime]:
    """Return the analysis and its time: now, or the time of the last event if the local clock is behind."""
    from barnabas.history.analysis import analyse
    from barnabas.history.reader import distinct_events, read_records

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
        print_note(skipped_text(malformed))
    events = distinct_events(read).localCheckpoint()
    (last_ms,) = events.selectExpr("unix_millis(max(at))").first()
    if last_ms is None:
        raise nothing_to_report("has no valid events")
    now = datetime.fromtimestamp(max(now_ms(), last_ms) / 1000, UTC)
    return analyse(events, now), now


def write_parquet(tables: dict[str, Table], target: Path) -> None:
    """Write the tables on this machine, because Spark's tasks may run on others."""
    import pyarrow.parquet

    try:
        target.mkdir(parents=True)
        for name, rows in tables.items():
            pyarrow.parquet.write_table(rows, target / f"{name}.parquet")
    except OSError as error:
        raise ConfigError("--to", f"cannot write {target}: {error.strerror or error}") from None


def write_page(document: Document, html: Path) -> None:
    try:
        html.write_text(render_page(document), "utf-8")
    except OSError as error:
        raise ConfigError("--html", f"cannot write {html}: {error.strerror}") from None
