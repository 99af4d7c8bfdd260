"""`barnabas topics offsets`: the first and the next offset of each partition, and the offset at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import watch_option
from barnabas.cli.records.start_position import parse_time
from barnabas.cli.terminal.output import OutputFormat, format_table, plural, show_or_watch
from barnabas.cli.topics.lookup import complete_topics, find_partitions
from barnabas.client.admin import Admin
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import earliest_offsets, latest_offsets, list_offsets
from barnabas.errors import ConfigError
from barnabas.model import TopicPartition


@click.command("offsets")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_topics)
@click.option(
    "-p",
    "--partition",
    "numbers",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this partition of the named topic; repeatable.",
)
@click.option(
    "--at",
    metavar="TIME",
    help="Also show the first offset at or after this time: -1h, 2024-05-01T08:00 or 1700000000000 "
    "(in ms).",
)
@watch_option
@cluster_command
def topic_offsets(
    cluster: Cluster,
    names: tuple[str, ...],
    numbers: tuple[int, ...],
    at: str | None,
    watch: bool,
    output: OutputFormat,
) -> None:
    """Show the earliest and the latest offset of each partition of the named topics, or of all topics.

    The earliest offset is that of the oldest record. The latest is the one that the next record gets.

    Example: barnabas topics offsets orders --at -1h
    """
    time_ms = None if at is None else parse_time(at.removeprefix("@"), now_ms(), "--at")
    if numbers and len(names) != 1:
        raise ConfigError("--partition", "needs one topic name")

    def load() -> dict[str, Any]:
        partitions = choose_partitions(cluster, names, numbers)
        # A partition without a leader has no offsets now. It must not block the others.
        led = [each for each in partitions if not cluster.view.partition(each).is_offline]
        by_time = None
        if time_ms is not None:
            found = list_offsets(cluster, dict.fromkeys(led, time_ms))
            by_time = {each: None if at.offset < 0 else at.offset for each, at in found.items()}
        earliest, latest = earliest_offsets(cluster, led), latest_offsets(cluster, led)
        return offsets_document(partitions, earliest, latest, time_ms, by_time)

    show_or_watch(watch, output, load, offsets_text)


def choose_partitions(
    cluster: Cluster, names: Sequence[str], numbers: Sequence[int]
) -> list[TopicPartition]:
    """Return the partitions of the named topics, or of all topics that are not internal."""
    views = Admin(cluster).list_topics()
    chosen = names or [topic.name for topic in views if not topic.is_internal]
    return [each for name in chosen for each in find_partitions(cluster, name, numbers)]


def offsets_document(
    partitions: Sequence[TopicPartition],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    time_ms: int | None,
    by_time: Mapping[TopicPartition, int | None] | None,
) -> dict[str, Any]:
    """Return the document. Partitions that are missing in `latest` have no leader."""

    def row(partition: TopicPartition) -> dict[str, Any]:
        is_led = partition in latest
        fields: dict[str, Any] = {
            "topic": partition.topic,
            "partition": partition.partition,
            "earliest": earliest.get(partition),
            "latest": latest.get(partition),
            "offsets": latest[partition] - earliest[partition] if is_led else None,
        }
        return fields if by_time is None else {**fields, "at_time": by_time.get(partition)}

    rows = [row(each) for each in partitions]
    return {
        "timestamp": time_ms,
        "offsets": sum(row["offsets"] or 0 for row in rows),
        "partitions": rows,
    }


def offsets_text(document: dict[str, Any]) -> str:
    rows = document["partitions"]
    if not rows:
        return "no topics yet; create one with `barnabas topics create NAME`"
    columns = ["topic", "partition", "earliest", "latest", "offsets"]
    heads = list(columns)
    if document["timestamp"] is not None:
        columns.append("at_time")
        heads.append("at time")
    lines = [format_table(heads, [[row[column] for column in columns] for row in rows], null="-")]
    if offline := sum(row["latest"] is None for row in rows):
        have = "has" if offline == 1 else "have"
        why = (
            f"{plural(offline, 'partition')} {have} no leader; `barnabas cluster explain` shows why"
        )
        lines.append(why)
    return "\n".join(lines)
