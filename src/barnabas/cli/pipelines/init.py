"""`barnabas pipeline init`: write a small project that runs."""

from __future__ import annotations

from pathlib import Path

import click

from barnabas.cli.terminal.output import print_lines
from barnabas.pipelines.project import create_project


@click.command("init")
@click.argument("name")
@click.option("--topic", default="lines", show_default=True, help="The topic that it reads.")
def init_pipeline(name: str, topic: str) -> None:
    """Create the directory NAME with a pipeline file and one transformation."""
    from barnabas.spark.options import check_topic

    check_topic("--topic", topic)
    files = create_project(Path(), name, topic)
    print_lines(*(f"wrote {path}" for path in files))
    print_lines(f"next: barnabas pipeline run {name}     (it reads the topic {topic})")
