"""Progress of reassignments: the bytes each new replica has, and what each partition waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.byte_units import bytes_text
from barnabas.cli.reassign.cluster_layout import LogSizes, read_log_sizes
from barnabas.cli.terminal.output import format_table, join_numbers
from barnabas.cli.terminal.units import bar_text, duration_text
from barnabas.client.cluster import Cluster
from barnabas.client.reassignment_admin import OngoingReassignment
from barnabas.client.view import ClusterView
from barnabas.errors import ApiError
from barnabas.explain.wording import name_brokers
from barnabas.model import NO_LEADER, TopicPartition

BAR_CELLS = 16
LINES_MAX = 8


class PartitionProgress(NamedTuple):
    """The state of one reassignment. `copied` and `total` are bytes, summed over the new replicas."""

    partition: TopicPartition
    ongoing: OngoingReassignment
    copied: int
    total: int
    waiting_for: str


def read_progress(
    cluster: Cluster, ongoing: Mapping[TopicPartition, OngoingReassignment]
) -> list[PartitionProgress]:
    """Ask the leaders and the new replicas for the sizes of their logs. Brokers that do not answer are left out."""
    view = cluster.refresh(sorted({each.topic for each in ongoing}))
    logs: dict[tuple[TopicPartition, int], int] = {}
    for broker, partitions in brokers_to_ask(view, ongoing).items():
        try:
            logs.update(read_log_sizes(cluster, broker, partitions))
        except ApiError:
            continue
    return measure_progress(view, ongoing, logs)


def brokers_to_ask(
    view: ClusterView, ongoing: Mapping[TopicPartition, OngoingReassignment]
) -> dict[int, list[TopicPartition]]:
    found: dict[int, list[TopicPartition]] = {}
    for partition, moving in ongoing.items():
        for broker in {leader_of(view, partition), *moving.adding} & set(map(int, view.brokers)):
            found.setdefault(broker, []).append(partition)
    return dict(sorted(found.items()))


def leader_of(view: ClusterView, partition: TopicPartition) -> int:
    """Return the leader; NO_LEADER if there is none, or if the partition was deleted."""
    try:
        return int(view.partition(partition).leader)
    except ApiError:
        return int(NO_LEADER)


def measure_progress(
    view: ClusterView, ongoing: Mapping[TopicPartition, OngoingReassignment], logs: LogSizes
) -> list[PartitionProgress]:
    found = []
    for partition, moving in ongoing.items():
        leader = leader_of(view, partition)
        size = logs.get((partition, leader), 0)
        added = [logs.get((partition, broker), 0) for broker in moving.adding]
        found.append(
            PartitionProgress(
                partition=partition,
                ongoing=moving,
                copied=sum(min(found, size) for found in added),
                total=size * len(added),
                waiting_for=explain_wait(view, partition, moving),
            )
        )
    return found


def explain_wait(view: ClusterView, partition: TopicPartition, moving: OngoingReassignment) -> str:
    """Return what the reassignment waits for, in words."""
    if stall := explain_stall(view, partition, moving):
        return stall
    try:
        now = view.partition(partition)
    except ApiError:
        return "the topic is being deleted"
    missing = [broker for broker in moving.target if broker not in now.isr]
    if missing:
        return f"{name_brokers(missing)} to catch up"
    if moving.removing:
        return f"the controller to remove {name_brokers(moving.removing)}"
    return "the controller to finish"


def explain_stall(view: ClusterView, partition: TopicPartition, moving: OngoingReassignment) -> str:
    """Return what must come back before the reassignment can continue, in words; empty if nothing must."""
    try:
        now = view.partition(partition)
    except ApiError:
        return ""
    if now.is_offline:
        return "a leader: no in-sync replica is alive"
    down = [each for each in moving.target if each not in now.isr and each not in view.brokers]
    return f"{name_brokers(down)}, not alive" if down else ""


def progress_document(progress: PartitionProgress) -> dict[str, Any]:
    return {
        "topic": progress.partition.topic,
        "partition": progress.partition.partition,
        "from": list(progress.ongoing.origin),
        "to": list(progress.ongoing.target),
        "adding": list(progress.ongoing.adding),
        "removing": list(progress.ongoing.removing),
        "copied_bytes": progress.copied,
        "total_bytes": progress.total,
        "lag_bytes": progress.total - progress.copied,
        "waiting_for": progress.waiting_for,
    }


def progress_table(rows: Sequence[dict[str, Any]]) -> str:
    return format_table(
        ["partition", "from", "to", "copied", "", "waits for"],
        [
            [
                f"{row['topic']}-{row['partition']}",
                join_numbers(row["from"]),
                join_numbers(row["to"]),
                bar_text(copied_share(row["copied_bytes"], row["total_bytes"]), BAR_CELLS),
                copied_text(row["copied_bytes"], row["total_bytes"]),
                row["waiting_for"],
            ]
            for row in rows
        ],
    )


def copied_share(copied: int, total: int) -> float:
    return copied / total if total else 0.0


def copied_text(copied: int, total: int) -> str:
    return f"{bytes_text(copied)} of {bytes_text(total)}" if total else ""


class CopyMeter:
    """The overall progress of a plan: bytes copied so far, and the rate since the start."""

    def __init__(self, total: int, started: float) -> None:
        self.total = total
        self.started = started

    def lines(self, progress: Sequence[PartitionProgress], waiting: int, now: float) -> list[str]:
        """Return the lines to draw. `waiting` is the number of bytes of later batches."""
        left = waiting + sum(each.total - each.copied for each in progress)
        copied = max(0, self.total - left)
        seconds = now - self.started
        rate = ""
        if copied and seconds > 1:
            rest = duration_text(left * seconds / copied)
            rate = f", {bytes_text(copied / seconds)}/s, {rest} left"
        width = max([len("total"), *(len(str(each.partition)) for each in progress[:LINES_MAX])])
        lines = [
            f"{each.partition!s:{width}}  {bar_text(copied_share(each.copied, each.total), BAR_CELLS)}  "
            f"{copied_text(each.copied, each.total) or 'no copy'}  waits for {each.waiting_for}"
            for each in progress[:LINES_MAX]
        ]
        if len(progress) > LINES_MAX:
            lines.append(f"… and {len(progress) - LINES_MAX} more partitions")
        lines.append(
            f"{'total':{width}}  {bar_text(copied_share(copied, self.total), BAR_CELLS)}  "
            f"{copied_text(copied, self.total) or 'no copy'}{rate}"
        )
        return lines
