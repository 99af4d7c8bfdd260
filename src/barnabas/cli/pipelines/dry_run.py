"""`barnabas pipeline dry-run`: load the files of a pipeline and validate its graph, without a run."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from barnabas.cli.options import output_option
from barnabas.cli.pipelines.options import run_options, spark_options
from barnabas.cli.pipelines.signals import StopSignals
from barnabas.cli.terminal.output import OutputFormat, plural, show
from barnabas.pipelines.progress import FlowProgress
from barnabas.pipelines.runner import PipelineSession, Stopped, run_pipeline


class SilentObserver:
    """Shows nothing: a dry run has no progress."""

    def flow_changed(self, flow: FlowProgress) -> None:
        pass

    def run_changed(self, state: str) -> None:
        pass


@click.command("dry-run")
@spark_options
@output_option
def dry_run(spec: Path, output: OutputFormat, **options: Any) -> None:
    """Validate the pipeline in SPEC, a pipeline file, or in DIR (default: the current directory)."""
    validate_pipeline(spec, output, **options)


def validate_pipeline(spec: Path, output: OutputFormat, **options: Any) -> None:
    """Load and validate a pipeline, and show its flows. `options` are those of `spark_options`."""
    with tempfile.TemporaryDirectory(
        prefix="barnabas-pipeline-", ignore_cleanup_errors=True
    ) as logs:
        chosen = run_options(spec, log=lambda name: Path(logs) / f"{name}.log", dry=True, **options)
        session = PipelineSession(chosen, SilentObserver())
        session.claim_storage()
        stop = StopSignals()
        session.topics()
        with suppress(Stopped):
            run_pipeline(
                session,
                stop,
                lambda: None,
                continuous=False,
                on_restart=lambda _error, _pause: None,
            )
        stop.raise_if_received()
    graph = session.graph
    assert graph is not None
    document = {
        "pipeline": chosen.spec.name,
        "outputs": len(graph.outputs),
        "flows": [
            {"flow": flow.name, "target": flow.target, "location": str(flow.location)}
            for flow in graph.flows.values()
        ],
    }
    show(output, document, dry_run_text)


def dry_run_text(document: dict[str, Any]) -> str:
    flows, outputs = document["flows"], plural(document["outputs"], "output")
    lines = [f"{document['pipeline']}: {plural(len(flows), 'flow')}, {outputs}, no errors"]
    lines += [f"  {each['flow']} → {each['target']}  ({each['location']})" for each in flows]
    return "\n".join(lines)
