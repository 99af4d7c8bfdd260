"""`barnabas topics delete`: asks for confirmation, deletes, and waits until no live broker holds a replica.

DeleteTopics returns when the topic has left the metadata. Each broker deletes its replicas a moment later, when it gets
the controller's request. DescribeLogDirs, which every Kafka cluster supports, shows which brokers still have replicas.
A broker that is not alive keeps its replicas until it is back, and the name cannot be reused until then. The command
does not wait for that broker but reports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import dry_run_option, yes_option
from barnabas.cli.terminal.output import (
    OutputFormat,
    confirm_deletion,
    plural,
    print_warning,
    show,
    wrap,
)
from barnabas.cli.terminal.wait_progress import REQUEST_TIMEOUT_S, show_progress_while
from barnabas.cli.topics.lookup import complete_topics, unknown_topic_error
from barnabas.client.admin import Admin
from barnabas.client.blocking import Deadline, pause
from barnabas.client.cluster import Cluster
from barnabas.client.log_dir_admin import LogDirAdmin
from barnabas.client.view import TopicView
from barnabas.errors import ApiError, ErrorCode
from barnabas.explain.wording import brokers_are, name_brokers
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, STATE_CHANGES
from barnabas.model import BrokerId, TopicPartition
from barnabas.retry import Backoff

PAUSE_S = (0.05, 0.25)

INTERNAL_TOPIC_WARNINGS = {
    CONSUMER_OFFSETS: f"deleting {CONSUMER_OFFSETS} deletes the committed offsets of all consumer groups. Their "
    "consumers then start at the position of their auto.offset.reset.",
    STATE_CHANGES: f"deleting {STATE_CHANGES} deletes the history of all topics.",
}
"""Internal topic → the warning before its deletion."""

Holders = Mapping[str, Sequence[int]]
"""Topic → brokers that have a replica of it."""


@click.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_topics)
@click.option("--if-exists", is_flag=True, help="Ignore topics that do not exist.")
@yes_option
@dry_run_option
@cluster_command
def delete(
    cluster: Cluster,
    names: tuple[str, ...],
    if_exists: bool,
    yes: bool,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Delete topics with all their records."""
    topics = find_topics(cluster, names, if_exists)
    left_on = dead_holders(topics, cluster.view.brokers)
    for topic in topics:
        if topic.name in INTERNAL_TOPIC_WARNINGS:
            print_warning(INTERNAL_TOPIC_WARNINGS[topic.name])
    if not dry_run and topics:
        texts = [f"{each.name} ({plural(len(each.partitions), 'partition')})" for each in topics]
        confirm_deletion(f"Delete {', '.join(texts)} with all records?", yes=yes)
        deadline = Deadline(cluster.timeout_s)
        with show_progress_while(cluster, lambda seen: remaining_text(seen, topics)):
            delete_all(cluster, topics, if_exists)
            held = wait_for_removal(cluster, topics, deadline)
        left_on = {name: sorted({*left_on[name], *held.get(name, ())}) for name in left_on}
    show(output, deleted_document(names, left_on, dry_run=dry_run), deleted_topics_text)


def find_topics(cluster: Cluster, names: tuple[str, ...], if_exists: bool) -> list[TopicView]:
    found = []
    for name in dict.fromkeys(names):
        try:
            found.append(cluster.topic(name))
        except ApiError as error:
            if not (if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                hint = "see `barnabas topics list`; to accept a missing topic, add --if-exists"
                raise unknown_topic_error(cluster, name, error, else_hint=hint) from None
    return found


def dead_holders(topics: Sequence[TopicView], alive: Mapping[Any, object]) -> Holders:
    """Return topic → brokers that have a replica but are not alive."""
    return {
        topic.name: sorted(
            {broker for each in topic.partitions for broker in each.replicas if broker not in alive}
        )
        for topic in topics
    }


def delete_all(cluster: Cluster, topics: Sequence[TopicView], if_exists: bool) -> None:
    for outcome in Admin(cluster).delete_topics([topic.name for topic in topics]):
        error = outcome.error
        if error and not (if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise error


# ---- remaining replicas --------------------------------------------------------------------------------------


def wait_for_removal(cluster: Cluster, topics: Sequence[TopicView], deadline: Deadline) -> Holders:
    """Wait until no live broker has a replica. Return the brokers that still have one at the deadline."""
    with cluster.with_new_connections(timeout_s=REQUEST_TIMEOUT_S) as polling:
        left = list(topics)
        backoff = Backoff(*PAUSE_S, random=polling.random)
        while held := find_holders(polling, left):
            if deadline.passed:
                return held
            with suppress(ApiError):
                now = polling.refresh(None).topics
                # A topic with another id is a new topic with the same name. Its replicas stay.
                left = [topic for topic in left if now.get(topic.name, topic).id == topic.id]
            pause(backoff.next_s())
    return {}


def find_holders(cluster: Cluster, topics: Sequence[TopicView]) -> dict[str, list[int]]:
    """Return topic → registered brokers with a replica.

    A broker that does not answer counts as having all its replicas. A broker that rejects the request is ignored.
    """
    found: dict[str, list[int]] = {}
    for broker in sorted(cluster.refresh([]).brokers) if topics else ():
        assigned = [
            TopicPartition(topic.name, each.partition)
            for topic in topics
            for each in topic.partitions
            if broker in each.replicas
        ]
        for name in topics_on(cluster, broker, assigned) if assigned else ():
            found.setdefault(name, []).append(broker)
    return found


def topics_on(cluster: Cluster, broker: BrokerId, assigned: Sequence[TopicPartition]) -> list[str]:
    """Return the topics of which the broker still has a replica. `assigned` are the replicas assigned to it."""
    try:
        directories = LogDirAdmin(cluster).describe_log_dirs([broker], assigned)[broker]
    except ApiError as error:
        return sorted({topic for topic, _ in assigned}) if error.code.retriable else []
    return sorted({log.partition.topic for directory in directories for log in directory.logs})


def remaining_text(cluster: Cluster, topics: Sequence[TopicView]) -> str:
    """Return `deleting orders: still on brokers 1 and 2`, or an empty text when nothing is left."""
    known = sorted({topic.name for topic in topics} & cluster.refresh(None).topics.keys())
    if held := find_holders(cluster, topics):
        brokers = sorted({broker for holders in held.values() for broker in holders})
        subject = next(iter(held)) if len(held) == 1 else plural(len(held), "topic")
        return f"deleting {subject}: still on {name_brokers(brokers)}"
    return f"deleting {', '.join(known)}: still in the metadata" if known else ""


def deleted_document(names: Sequence[str], left_on: Holders, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "topics": [
            {
                "topic": name,
                "existed": name in left_on,
                "deleted": name in left_on and not dry_run,
                "left_on": list(left_on.get(name, ())),
            }
            for name in dict.fromkeys(names)
        ],
    }


def deleted_topics_text(document: dict[str, Any]) -> str:
    return "\n".join(
        wrap(deleted_topic_line(topic, dry_run=document["dry_run"]), indent=2)
        for topic in document["topics"]
    )


def deleted_topic_line(topic: dict[str, Any], *, dry_run: bool) -> str:
    name, left_on = topic["topic"], topic["left_on"]
    if not topic["existed"]:
        return f"there is no topic {name}"
    text = f"{'would delete' if dry_run else 'deleted'} topic {name}"
    if not left_on:
        return text
    if dry_run:
        return f"{text}; {brokers_are(left_on)} not alive: replicas there would be deleted later"
    has = "has" if len(left_on) == 1 else "have"
    return (
        f"{text}; {name_brokers(left_on)} still {has} replicas of it, which are deleted when "
        f"{'it is' if len(left_on) == 1 else 'they are'} back; until then the name cannot be reused"
    )
