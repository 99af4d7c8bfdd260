"""`barnabas reassign status`: partitions that move, what they wait for, and their throttle."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.reassign.copying import progress_document, progress_table, read_progress
from barnabas.cli.reassign.execution import partitions_are
from barnabas.cli.reassign.throttling import (
    ThrottleState,
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
from barnabas.cli.terminal.units import duration_text
from barnabas.client.cluster import Cluster
from barnabas.client.reassignment_admin import ReassignmentAdmin
from barnabas.reassignment.throttles import FOLLOWER_RATE


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
    """Show moving partitions, and remove finished throttles."""
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
    removed = [] if keep_throttles else remove_finished_throttles(cluster)
    moving = [progress_document(each) for each in progress]
    throttles = read_throttles(cluster)
    return {
        "moving": moving,
        "throttles": throttle_document(throttles),
        "seconds_left_at_throttle": seconds_left(moving, throttles),
        "throttles_removed": removed,
    }


def seconds_left(moving: list[dict[str, Any]], throttles: ThrottleState) -> float | None:
    """Return the shortest time in which the brokers can receive the missing bytes; None without a rate."""
    rates = {
        broker: int(settings[FOLLOWER_RATE])
        for broker, settings in throttles.brokers.items()
        if int(settings.get(FOLLOWER_RATE) or 0) > 0
    }
    missing: Counter[int] = Counter()
    for row in moving:
        for broker in row["adding"]:
            missing[broker] += row["lag_bytes"] // len(row["adding"])
    times = [missing[broker] / rate for broker, rate in rates.items() if broker in missing]
    return round(max(times), 1) if times else None


def status_text(document: dict[str, Any]) -> str:
    moving = document["moving"]
    if moving:
        lines = [f"{partitions_are(len(moving))} moving", "", progress_table(moving)]
    else:
        lines = ["no partition is moving"]
    throttle = throttle_text(document["throttles"])
    if throttle and document["seconds_left_at_throttle"]:
        seconds = max(1, document["seconds_left_at_throttle"])
        throttle += f"; {duration_text(seconds)} or more left"
    removed = removed_text(document["throttles_removed"])
    return "\n".join([*lines, *filter(None, [throttle, removed])])
