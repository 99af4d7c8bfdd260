"""`barnabas sql`: run a Spark SQL query over the topics of a cluster, as a batch or as a stream.

Only topics that the query mentions become tables (all topics for `show tables`), because each table costs time. Errors
that do not depend on Spark (no broker, a name that needs backquotes, an existing path) are reported before it starts.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout, suppress
from enum import StrEnum
from functools import partial
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import connect, connection_options
from barnabas.cli.options import master_option, timeout_option
from barnabas.cli.spark.session import spark_session, translate_errors
from barnabas.cli.spark.statement import check_is_query, check_same_query, claim, unclaim
from barnabas.cli.terminal.formats import escape_content
from barnabas.cli.terminal.output import CLEAR_SCREEN, print_note, write_out
from barnabas.cli.terminal.rows import (
    TABLE_ROWS_MAX,
    csv_lines,
    json_lines,
    table_text,
    with_utc_offsets,
)
from barnabas.cli.terminal.signals import SignalRecorder
from barnabas.errors import ConfigError
from barnabas.progress_line import progress_paused
from barnabas.spark.connect import is_remote
from barnabas.spark.tables import (
    find_unquoted_topic,
    names_in,
    quote_topic,
    register_topics,
    topics_in,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

SCAN = "RelationV2["
"""How Spark's plans show that a topic is read."""
ROWS_AT_A_TIME = 1000
CHECK_INTERVAL_S = 0.2
CHECKPOINT = "_checkpoint"
"""Directory in the target directory. Readers of Parquet ignore names that start with an underscore."""


class SqlOutput(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


@click.command()
@click.argument("query")
@click.option("-F", "--follow", is_flag=True, help="Run as a stream, until interrupted.")
@click.option(
    "-O",
    "--offset",
    type=click.Choice(["beginning", "end"]),
    default="beginning",
    show_default=True,
    help="Start position of a new stream. A stream with a checkpoint in --to resumes from there.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice([form.value for form in SqlOutput]),
    default=SqlOutput.TABLE.value,
    show_default=True,
    help="table is for people; json and csv: one line per row; parquet: files in --to.",
)
@click.option(
    "--to", "target", type=click.Path(path_type=Path), help="Directory for the files of -o parquet."
)
@master_option
@connection_options
@timeout_option
def sql(
    query: str,
    follow: bool,
    offset: str,
    output: str,
    target: Path | None,
    master: str | None,
    bootstrap_servers: str,
    timeout_s: float,
) -> None:
    """Run QUERY with every topic as a table.

    \b
    Columns: key value topic partition offset timestamp timestampType headers,
    value_text (the value as UTF-8) and value_json (the value as a variant).
    Write topic names with dashes or dots in backquotes.

    \b
    barnabas sql "select key, count(*) from orders group by key"
    barnabas sql --follow "select value_json:amount::double from orders where value_json:paid::boolean"
    barnabas sql -o parquet --to orders.parquet "select value_json from orders"
    """
    form = SqlOutput(output)
    query = query.strip().rstrip(";")
    check_is_query(query)
    check_output_directory(form, target, follow=follow)
    if follow and target is not None:
        check_same_query(target / CHECKPOINT, query)
    if offset == "end" and not follow:
        raise ConfigError("--offset", "end needs --follow: a batch would have nothing to read")
    if follow and target is None and is_remote(master):
        why = "a Spark Connect server cannot print a stream here"
        raise ConfigError("--follow", f"{why}; write it to files with -o parquet --to DIR")
    with connect(bootstrap_servers, timeout_s=timeout_s) as cluster:
        topics = sorted(cluster.refresh(None).topics)
    if name := find_unquoted_topic(query, topics):
        raise ConfigError("SQL", f"dashes and dots need backquotes: write {quote_topic(name)}")
    open_session = partial(spark_session, master, cluster, app_name="barnabas sql")
    with open_session(short=not follow) as spark, translate_errors(topics):
        register_topics(
            spark,
            topics if lists_tables(query) else topics_in(query, topics),
            cluster,
            stream=follow,
            headers="headers" in {name.lower() for name in names_in(query)},
            starting="latest" if offset == "end" else "earliest",
            topic_ids_location=target / CHECKPOINT / "topic-ids" if follow and target else None,
        )
        rows = spark.sql(query)
        if follow:
            run_stream(rows, form, target, query)
            return
        if reads_once(rows):
            from barnabas.spark.filters import FILTER_PUSHDOWN

            spark.conf.set(FILTER_PUSHDOWN, "true")
            rows = spark.sql(query)
        run_batch(rows, form, target)


def check_output_directory(form: SqlOutput, target: Path | None, *, follow: bool) -> None:
    if form is SqlOutput.PARQUET and target is None:
        raise ConfigError("--to", "required with -o parquet: the directory for the files")
    if form is not SqlOutput.PARQUET and target is not None:
        raise ConfigError("--to", f"needs -o parquet; to write {form} to a file, redirect with >")
    if target is not None and target.exists() and not (follow and (target / CHECKPOINT).exists()):
        raise ConfigError("--to", f"{target} exists already; choose another, or remove it")


def reads_once(rows: DataFrame) -> bool:
    """Return whether the query reads one topic once. Only then do pushed filters give the right rows (filters.py)."""
    with redirect_stdout(StringIO()) as printed:
        rows.explain("extended")
    _, _, optimized = printed.getvalue().partition("== Optimized Logical Plan ==")
    return optimized.partition("== Physical Plan ==")[0].count(SCAN) == 1


def lists_tables(query: str) -> bool:
    return query.lower().split()[:2] in (["show", "tables"], ["show", "views"])


def csv_for_stdout(rows: Iterable[Sequence[Any]]) -> bytes:
    """Return CSV lines. Control characters are escaped on a terminal, but not in a pipe."""
    lines = csv_lines(rows)
    return escape_content(lines) if sys.stdout.isatty() else lines


def print_out(data: bytes) -> None:
    with progress_paused():
        write_out(data)


# ---- batch -----------------------------------------------------------------------------------------------------


def run_batch(rows: DataFrame, form: SqlOutput, target: Path | None) -> None:
    names = rows.columns
    match form:
        case SqlOutput.PARQUET:
            rows.write.parquet(str(target))
            with progress_paused():
                print_note(f"written to {target}")
        case SqlOutput.TABLE:
            if names:
                found = rows.limit(TABLE_ROWS_MAX + 1).collect()
                more = len(found) > TABLE_ROWS_MAX
                shown = found[:TABLE_ROWS_MAX]
                print_out(table_text(names, shown, more=more))
                if more:
                    with progress_paused():
                        print_note(
                            f"there are more rows; add a limit, or use -o {SqlOutput.JSON} for all of them"
                        )
        case SqlOutput.JSON | SqlOutput.CSV:
            if form is SqlOutput.CSV:
                print_out(csv_for_stdout([names]))
            # Fetched partition by partition, because the result may be larger than the memory.
            iterator = rows.toLocalIterator(prefetchPartitions=True)
            while piece := list(islice(iterator, ROWS_AT_A_TIME)):
                print_out(row_lines(rows, form, piece))


def row_lines(frame: DataFrame, form: SqlOutput, rows: list[Any]) -> bytes:
    kinds = [field.dataType for field in frame.schema.fields]
    shown = with_utc_offsets(kinds, rows)
    return json_lines(frame.columns, shown) if form is SqlOutput.JSON else csv_for_stdout(shown)


# ---- stream ----------------------------------------------------------------------------------------------


def run_stream(rows: DataFrame, form: SqlOutput, target: Path | None, query_text: str) -> None:
    if not rows.isStreaming:
        raise ConfigError("--follow", "the query reads no topic; there is nothing to follow")
    if target is not None:
        wait_for_stream(start_to_files(rows, target, query_text), [])
        return
    with tempfile.TemporaryDirectory(prefix="barnabas-sql-", ignore_cleanup_errors=True) as scratch:
        failures: list[BaseException] = []
        query = start_in_supported_mode(rows, form, Path(scratch), failures)
        wait_for_stream(query, failures)


def start_to_files(rows: DataFrame, target: Path, query_text: str) -> StreamingQuery:
    checkpoint = target / CHECKPOINT
    is_new = claim(checkpoint, query_text)
    writer = rows.writeStream.format("parquet").option("path", str(target))
    try:
        return writer.option("checkpointLocation", str(checkpoint)).start()
    except BaseException:
        # Nothing was written yet, so a corrected query may use the directory.
        if is_new:
            unclaim(checkpoint)
        raise


def start_in_supported_mode(
    rows: DataFrame, form: SqlOutput, scratch: Path, failures: list[BaseException]
) -> StreamingQuery:
    """Start the stream in the first output mode that Spark supports for the query.

    `append` writes only new rows. If Spark rejects it, -o table shows the complete result, and json and csv write only
    the changed rows.
    """
    from pyspark.errors import AnalysisException

    write = partial(write_batch, form, failures)
    second, last = ("complete", "update") if form is SqlOutput.TABLE else ("update", "complete")
    if form is SqlOutput.CSV:
        print_out(csv_for_stdout([rows.columns]))

    def start(mode: str) -> StreamingQuery:
        write_this = partial(write, is_complete=mode == "complete")
        writer = rows.writeStream.outputMode(mode).foreachBatch(write_this)
        return writer.option("checkpointLocation", str(scratch / mode)).start()

    for mode in ("append", second):
        try:
            return start(mode)
        except AnalysisException as error:
            # The message is compared because Spark's error condition differs between releases.
            if "output mode" not in str(error).lower():
                raise
    return start(last)


def write_batch(
    form: SqlOutput,
    failures: list[BaseException],
    batch: DataFrame,
    _number: int,
    *,
    is_complete: bool,
) -> None:
    """Write a micro-batch. Spark calls this in its own thread and hides exceptions, so failed writes are recorded."""
    try:
        found = batch.collect()
        if not found:
            return
        if form is SqlOutput.TABLE:
            in_place = CLEAR_SCREEN.encode() if is_complete and sys.stdout.isatty() else b""
            print_out(in_place + table_text(batch.columns, found))
        else:
            print_out(row_lines(batch, form, found))
    except (OSError, click.ClickException) as error:
        failures.append(error)
        raise


def wait_for_stream(query: StreamingQuery, failures: list[BaseException]) -> None:
    signals = SignalRecorder()
    while not signals.wait(CHECK_INTERVAL_S) and query.isActive:
        pass
    with suppress(Exception):
        query.stop()
    if failures:
        raise failures[0]
    signals.raise_if_received()
    query.awaitTermination()
