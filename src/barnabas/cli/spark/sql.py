"""`barnabas sql`: Spark SQL over the topics of a cluster, once or as a stream.

Only topics the query mentions become tables: each costs Spark a moment. What can be known without Spark (no broker, a
name that needs backquotes, a path that exists) is said before it is started.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.options import CLEAR_SCREEN, bootstrap_option, timeout_option
from barnabas.cli.spark.failure import translated
from barnabas.cli.spark.statement import check_asks, check_belongs, claim, unclaim
from barnabas.cli.terminal.formats import shown as escaped_for_terminal
from barnabas.cli.terminal.output import WIDTH, note, write_out
from barnabas.cli.terminal.rows import ROWS_OF_A_TABLE, csv_lines, instants, json_lines, table_text
from barnabas.cli.terminal.signals import Noted, held_back, interruptions, raise_on_signals
from barnabas.client.cluster import Cluster
from barnabas.errors import ConfigError
from barnabas.spark.progress import progress_paused, stop_progress
from barnabas.spark.tables import names_in, quoted, register_topics, topics_in, unquoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS_AT_A_TIME = 1000
LOOK_INTERVAL_S = 0.2
CHECKPOINT = "_checkpoint"
"""Within the directory that is written; readers of Parquet pass over names that begin so."""


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


@click.command()
@click.argument("query")
@click.option("-F", "--follow", is_flag=True, help="Run it as a stream, until interrupted.")
@click.option(
    "-O",
    "--offset",
    type=click.Choice(["beginning", "end"]),
    default="beginning",
    show_default=True,
    help="Where a stream begins in its topics.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice([form.value for form in Form]),
    default=Form.TABLE.value,
    show_default=True,
    help="A table to read, a line per row, or files.",
)
@click.option("--to", "target", type=click.Path(path_type=Path), help="Where to put Parquet files.")
@click.option(
    "--master", metavar="URL", help="Any Spark master; all cores of this machine if not given."
)
@bootstrap_option
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
    A topic with dashes or dots in its name stands in backquotes.

    \b
    barnabas sql "select key, count(*) from orders group by key"
    barnabas sql --follow "select value_json:amount::double from orders where value_json:paid::boolean"
    barnabas sql -o parquet --to orders.parquet "select value_json from orders"
    """
    form = Form(output)
    query = query.strip().rstrip(";")
    check_asks(query)
    check_target(form, target, follow=follow)
    if follow and target is not None:
        check_belongs(target / CHECKPOINT, query)
    if offset == "end" and not follow:
        raise ConfigError("--offset", "end leaves nothing to read; it goes with --follow")
    with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
        topics = sorted(cluster.refresh(None).topics)
    if astray := unquoted(query, topics):
        raise ConfigError("SQL", f"dashes and dots need backquotes: write {quoted(astray)}")
    named = partial(spark_session, master, bootstrap_servers, app_name="barnabas sql")
    with named(short=not follow) as spark, told(topics):
        register_topics(
            spark,
            topics if lists_tables(query) else topics_in(query, topics),
            bootstrap_servers,
            stream=follow,
            headers="headers" in {name.lower() for name in names_in(query)},
            starting="latest" if offset == "end" else "earliest",
            topic_ids=target / CHECKPOINT / "topic-ids" if follow and target else None,
        )
        rows = spark.sql(query)
        if follow:
            run_stream(rows, form, target, query)
        else:
            run_batch(rows, form, target)


def check_target(form: Form, target: Path | None, *, follow: bool) -> None:
    if form is Form.PARQUET and target is None:
        raise ConfigError("--to", "is missing; say where the Parquet files are to go")
    if form is not Form.PARQUET and target is not None:
        raise ConfigError("--to", f"goes with -o parquet; redirect {form} with > instead")
    if target is not None and target.exists() and not (follow and (target / CHECKPOINT).exists()):
        raise ConfigError("--to", f"{target} exists already; choose another, or remove it")


def lists_tables(query: str) -> bool:
    return query.lower().split()[:2] in (["show", "tables"], ["show", "views"])


@contextmanager
def spark_session(
    master: str | None, bootstrap_servers: str, *, app_name: str, short: bool
) -> Iterator[SparkSession]:
    # py4j tells the root logger of every call that a signal or an error cuts short, before it raises.
    logging.getLogger().addHandler(logging.NullHandler())
    from barnabas.spark.launcher import NOT_INSTALLED, session

    with tempfile.TemporaryDirectory(
        prefix="barnabas-warehouse-", ignore_cleanup_errors=True
    ) as warehouse:
        try:
            with held_back(), told([]):
                spark = session(
                    master,
                    app_name=app_name,
                    bootstrap_servers=bootstrap_servers,
                    # Else a table makes one where the command was called, which no later session finds again.
                    config={"spark.sql.warehouse.dir": warehouse},
                    short=short,
                )
        except ModuleNotFoundError as error:
            raise ConfigError(error.name or "pyspark", NOT_INSTALLED) from None
        raise_on_signals()
        try:
            yield spark
        except BaseException:
            # Whatever is said of it stands on a line of its own; with this process Java ends too.
            stop_progress()
            raise
        with suppress(Exception):
            # A stream that runs when Spark ends dies of it with a page of Java's stack.
            for query in spark.streams.active:
                query.stop()
            spark.stop()


@contextmanager
def told(topics: list[str]) -> Iterator[None]:
    """Whatever Spark raises, said in a few lines."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with interruptions():
            yield
    except (PySparkException, Py4JError, ConnectionRefusedError, ConnectionResetError) as error:
        raise translated(error, topics) from None


def csv_shown(rows: Iterable[Sequence[Any]]) -> bytes:
    """Exact in a pipe; on a terminal, control characters are escaped."""
    lines = csv_lines(rows)
    return escaped_for_terminal(lines) if sys.stdout.isatty() else lines


def print_out(data: bytes) -> None:
    with progress_paused():
        write_out(data)


# ---- once -----------------------------------------------------------------------------------------------------


def run_batch(rows: DataFrame, form: Form, target: Path | None) -> None:
    names = rows.columns
    match form:
        case Form.PARQUET:
            rows.write.parquet(str(target))
            with progress_paused():
                note(f"written to {target}")
        case Form.TABLE:
            if names:
                found = rows.limit(ROWS_OF_A_TABLE + 1).collect()
                more = len(found) > ROWS_OF_A_TABLE
                shown = found[:ROWS_OF_A_TABLE]
                print_out(table_text(names, shown, more=more, width=table_width()))
                if more:
                    with progress_paused():
                        note(f"there are more; add a limit, or use -o {Form.JSON} for all of them")
        case Form.JSON:
            write_in_pieces(rows, partial(json_lines, names))
        case Form.CSV:
            print_out(csv_shown([names]))
            write_in_pieces(rows, csv_shown)


def write_in_pieces(rows: DataFrame, lines: Callable[[list[Any]], bytes]) -> None:
    """A result of any size: Spark hands over one partition after the other."""
    iterator = rows.toLocalIterator(prefetchPartitions=True)
    kinds = types_of(rows)
    while piece := list(islice(iterator, ROWS_AT_A_TIME)):
        print_out(lines(instants(kinds, piece)))


def types_of(rows: DataFrame) -> list[Any]:
    return [field.dataType for field in rows.schema.fields]


def table_width() -> int | None:
    """What is read later, by whomever, is whole."""
    return WIDTH if sys.stdout.isatty() else None


# ---- as a stream ----------------------------------------------------------------------------------------------


def run_stream(rows: DataFrame, form: Form, target: Path | None, query_text: str) -> None:
    if not rows.isStreaming:
        raise ConfigError("--follow", "the query reads no topic; there is nothing to follow")
    if target is not None:
        follow(start_to_files(rows, target, query_text), [])
        return
    with tempfile.TemporaryDirectory(prefix="barnabas-sql-", ignore_cleanup_errors=True) as scratch:
        failures: list[BaseException] = []
        query = start_with_a_mode(rows, form, Path(scratch), failures)
        follow(query, failures)


def start_to_files(rows: DataFrame, target: Path, query_text: str) -> StreamingQuery:
    checkpoint = target / CHECKPOINT
    is_new = claim(checkpoint, query_text)
    writer = rows.writeStream.format("parquet").option("path", str(target))
    try:
        return writer.option("checkpointLocation", str(checkpoint)).start()
    except BaseException:
        # Refused, it has written nothing: the query, put right, may have the directory.
        if is_new:
            unclaim(checkpoint)
        raise


def start_with_a_mode(
    rows: DataFrame, form: Form, scratch: Path, failures: list[BaseException]
) -> StreamingQuery:
    """New rows where a query only has such; else all of its result for a table, the rows that changed for a pipe."""
    from pyspark.errors import AnalysisException

    write = partial(write_batch, rows.columns, form, failures)
    modes = (
        ["append", "complete", "update"] if form is Form.TABLE else ["append", "update", "complete"]
    )
    if form is Form.CSV:
        print_out(csv_shown([rows.columns]))
    for mode in modes:
        write_this = partial(write, is_whole=mode == "complete")
        writer = rows.writeStream.outputMode(mode).foreachBatch(write_this)
        try:
            return writer.option("checkpointLocation", str(scratch / mode)).start()
        except AnalysisException as error:
            if mode == modes[-1] or "output mode" not in str(error).lower():
                raise
    raise AssertionError("the last mode returns or raises")


def write_batch(
    names: list[str],
    form: Form,
    failures: list[BaseException],
    batch: DataFrame,
    _number: int,
    *,
    is_whole: bool,
) -> None:
    """Called by Spark from a thread of its own, where an exception of ours would become one of Java's."""
    try:
        found = batch.collect()
        if not found:
            return
        match form:
            case Form.JSON:
                print_out(json_lines(names, instants(types_of(batch), found)))
            case Form.CSV:
                print_out(csv_shown(instants(types_of(batch), found)))
            case _:
                in_place = CLEAR_SCREEN.encode() if is_whole and sys.stdout.isatty() else b""
                print_out(in_place + table_text(names, found, width=table_width()))
    except OSError as error:
        failures.append(error)
        raise


def follow(query: StreamingQuery, failures: list[BaseException]) -> None:
    """Until it ends or somebody interrupts."""
    interrupted = Noted()
    while not interrupted.wait(LOOK_INTERVAL_S) and query.isActive:
        pass
    with suppress(Exception):
        query.stop()
    if failures:
        raise failures[0]
    interrupted.raise_if_any()
    query.awaitTermination()
