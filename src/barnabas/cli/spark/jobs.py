"""`barnabas jobs`: the running Spark streams of this user on this machine."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.options import output_option, watch_option
from barnabas.cli.terminal.output import OutputFormat, format_table, show_or_watch
from barnabas.spark.run_state import list_runs, state_directory

JOB_COLUMNS = ("stream", "process", "program", "state", "rows/s", "lag", "batch", "ms", "error")
STREAM_KEYS = ("state", "rows_per_second", "lag", "batch", "batch_ms", "error")


@click.command()
@watch_option
@output_option
def jobs(watch: bool, output: OutputFormat) -> None:
    """Show the Spark streams that run on this machine: rate, lag, last batch and last error.

    Streams of programs that use barnabas.spark.session() are shown, with the names of .queryName(…).
    """
    show_or_watch(watch, output, lambda: list_runs(state_directory("streams")), jobs_text)


def jobs_text(runs: list[dict[str, Any]]) -> str:
    rows = [
        [stream.get("name"), run.get("pid"), run.get("program")]
        + [stream.get(key) for key in STREAM_KEYS]
        for run in runs
        for stream in run.get("streams", [])
    ]
    return format_table(JOB_COLUMNS, rows, null="-") if rows else "no stream is running"
