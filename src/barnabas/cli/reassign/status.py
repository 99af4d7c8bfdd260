"""`barnabas reassign status`: partitions that move, what they wait for, and their throttle."""

from __future__ import annotations

import time
from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.reassign.copying import progress_document, progress_table, read_progress
from barnabas.cli.reassign.execution import partitions_are
from barnabas.cli.reassign.throttling import (
    read_throttles,
    remove_finished_throttles,
    removed_text,
    throttle_document,
    throttle_text,
)
from barnabas.cli.terminal.output import (
    WATCH_INTERVAL_S,
    OutputFormat,
    clear_screen_text,
    render,
    write_out,
)
from barnabas.client.cluster import Cluster
from barnabas.client.reassignment_admin import ReassignmentAdmin


@click.command("status")
@click.option(
    "-w", "--watch", is_flag=True, help="Refresh every two seconds, until no partition moves."
)
@click.option(
    "--keep-throttles", is_flag=True, help="Do not remove throttles of finished reassignments."
)
@cluster_command
def reassignment_status(
    cluster: Cluster, watch: bool, keep_throttles: bool, output: OutputFormat
) -> None:
    """Show the partitions that move, and remove the throttles of those that have finished."""
    while True:
        document = status_document(cluster, keep_throttles=keep_throttles)
        page = render(output, document, status_text)
        prefix = clear_screen_text() if watch else ""
        write_out(f"{prefix}{page}\n".encode())
        if not watch or not document["moving"]:
            return
        time.sleep(WATCH_INTERVAL_S)


def status_document(cluster: Cluster, *, keep_throttles: bool) -> dict[str, Any]:
    ongoing = ReassignmentAdmin(cluster).list_partition_reassignments()
    progress = read_progress(cluster, ongoing) if ongoing else []
    removed = [] if keep_throttles else remove_finished_throttles(cluster, ongoing)
    return {
        "moving": [progress_document(each) for each in progress],
        "throttles": throttle_document(read_throttles(cluster)),
        "throttles_removed": removed,
    }


def status_text(document: dict[str, Any]) -> str:
    moving = document["moving"]
    if moving:
        lines = [f"{partitions_are(len(moving))} moving", "", progress_table(moving)]
    else:
        lines = ["no partition is moving"]
    lines += [
        text
        for text in (
            throttle_text(document["throttles"]),
            removed_text(document["throttles_removed"]),
        )
        if text
    ]
    return "\n".join(lines)
