"""`barnabas reassign cancel`: stop reassignments; the partitions keep the replicas they had before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import dry_run_option, yes_option
from barnabas.cli.reassign.execution import confirm_reassignment, remove_leftovers
from barnabas.cli.reassign.throttling import remove_finished_throttles, removed_text
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.terminal.output import OutputFormat, join_numbers, plural, show
from barnabas.client.cluster import Cluster
from barnabas.client.reassignment_admin import OngoingReassignment, ReassignmentAdmin
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import TopicPartition


@click.command("cancel")
@click.argument("names", nargs=-1, metavar="[TOPIC[:PARTITION]]...")
@click.option("--all", "is_all", is_flag=True, help="Cancel all reassignments.")
@dry_run_option
@yes_option
@cluster_command
def cancel_reassignments(
    cluster: Cluster,
    names: tuple[str, ...],
    is_all: bool,
    dry_run: bool,
    yes: bool,
    output: OutputFormat,
) -> None:
    """Cancel reassignments, and remove their throttles.

    Copied bytes of new replicas are deleted. The partitions keep the replicas they had before.

    Example: barnabas reassign cancel orders:3 payments
    """
    if bool(names) == is_all:
        raise ConfigError("--all", "give either topics or partitions, or --all")
    remove_leftovers(cluster, dry_run=dry_run)
    admin = ReassignmentAdmin(cluster)
    ongoing = admin.list_partition_reassignments()
    chosen = select_reassignments(ongoing, names)
    outcomes: dict[TopicPartition, ApiError | None] = dict.fromkeys(chosen)
    removed: list[str] = []
    if chosen and not dry_run:
        confirm_reassignment(
            f"Cancel the reassignment of {plural(len(chosen), 'partition')}?", yes=yes
        )
        outcomes = admin.alter_partition_reassignments(dict.fromkeys(chosen))
        removed = remove_finished_throttles(cluster)
    document = cancel_document(chosen, outcomes, removed, dry_run=dry_run)
    show(output, document, cancel_text)
    if any(outcomes.values()):
        raise click.exceptions.Exit(1)


def select_reassignments(
    ongoing: Mapping[TopicPartition, OngoingReassignment], names: Sequence[str]
) -> dict[TopicPartition, OngoingReassignment]:
    """Return the reassignments of these topics or partitions; all without names. Raises ApiError if one has none."""
    if not names:
        return dict(ongoing)
    chosen = {}
    for name in names:
        topic, colon, number = name.partition(":")
        if colon and not (number.isascii() and number.isdigit()):
            raise ConfigError(name, "is not TOPIC or TOPIC:PARTITION, as in orders:3")
        matching = {
            each: moving
            for each, moving in ongoing.items()
            if each.topic == topic and (not colon or each.partition == int(number))
        }
        # Tables name partitions as orders-3.
        matching = matching or {each: ongoing[each] for each in ongoing if str(each) == name}
        if not matching:
            raise ErrorWithHint(
                ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
                f"{name} is not being reassigned",
                "`barnabas reassign status` lists the partitions that move",
            )
        chosen.update(matching)
    return dict(sorted(chosen.items()))


def cancel_document(
    chosen: Mapping[TopicPartition, OngoingReassignment],
    outcomes: Mapping[TopicPartition, ApiError | None],
    removed: list[str],
    *,
    dry_run: bool,
) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "cancelled": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "replicas": list(moving.origin),
                "error": None if (error := outcomes.get(each)) is None else str(error),
            }
            for each, moving in chosen.items()
        ],
        "throttles_removed": removed,
    }


def cancel_text(document: dict[str, Any]) -> str:
    rows = document["cancelled"]
    if not rows:
        return "no partition is moving: nothing to cancel"
    verb = "would cancel" if document["dry_run"] else "cancelled"
    lines = [
        f"cannot cancel {row['topic']}-{row['partition']}: {row['error']}"
        if row["error"]
        else f"{verb} {row['topic']}-{row['partition']}; replicas {join_numbers(row['replicas'])}"
        for row in rows
    ]
    return "\n".join([*lines, *filter(None, [removed_text(document["throttles_removed"])])])
