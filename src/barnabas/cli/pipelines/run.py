"""`barnabas pipeline run`: run a pipeline once, or until it is stopped."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from barnabas.cli.options import output_option
from barnabas.cli.pipelines.display import Display
from barnabas.cli.pipelines.options import run_options, spark_options
from barnabas.cli.pipelines.signals import StopSignals
from barnabas.cli.terminal.output import OutputFormat
from barnabas.errors import ConfigError
from barnabas.pipelines.progress import RunProgress
from barnabas.pipelines.runner import PipelineSession, RunOptions, Stopped, run_pipeline
from barnabas.spark.run_state import RunState, state_directory


@click.command("run")
@spark_options
@click.option("--continuous", is_flag=True, help="Run again on new records, until stopped.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="With --continuous: pause between two checks for new records.",
)
@click.option(
    "--full-refresh",
    multiple=True,
    metavar="TABLE",
    help="Empty this table, and compute it from all records. Repeatable.",
)
@click.option(
    "--dry-run", is_flag=True, help="Only validate the pipeline, like `pipeline dry-run`."
)
@output_option
def run_pipeline_command(
    spec: Path,
    continuous: bool,
    full_refresh: tuple[str, ...],
    interval_s: float,
    dry_run: bool,
    output: OutputFormat,
    **options: Any,
) -> None:
    """Run the pipeline in SPEC, a pipeline file, or in DIR (default: the current directory).

    Each run processes the records that have arrived since the last one. Spark starts on this machine, unless --master
    or --remote names another.
    """
    if dry_run:
        from barnabas.cli.pipelines.dry_run import validate_pipeline

        validate_pipeline(spec, output, **options)
        return
    if output is OutputFormat.YAML:
        raise ConfigError("--output", "progress has the formats text and json")
    directory = state_directory("pipelines")
    chosen = run_options(
        spec,
        log=lambda name: directory / f"{name}.log",
        full_refresh=full_refresh,
        interval_s=interval_s,
        **options,
    )
    state = RunState.open(directory, chosen.spec.name)
    try:
        run_with_display(chosen, state, output, continuous=continuous)
    finally:
        state.close()


def run_with_display(
    chosen: RunOptions, state: RunState, output: OutputFormat, *, continuous: bool
) -> None:
    about = {
        "name": chosen.spec.name,
        "pid": os.getpid(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "spec": str(chosen.spec_path),
        "mode": "continuous" if continuous else "once",
        "spark": chosen.remote or chosen.master or "local",
        "log": str(state.log),
    }
    progress = RunProgress(namespace=chosen.spec.namespace)
    display = Display(output, progress, state, about)
    session = PipelineSession(chosen, display, progress)
    # These fail at once, before Spark starts: another pipeline owns the storage, or the cluster is away.
    session.claim_storage()
    stop = StopSignals()
    session.topics()
    display.save()
    try:
        run_pipeline(
            session, stop, display.tick, continuous=continuous, on_restart=display.restarting
        )
    except Stopped:
        pass
    finally:
        display.finish()
    if not continuous:
        stop.raise_if_received()
