"""`barnabas lifecycle report`: an analysis of the history of all topics, brokers and controllers.

A history of up to IN_PROCESS_EVENTS_MAX events is analysed in this process, a larger one on Spark, with the same
functions. Errors that do not depend on the analysis (no broker, no history, an existing --to directory) are reported
before it starts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import click

from barnabas.cli.connection import connect, connection_options
from barnabas.cli.explain.gather import gather_facts
from barnabas.cli.explain.registry_facts import RegistryPlace
from barnabas.cli.history.availability import require_history
from barnabas.cli.history.report_text import report_text
from barnabas.cli.options import (
    output_option,
    servers_text,
    timeout_option,
)
from barnabas.cli.spark.session import spark_session, translate_errors
from barnabas.cli.terminal.failure import CommandError
from barnabas.cli.terminal.output import OutputFormat, print_note, show
from barnabas.client.admin import Admin
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer
from barnabas.client.offsets import earliest_offsets, latest_offsets
from barnabas.errors import BarnabasError, ConfigError
from barnabas.explain.cluster import explain_cluster
from barnabas.explain.finding import Severity
from barnabas.explain.text import finding_document
from barnabas.history.analysis import analyse
from barnabas.history.columns import to_arrow
from barnabas.history.coordinator_event import is_malformed
from barnabas.history.event import AnyEvent, read_event, skipped_text
from barnabas.history.page import render_page
from barnabas.history.report import Document, Tables, document_of, json_types
from barnabas.history.words import Row
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import TopicPartition
from barnabas.progress_line import progress_paused
from barnabas.spark.client_settings import cluster_options
from barnabas.spark.installation import NOT_INSTALLED

IN_PROCESS_EVENTS_MAX = 1_000_000
"""Maximum number of events that this process analyses; Spark analyses more. An event takes about 1 kB of memory."""
SESSION_TIMEOUT = "zookeeper.session.timeout.ms"


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
@click.option(
    "--master",
    metavar="URL",
    help="Analyse the history on this Spark master, such as local[*]; default: without Spark, if it is not too large.",
)
@connection_options
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

    Needs Spark only for more than a million events, or with --master.

    \b
    barnabas lifecycle report
    barnabas lifecycle report --html report.html --to report
    """
    check_targets(target, html)
    now = datetime.fromtimestamp(now_ms() / 1000, UTC)
    with connect(bootstrap_servers, timeout_s=timeout_s) as cluster:
        count = count_events(cluster)
        problems = current_problems(cluster, servers_text(bootstrap_servers))
        session_timeout_ms = session_timeout(cluster)
        if not needs_spark(count, master):
            events, malformed = read_events(cluster)
            tables = analyse(events, now, session_timeout_ms)
        else:
            if master is None:
                print_note(f"the history has {count:,} events, so Spark analyses it")
            tables, malformed = run_on_spark(master, cluster, now, session_timeout_ms)
    if malformed:
        print_note(skipped_text(malformed))
    if not tables["elections"]:
        raise nothing_to_report("has no valid events")
    document = document_of(tables, servers=bootstrap_servers, now=now, problems=problems)
    with progress_paused():
        if target is not None:
            write_parquet(tables, target)
        if html is not None:
            write_page(document, html)
        # The text shows few rows, so the document is not converted for it.
        is_text = output is OutputFormat.TEXT
        shown = {} if is_text else json_types(document)
        show(output, shown, lambda _: report_text(document))
        for written in filter(None, (target, html)):
            print_note(f"written to {written}")


def check_targets(target: Path | None, html: Path | None) -> None:
    if target is not None and target.exists():
        raise ConfigError("--to", f"{target} exists already; choose another, or remove it")
    for option, value, module in (("--to", target, "pyarrow"), ("--html", html, "jinja2")):
        if value is not None and find_spec(module) is None:
            raise ConfigError(option, f"needs {module}, which {NOT_INSTALLED}")
    if html is not None and not html.absolute().parent.is_dir():
        raise ConfigError("--html", f"there is no directory {html.absolute().parent}")


def count_events(cluster: Cluster) -> int:
    """Return the number of records in the history, including duplicates. Raises an error if there are none."""
    require_history(cluster)
    partition = TopicPartition(STATE_CHANGES, 0)
    first, end = (
        read(cluster, [partition])[partition] for read in (earliest_offsets, latest_offsets)
    )
    if first == end:
        raise nothing_to_report("is empty")
    return end - first


def needs_spark(count: int, master: str | None) -> bool:
    return master is not None or count > IN_PROCESS_EVENTS_MAX


def session_timeout(cluster: Cluster) -> int | None:
    """Return the session timeout of one broker, or None if it does not report it."""
    try:
        for entry in Admin(cluster).describe_broker_configs(min(cluster.view.brokers)):
            if entry.name == SESSION_TIMEOUT and entry.value is not None:
                return int(entry.value)
    except BarnabasError:
        pass
    return None


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


def read_events(cluster: Cluster) -> tuple[dict[tuple[int, int], AnyEvent], int]:
    """Return the events by their keys, and the number of malformed records."""
    events: dict[tuple[int, int], AnyEvent] = {}
    malformed = 0
    consumer = Consumer(
        cluster,
        {TopicPartition(STATE_CHANGES, 0): Beginning()},
        reset=Beginning(),
        fetch_wait_ms=100,
    )
    for record in consumer.records(stop_at_end=True):
        event = read_event(record.value)
        if event is not None:
            events.setdefault(event.key, event)
        elif is_malformed(record.value):
            malformed += 1
    return events, malformed


def run_on_spark(
    master: str | None, cluster: Cluster, now: datetime, session_timeout_ms: int | None
) -> tuple[dict[str, list[Row]], int]:
    """Return the tables, and the number of malformed records."""
    session = spark_session(master, cluster, app_name="barnabas lifecycle report", short=True)
    with session as spark:
        from barnabas.history.spark_analysis import analyse_on_spark

        with translate_errors([STATE_CHANGES]):
            records = (
                spark.read.format("barnabas")
                .schema("offset long, value binary")
                .options(**cluster_options(cluster))
                .option("subscribe", STATE_CHANGES)
                .option("failOnDataLoss", "false")
                .load()
            )
            return analyse_on_spark(records, now, session_timeout_ms)


def write_parquet(tables: Tables, target: Path) -> None:
    import pyarrow.parquet

    try:
        target.mkdir(parents=True)
        for name, rows in tables.items():
            pyarrow.parquet.write_table(to_arrow(name, rows), target / f"{name}.parquet")
    except OSError as error:
        raise ConfigError("--to", f"cannot write {target}: {error.strerror or error}") from None


def write_page(document: Document, html: Path) -> None:
    try:
        html.write_text(render_page(document), "utf-8")
    except OSError as error:
        raise ConfigError("--html", f"cannot write {html}: {error.strerror}") from None
