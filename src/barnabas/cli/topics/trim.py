"""`barnabas topics trim`: delete the oldest records of a topic (DeleteRecords)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import dry_run_option, yes_option
from barnabas.cli.records.start_position import parse_start
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.terminal.output import (
    OutputFormat,
    confirm_deletion,
    format_table,
    plural,
    show,
)
from barnabas.cli.topics.lookup import complete_topics, find_partitions
from barnabas.client.admin import Admin
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, resolve_starts
from barnabas.client.offsets import earliest_offsets, latest_offsets
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import TopicPartition


class Trim(NamedTuple):
    """The deletion of the records of a partition from offset `start` up to, not including, `before`."""

    partition: TopicPartition
    start: int
    before: int
    end: int


@click.command("trim")
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--before",
    required=True,
    metavar="WHERE",
    help="Delete the records before: 1234 (an offset), -10 (all but the last ten), end (all), "
    "@1700000000000 (ms), @-1h or @2024-05-01T08:00.",
)
@click.option(
    "-p",
    "--partition",
    "numbers",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this partition; repeatable. Default: all.",
)
@yes_option
@dry_run_option
@cluster_command
def trim_topic(
    cluster: Cluster,
    name: str,
    before: str,
    numbers: tuple[int, ...],
    yes: bool,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Delete the oldest records of topic NAME. The other records keep their offsets.

    Example: barnabas topics trim orders --before @-7d --dry-run
    """
    start = parse_start(before, now_ms(), "--before")
    if isinstance(start, Beginning):
        raise ConfigError("--before", f"{before!r} deletes nothing; for all records, write end")
    partitions = find_partitions(cluster, name, numbers)
    requested = resolve_starts(cluster, dict.fromkeys(partitions, start))
    trims = plan_trims(
        requested, earliest_offsets(cluster, partitions), latest_offsets(cluster, partitions)
    )
    due = [each for each in trims if each.before > each.start]
    if due and not dry_run:
        confirm_deletion(deletion_question(name, due), yes=yes)
        delete_records(cluster, due)
    show(output, trim_document(name, trims, dry_run=dry_run), trim_text)


def plan_trims(
    requested: Mapping[TopicPartition, int],
    first: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> list[Trim]:
    """Return the deletion of each partition. Raises ApiError for an offset after the end of a partition."""
    for partition, offset in requested.items():
        if offset > end[partition]:
            why = f"{partition} ends at offset {end[partition]}, before {offset}"
            error = ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
            hint = "nothing was deleted; use a smaller offset, or choose partitions with -p"
            raise ErrorWithHint(error, why, hint)
    return [
        Trim(partition, first[partition], max(offset, first[partition]), end[partition])
        for partition, offset in sorted(requested.items())
    ]


def deletion_question(name: str, trims: Sequence[Trim]) -> str:
    count = sum(each.before - each.start for each in trims)
    where = plural(len(trims), "partition")
    return f"Delete {plural(count, 'record')} in {where} of topic {name}?"


def delete_records(cluster: Cluster, trims: Sequence[Trim]) -> None:
    try:
        Admin(cluster).delete_records({each.partition: each.before for each in trims})
    except ApiError as error:
        if error.code is not ErrorCode.POLICY_VIOLATION:
            raise
        hint = "records can be deleted only from topics with delete in cleanup.policy"
        raise ErrorWithHint(error, error.message, hint) from None


def trim_document(name: str, trims: Sequence[Trim], *, dry_run: bool) -> dict[str, Any]:
    return {
        "topic": name,
        "dry_run": dry_run,
        "deleted": sum(each.before - each.start for each in trims),
        "partitions": [
            {
                "partition": each.partition.partition,
                "deleted": each.before - each.start,
                "earliest_before": each.start,
                "earliest_after": each.before,
                "latest": each.end,
            }
            for each in trims
        ],
    }


def trim_text(document: dict[str, Any]) -> str:
    name, deleted = document["topic"], document["deleted"]
    if not deleted:
        return f"topic {name} has no records there; nothing to delete"
    verb = "would delete" if document["dry_run"] else "deleted"
    cells = itemgetter("partition", "deleted", "earliest_before", "earliest_after", "latest")
    heads = ["partition", "deleted", "earliest before", "earliest after", "latest"]
    table = format_table(heads, [cells(row) for row in document["partitions"]])
    return f"{verb} {plural(deleted, 'record')} of topic {name}\n{table}"
