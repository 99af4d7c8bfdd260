"""`barnabas topics alter`: add partitions to a topic, and warn about its keys. `--dry-run` shows a preview."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command, servers_hint
from barnabas.cli.options import dry_run_option
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.terminal.output import OutputFormat, plural, print_warning, show
from barnabas.cli.terminal.wait_progress import show_progress_while
from barnabas.cli.topics.create import parse_assignment
from barnabas.cli.topics.expansion import moved_share, preview_document, preview_text, read_groups
from barnabas.cli.topics.lookup import complete_topics, find_topic
from barnabas.client.admin import Admin, NewPartitions
from barnabas.client.cluster import Cluster
from barnabas.errors import ApiError, ErrorCode
from barnabas.explain.wording import join_with_and


@click.command("alter")
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    required=True,
    help="New total number of partitions; a topic can only grow.",
)
@click.option(
    "--assignment",
    "--replica-assignment",
    metavar="0:1:2,1:2:0",
    help="Brokers of each new partition, the preferred leader first.",
)
@dry_run_option
@cluster_command
def alter_topic(
    cluster: Cluster,
    name: str,
    partitions: int,
    assignment: str | None,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Add partitions to topic NAME.

    Example: barnabas topics alter orders --partitions 12
    """
    brokers = parse_assignment(assignment, option="--assignment") if assignment else None
    before = find_topic(cluster, name)
    request = NewPartitions(name=name, count=partitions, assignment=brokers)
    with show_progress_while(cluster, lambda seen: missing_leaders_text(seen, name, partitions)):
        (outcome,) = Admin(cluster).create_partitions([request], validate_only=dry_run)
    if outcome.error is not None:
        raise explain_rejection(outcome.error, cluster, request, len(before.partitions))
    count = len(before.partitions)
    document = altered_document(name, count, partitions, dry_run=dry_run)
    if dry_run:
        document["preview"] = preview_document(count, partitions, read_groups(cluster, name))
    else:
        print_warning(keys_warning(document))
    show(output, document, altered_text)


def missing_leaders_text(cluster: Cluster, name: str, count: int) -> str:
    """Return `orders: partitions 3 and 5 have no leader yet`, or an empty text if all have one."""
    topic = cluster.refresh([name]).topics.get(name)
    led = {each.partition for each in topic.partitions if not each.is_offline} if topic else set()
    missing = [number for number in range(count) if number not in led]
    if not missing:
        return ""
    noun, verb = ("partition", "has") if len(missing) == 1 else ("partitions", "have")
    return f"{name}: {noun} {join_with_and(missing)} {verb} no leader yet"


def explain_rejection(
    error: ApiError, cluster: Cluster, request: NewPartitions, before: int
) -> ApiError:
    """Return the error; with a hint for a timeout or too few partitions. The topic has `before` partitions."""
    if error.code is ErrorCode.REQUEST_TIMED_OUT:
        why = missing_leaders_text(cluster, request.name, request.count) or "the request timed out"
        command = f"`barnabas topics describe {request.name}{servers_hint()}`"
        hint = f"a partition gets a leader when one of its brokers is alive; see {command}"
        return ErrorWithHint(error, why, hint)
    if error.code is ErrorCode.INVALID_PARTITIONS and request.count < before:
        hint = "for fewer partitions, create a new topic and copy the records"
        return ErrorWithHint(error, error.message, hint)
    return error


def altered_document(name: str, before: int, after: int, *, dry_run: bool) -> dict[str, Any]:
    return {
        "topic": name,
        "altered": not dry_run,
        "dry_run": dry_run,
        "partitions_before": before,
        "partitions": after,
        "keys_moved_percent": keys_moved_percent(before, after),
    }


def keys_moved_percent(before: int, after: int) -> int:
    """Return the percentage of evenly distributed keys that map to another partition.

    >>> keys_moved_percent(3, 6), keys_moved_percent(3, 4)
    (50, 75)
    """
    return round(100 * moved_share(before, after))


def altered_text(document: dict[str, Any]) -> str:
    verb = "would alter" if document["dry_run"] else "altered"
    after, before = document["partitions"], document["partitions_before"]
    text = f"{verb} topic {document['topic']}: {plural(after, 'partition')}, {before} before"
    preview = document.get("preview")
    return f"{text}\n\n{preview_text(preview)}" if preview else text


def keys_warning(document: dict[str, Any]) -> str:
    return (
        f"about {document['keys_moved_percent']} % of keys will map to another partition; existing records stay "
        "where they are, so records with the same key are ordered only within each partition. Consumers that start "
        "at the end miss records that are written to a new partition before they discover it."
    )
