"""`barnabas topics delete`: asks for confirmation, deletes, and waits until the topic is gone.

DeleteTopics returns when the topic has left the metadata. Each broker deletes its replicas a moment later, when it gets
the controller's request. DescribeLogDirs, which every Kafka cluster supports, shows which brokers still have replicas.
When all have deleted them, the name can be used again, which a validating CreateTopics shows.

A broker that is not alive keeps its replicas until it is back, and the topic stays marked for deletion. The command
does not wait for that broker. It names it and exits with 1.
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
from barnabas.client.admin import Admin, NewTopic, topics_being_deleted
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
            left_on = wait_for_removal(cluster, topics, deadline)
    document = deleted_document(names, topics, left_on, dry_run=dry_run)
    show(output, document, deleted_topics_text)
    if not dry_run and left_on:
        raise click.exceptions.Exit(1)


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
    """Return topic → brokers that have a replica but are not alive. Topics without such a broker are left out."""
    found = {
        topic.name: sorted(
            {broker for each in topic.partitions for broker in each.replicas if broker not in alive}
        )
        for topic in topics
    }
    return {name: brokers for name, brokers in found.items() if brokers}


def delete_all(cluster: Cluster, topics: Sequence[TopicView], if_exists: bool) -> None:
    for outcome in Admin(cluster).delete_topics([topic.name for topic in topics]):
        error = outcome.error
        if error and not (if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise error


# ---- remaining replicas --------------------------------------------------------------------------------------


def wait_for_removal(cluster: Cluster, topics: Sequence[TopicView], deadline: Deadline) -> Holders:
    """Wait until the topics are gone, or only brokers that are not alive have replicas. Return the topics that are left
    at the end or at the deadline, each with the brokers that have a replica."""
    with cluster.with_new_connections(timeout_s=REQUEST_TIMEOUT_S) as polling:
        left = list(topics)
        backoff = Backoff(*PAUSE_S, random=polling.random)
        while True:
            held = find_holders(polling, left)
            marked = find_marked(polling, left)
            dead = dead_holders(
                [each for each in left if each.name in marked], polling.view.brokers
            )
            if deadline.passed or (not held and marked <= dead.keys()):
                return {
                    name: sorted({*held.get(name, ()), *dead.get(name, ())})
                    for name in sorted(held.keys() | marked)
                }
            with suppress(ApiError):
                now = polling.refresh(None).topics
                # A topic with another id is a new topic with the same name. Its replicas stay.
                left = [topic for topic in left if now.get(topic.name, topic).id == topic.id]
            pause(backoff.next_s())


def find_marked(cluster: Cluster, topics: Sequence[TopicView]) -> set[str]:
    """Return the topics that are still marked for deletion: the controller rejects a topic with the same name.

    If the controller does not answer, all count as marked.
    """
    names = {topic.name for topic in topics}
    wanted = [NewTopic(name=name, partitions=1, replication_factor=1) for name in sorted(names)]
    try:
        outcomes = Admin(cluster).create_topics_once(wanted, validate_only=True) if wanted else []
    except ApiError:
        return names
    return topics_being_deleted(outcomes)


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


def deleted_document(
    names: Sequence[str], topics: Sequence[TopicView], left_on: Holders, *, dry_run: bool
) -> dict[str, Any]:
    existed = {topic.name for topic in topics}
    return {
        "dry_run": dry_run,
        "topics": [
            {
                "topic": name,
                "existed": name in existed,
                "deleted": name in existed and name not in left_on and not dry_run,
                "marked_for_deletion": name in left_on and not dry_run,
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
    if dry_run:
        text = f"would delete topic {name}"
        if not left_on:
            return text
        return f"{text}; {brokers_are(left_on)} not alive: replicas there would be deleted later"
    if topic["deleted"]:
        return f"deleted topic {name}"
    if not left_on:
        return f"topic {name} is marked for deletion, but the controller has not deleted it yet"
    one = len(left_on) == 1
    return (
        f"topic {name} is marked for deletion, but not deleted yet: {name_brokers(left_on)} still "
        f"{'has' if one else 'have'} replicas of it. They are deleted when {'it is' if one else 'they are'} "
        "back; until then the name cannot be used"
    )
