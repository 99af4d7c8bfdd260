"""`barnabas pipeline stop`: end a running pipeline after its current run."""

from __future__ import annotations

import os
import signal
import time

import click
from click.shell_completion import CompletionItem

from barnabas.cli.options import completions, dry_run_option, output_option
from barnabas.cli.terminal.failure import CommandError, suggest_names
from barnabas.cli.terminal.output import OutputFormat, show
from barnabas.errors import ConfigError
from barnabas.spark.run_state import is_running, list_runs, state_directory

STOP_POLL_S = 0.1


def complete_running(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return completions((run["name"] for run in list_runs(state_directory("pipelines"))), incomplete)


@click.command("stop")
@click.argument("name", shell_complete=complete_running)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for the end of the pipeline.",
)
@dry_run_option
@output_option
def stop_pipeline(name: str, timeout_s: float, dry_run: bool, output: OutputFormat) -> None:
    """Stop the running pipeline NAME. Its current run may finish, for up to 10 seconds."""
    runs = {run["name"]: run for run in list_runs(state_directory("pipelines"))}
    if name not in runs:
        hint = suggest_names(name, runs, "`barnabas pipeline status` shows all running pipelines")
        raise ConfigError("NAME", f"no pipeline {name!r} is running; {hint}")
    process = int(runs[name]["pid"])
    if not dry_run:
        stop_process(name, process, timeout_s)
    verb = "would stop" if dry_run else "stopped"
    document = {"pipeline": name, "pid": process, "dry_run": dry_run}
    show(output, document, lambda shown: f"{verb} {shown['pipeline']}")


def stop_process(name: str, process: int, timeout_s: float) -> None:
    """End the process of a pipeline with SIGTERM, and wait for it. Raises CommandError."""
    directory = state_directory("pipelines")
    os.kill(process, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while is_running(directory, name):
        if time.monotonic() > deadline:
            raise CommandError(
                f"{name} (process {process}) did not end within {timeout_s:.0f} s",
                f"end it at once: kill -9 {process}; the next run continues at its checkpoint",
            )
        time.sleep(STOP_POLL_S)
