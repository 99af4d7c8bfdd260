"""`barnabas brokers log-dirs`: the log directories of the brokers, their sizes and their replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from barnabas.byte_units import bytes_text
from barnabas.cli.cluster_command import cluster_command, servers_hint
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.colour import Style, paint
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.terminal.output import OutputFormat, format_table, show_or_watch
from barnabas.cli.topics.lookup import complete_topics, find_partitions
from barnabas.client.cluster import Cluster
from barnabas.client.log_dir_admin import LogDirAdmin, LogDirView
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId


@click.command("log-dirs")
@click.argument("brokers", nargs=-1, type=click.IntRange(min=0), metavar="[ID]...")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_topics,
    help="Count only the replicas of this topic; repeatable.",
)
@click.option("--replicas", is_flag=True, help="List every replica, the largest first.")
@watch_option
@cluster_command
def broker_log_dirs(
    cluster: Cluster,
    brokers: tuple[int, ...],
    topics: tuple[str, ...],
    replicas: bool,
    watch: bool,
    output: OutputFormat,
) -> None:
    """Show the log directories of all brokers, or of the brokers ID: state, free space and size of the replicas."""
    servers = servers_hint()

    def load() -> dict[str, Any]:
        alive = cluster.refresh([]).brokers
        for broker in brokers:
            if broker not in alive:
                error = ApiError(ErrorCode.BROKER_NOT_AVAILABLE)
                hint = f"see `barnabas brokers list{servers}`"
                raise ErrorWithHint(error, f"there is no live broker {broker}", hint)
        chosen = [each for topic in topics for each in find_partitions(cluster, topic, ())]
        found = LogDirAdmin(cluster).describe_log_dirs(
            sorted(set(brokers)) or None, chosen if topics else None
        )
        return log_dirs_document(found)

    show_or_watch(watch, output, load, replica_table if replicas else log_dir_table)


def log_dirs_document(found: Mapping[BrokerId, Sequence[LogDirView]]) -> dict[str, Any]:
    return {
        "log_dirs": [
            {
                "broker": broker,
                "path": each.path,
                "error": None if each.error is None else each.error.code.name,
                "total_bytes": None if each.total_bytes < 0 else each.total_bytes,
                "usable_bytes": None if each.usable_bytes < 0 else each.usable_bytes,
                "size_bytes": sum(log.size_bytes for log in each.logs),
                "replicas": [
                    {
                        "topic": log.partition.topic,
                        "partition": log.partition.partition,
                        "size_bytes": log.size_bytes,
                        "offset_lag": None if log.offset_lag < 0 else log.offset_lag,
                        "future": log.is_future,
                    }
                    for log in sorted(each.logs)
                ],
            }
            for broker, directories in sorted(found.items())
            for each in directories
        ]
    }


def log_dir_table(document: dict[str, Any]) -> str:
    rows = [
        [
            each["broker"],
            each["path"],
            paint(each["error"] or "ok", Style.BAD if each["error"] else Style.GOOD),
            len(each["replicas"]),
            bytes_text(each["size_bytes"]),
            optional_size(each["usable_bytes"]),
            optional_size(each["total_bytes"]),
        ]
        for each in document["log_dirs"]
    ]
    return format_table(["broker", "path", "state", "replicas", "size", "free", "of"], rows)


def replica_table(document: dict[str, Any]) -> str:
    found = [(each, log) for each in document["log_dirs"] for log in each["replicas"]]
    found.sort(key=lambda pair: -pair[1]["size_bytes"])
    rows = [
        [
            log["topic"],
            log["partition"],
            each["broker"],
            bytes_text(log["size_bytes"]),
            log["offset_lag"],
            f"{each['path']}{' (moves here)' if log['future'] else ''}",
        ]
        for each, log in found
    ]
    heads = ["topic", "partition", "broker", "size", "lag", "path"]
    return format_table(heads, rows, null="-") if rows else "no replicas"


def optional_size(size: int | None) -> str:
    return "-" if size is None else bytes_text(size)
