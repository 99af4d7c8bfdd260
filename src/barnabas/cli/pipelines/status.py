"""`barnabas pipeline status`: the running pipelines of this user."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.options import output_option, watch_option
from barnabas.cli.terminal.output import OutputFormat, format_table, show_or_watch
from barnabas.spark.run_state import list_runs, state_directory

STATUS_COLUMNS = (
    "pipeline", "process", "mode", "state", "runs", "flow", "rows/s", "lag", "batch", "error",
)  # fmt: skip


@click.command()
@watch_option
@output_option
def status(watch: bool, output: OutputFormat) -> None:
    """Show the running pipelines and the progress of their flows."""
    show_or_watch(watch, output, lambda: list_runs(state_directory("pipelines")), status_text)


def status_text(runs: list[dict[str, Any]]) -> str:
    if not runs:
        return "no pipeline is running"
    rows = []
    for run in runs:
        head = [run.get(key) for key in ("name", "pid", "mode", "state", "runs")]
        flows = run.get("flows", [])
        rows += [
            [
                *head,
                *(flow.get(key) for key in ("flow", "rows_per_second", "lag", "batch", "error")),
            ]
            for flow in flows
        ]
        # The last run may have failed before its flows started, and the next one resets their errors.
        if not flows or (run.get("error") and not any(flow.get("error") for flow in flows)):
            rows.append([*head, None, None, None, None, run.get("error")])
    return format_table(STATUS_COLUMNS, rows, null="-")
