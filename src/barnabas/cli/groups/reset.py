"""`barnabas groups reset`: reset committed offsets. Without --execute, only show the change.

    barnabas groups reset billing --to-earliest --all-topics
    barnabas groups reset billing --shift-by -100 --topic orders:0,2 --execute
    barnabas groups reset billing --to-datetime 2024-05-01T08:00 --topic orders --execute

An offset out of range becomes the nearest one in range. The group must have no members: they would overwrite the new
offsets with their next commit. With --topic, the reset creates a group that does not exist yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.groups.lookup import (
    complete_groups,
    find_group,
    reject_empty_name,
    reject_if_active,
)
from barnabas.cli.records.start_position import DURATION, duration_ms, parse_time
from barnabas.cli.terminal.output import OutputFormat, format_table, plural, show
from barnabas.cli.topics.lookup import find_partitions
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, End, FromOffset, FromTime, Start, resolve_starts
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.offsets import earliest_offsets, latest_offsets
from barnabas.errors import ConfigError
from barnabas.model import TopicPartition

ISO_DURATION = re.compile(r"P(?:\d+D)?(?:T(?:\d+H)?(?:\d+M)?(?:\d+S)?)?")
TOPIC_SPEC = re.compile(r"(?P<topic>[^:]+)(?::(?P<partitions>\d{1,9}(?:,\d{1,9})*))?")
ONLY_WITHOUT_MEMBERS = "offsets can only be reset while the group has no members"

Target = Start | int
"""A position, or a number to add to the committed offset; a negative number moves it back."""


class OffsetReset(NamedTuple):
    partition: TopicPartition
    before: int | None
    after: int
    requested: int
    """The requested offset, which may be out of range."""


@click.command()
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@click.option("--to-earliest", is_flag=True, help="To the oldest record.")
@click.option("--to-latest", is_flag=True, help="To the end: only new records.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="N records forward; if negative, back.")
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="To the first record at or after 2024-05-01T08:00 (local time, unless it ends in Z or "
    "+02:00).",
)
@click.option(
    "--by-duration",
    metavar="DURATION",
    help="To the first record of the last 1h, 1d12h or PT1H30M.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T[:P,…]",
    help="A topic, or some partitions of it; repeatable.",
)
@click.option(
    "--all-topics", is_flag=True, help="All partitions for which the group has a committed offset."
)
@click.option(
    "--execute", is_flag=True, help="Apply the change. Without this option it is only shown."
)
@click.option("--dry-run", is_flag=True, help="Only show the change; this is the default.")
@cluster_command
def reset(
    cluster: Cluster,
    name: str,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    topics: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Reset the committed offsets of GROUP. Without --execute, only show the change."""
    reject_empty_name("GROUP", name)
    if execute and dry_run:
        raise ConfigError("--dry-run", "cannot be combined with --execute")
    target = require_one_target(
        {
            "--to-earliest": Beginning() if to_earliest else None,
            "--to-latest": End() if to_latest else None,
            "--to-offset": None if to_offset is None else FromOffset(to_offset),
            "--shift-by": shift_by,
            "--to-datetime": None if to_datetime is None else parse_datetime(to_datetime),
            "--by-duration": None if by_duration is None else parse_time_ago(by_duration, now_ms()),
        }
    )
    if bool(topics) == all_topics:
        raise ConfigError("--topic", "choose the partitions with --topic T[:P,…] or --all-topics")
    specs = [parse_topic_partitions(text) for text in topics]
    admin = GroupAdmin(cluster)
    view = find_group(admin, name) if all_topics else admin.describe_group(name)
    reject_if_active(view, ONLY_WITHOUT_MEMBERS)
    committed = {
        partition: found.offset for partition, found in admin.committed_offsets(name).items()
    }
    if all_topics:
        # Offsets of deleted topics are ignored; they expire later.
        existing = cluster.refresh(None).topics
        chosen = {partition for partition in committed if partition.topic in existing}
    else:
        chosen = {found for spec in specs for found in find_partitions(cluster, *spec)}
    resets = plan_resets(cluster, name, target, sorted(chosen), committed)
    if execute and resets:
        admin.set_offsets(name, {each.partition: each.after for each in resets})
    show(output, reset_document(name, resets, execute), reset_text)


def require_one_target(targets: Mapping[str, Target | None]) -> Target:
    chosen = {option: target for option, target in targets.items() if target is not None}
    if not chosen:
        raise ConfigError("reset", f"choose a target: one of {', '.join(targets)}")
    (first, target), *others = chosen.items()
    if others:
        raise ConfigError(first, f"cannot be combined with {others[0][0]}")
    return target


def parse_datetime(text: str) -> FromTime:
    return FromTime(parse_time(text, now_ms(), "--to-datetime"))


def parse_time_ago(text: str, now: int) -> FromTime:
    """Parse 1h30m, or PT1H30M as in kafka-consumer-groups. Return the time that long before `now`, in ms."""
    plain = re.sub("[PT]", "", text).lower() if ISO_DURATION.fullmatch(text) else text
    if not DURATION.fullmatch(plain):
        raise ConfigError("--by-duration", f"{text!r} is not a duration; try 1h, 1d12h or PT1H30M")
    return FromTime(max(0, now - duration_ms(plain)))


def parse_topic_partitions(text: str) -> tuple[str, list[int]]:
    """
    >>> parse_topic_partitions("orders:0,2"), parse_topic_partitions("orders")
    (('orders', [0, 2]), ('orders', []))
    """
    found = TOPIC_SPEC.fullmatch(text)
    if found is None:
        raise ConfigError("--topic", f"{text!r} is not T or T:P,…; try orders or orders:0,2")
    numbers = found["partitions"]
    return found["topic"], [int(number) for number in numbers.split(",")] if numbers else []


def plan_resets(
    cluster: Cluster,
    group: str,
    target: Target,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
) -> list[OffsetReset]:
    if isinstance(target, int):
        requested = shift_offsets(group, partitions, committed, target)
    else:
        requested = resolve_starts(cluster, dict.fromkeys(partitions, target))
    first, end = earliest_offsets(cluster, partitions), latest_offsets(cluster, partitions)
    return [
        OffsetReset(
            partition,
            committed.get(partition),
            min(max(requested[partition], first[partition]), end[partition]),
            requested[partition],
        )
        for partition in partitions
    ]


def shift_offsets(
    group: str,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    count: int,
) -> dict[TopicPartition, int]:
    for partition in partitions:
        if partition not in committed:
            why = f"group {group} has no offset in {partition} to shift; try --to-earliest or --to-latest"
            raise ConfigError("--shift-by", why)
    return {partition: committed[partition] + count for partition in partitions}


def reset_document(group: str, resets: Sequence[OffsetReset], executed: bool) -> dict[str, Any]:
    return {
        "group": group,
        "executed": executed,
        "offsets": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "before": each.before,
                "after": each.after,
                "asked_for": each.requested,
            }
            for each in resets
        ],
    }


def reset_text(document: dict[str, Any]) -> str:
    offsets = document["offsets"]
    if not offsets:
        return f"group {document['group']} has no offsets; name partitions with --topic"
    verb = "set" if document["executed"] else "would set"
    cells = itemgetter("topic", "partition", "before", "after")
    rows = [[*cells(offset), remark_text(offset)] for offset in offsets]
    lines = [
        f"group {document['group']}: {verb} {plural(len(offsets), 'offset')}",
        format_table(["topic", "partition", "before", "after", ""], rows, null="-"),
    ]
    if not document["executed"]:
        lines.append("nothing was changed; add --execute to apply it")
    return "\n".join(lines)


def remark_text(offset: dict[str, Any]) -> str:
    if offset["asked_for"] > offset["after"]:
        return f"the end, instead of {offset['asked_for']}"
    if offset["asked_for"] < offset["after"]:
        return f"the beginning, instead of {offset['asked_for']}"
    return "unchanged" if offset["before"] == offset["after"] else ""
