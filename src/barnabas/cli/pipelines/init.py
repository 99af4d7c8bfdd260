"""`barnabas pipeline init`: write a small project that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from barnabas.cli.options import dry_run_option, output_option
from barnabas.cli.terminal.output import OutputFormat, show
from barnabas.pipelines.project import create_project


@click.command("init")
@click.argument("name")
@click.option("--topic", default="lines", show_default=True, help="The topic that it reads.")
@dry_run_option
@output_option
def init_pipeline(name: str, topic: str, dry_run: bool, output: OutputFormat) -> None:
    """Create the directory NAME with a pipeline file and one transformation."""
    from barnabas.spark.options import check_topic

    check_topic("--topic", topic)
    files = create_project(Path(), name, topic, dry_run=dry_run)
    document = {
        "pipeline": name,
        "topic": topic,
        "dry_run": dry_run,
        "files": [str(path) for path in files],
    }
    show(output, document, init_text)


def init_text(document: dict[str, Any]) -> str:
    verb = "would write" if document["dry_run"] else "wrote"
    lines = [f"{verb} {path}" for path in document["files"]]
    if not document["dry_run"]:
        name, topic = document["pipeline"], document["topic"]
        lines.append(f"next: barnabas pipeline run {name}     (it reads the topic {topic})")
    return "\n".join(lines)
