"""Options and output of the commands that copy records to a new topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from barnabas.batch.compression import Compression
from barnabas.cli.terminal.output import format_table, plural

if TYPE_CHECKING:
    from barnabas.jobs.copy_topic import CopiedPartition

CODECS = {codec.name.lower(): codec for codec in Compression}


compression_option = click.option(
    "--compression",
    type=click.Choice(list(CODECS)),
    default="none",
    show_default=True,
    callback=lambda _context, _parameter, value: CODECS[value],
    help="Compression of the copied records.",
)


def copy_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --replication-factor, --config and --compression."""
    for option in (
        compression_option,
        click.option(
            "--config",
            "configs",
            multiple=True,
            metavar="KEY=VALUE",
            help="Setting of the new topic, instead of the copied one; repeatable.",
        ),
        click.option(
            "--replication-factor",
            type=click.IntRange(min=1),
            help="Replicas of each partition of the new topic.",
        ),
    ):
        command = option(command)
    return command


def copied_rows(partitions: Sequence[CopiedPartition]) -> list[dict[str, int]]:
    return [
        {"partition": each.partition, "skipped": each.skipped, "written": each.written}
        for each in partitions
    ]


def copied_text(document: dict[str, Any], source: str) -> str:
    """Return the text of a document with `topic`, `records`, `verified` and `partitions`."""
    topic, rows = document["topic"], document["partitions"]
    written = sum(row["written"] for row in rows)
    skipped = sum(row["skipped"] for row in rows)
    earlier = f", {plural(skipped, 'record')} were there from an earlier run" if skipped else ""
    verified = "verified" if document["verified"] else "not verified"
    table = format_table(
        ["partition", "skipped", "written"],
        [[row["partition"], row["skipped"], row["written"]] for row in rows],
    )
    line = f"copied {plural(written, 'record')} from {source} to topic {topic}{earlier}; {verified}"
    return f"{line}\n{table}"
