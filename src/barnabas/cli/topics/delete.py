"""`barnabas topics delete`: a question first, then what is still there of the topic.

A deletion is answered when the topic is gone from the metadata; its replicas go a moment later, each when its broker
has been told. What brokers still hold is seen in their log directories, on any Kafka cluster. A broker that is not
alive keeps its replicas until it is back, and until then the name is taken: that is not waited for, but said.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click

from barnabas.cli.options import (
    bootstrap_option,
    complete_topics,
    dry_run_option,
    output_option,
    timeout_option,
    yes_option,
)
from barnabas.cli.terminal import output as terminal
from barnabas.cli.terminal.failure import unknown_topic
from barnabas.cli.terminal.output import Output, note, plural, show, wrapped, wrapped_lines
from barnabas.cli.terminal.wait_progress import LOOK_TIMEOUT_S, shown_meanwhile
from barnabas.cli.topics.health import is_or_are, named
from barnabas.client.admin import Admin
from barnabas.client.blocking import Deadline, pause
from barnabas.client.cluster import Cluster
from barnabas.client.view import TopicView
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, STATE_CHANGES
from barnabas.model import BrokerId, TopicPartition
from barnabas.retry import Backoff

PAUSE_S = (0.05, 0.25)

LOST_WITH = {
    CONSUMER_OFFSETS: f"with {CONSUMER_OFFSETS} go the offsets of every consumer group: all of them begin anew, where "
    "their consumers begin without an offset.",
    STATE_CHANGES: f"with {STATE_CHANGES} goes the history of all topics.",
}
"""Topics that are not what their name says to somebody who is clearing up."""

Holders = Mapping[str, Sequence[int]]
"""Topic → brokers that have a replica of it."""


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_topics)
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is fine.")
@yes_option
@dry_run_option
@bootstrap_option
@timeout_option
@output_option
def delete(
    names: tuple[str, ...],
    if_exists: bool,
    yes: bool,
    dry_run: bool,
    bootstrap_servers: str,
    timeout_s: float,
    output: Output,
) -> None:
    """Delete the topics NAME with all their records."""
    with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
        doomed = existing(cluster, names, if_exists)
        left_on = on_dead_brokers(doomed, cluster.view.brokers)
        for topic in doomed:
            if topic.name in LOST_WITH:
                note(*wrapped_lines(f"warning: {LOST_WITH[topic.name]}", indent=9))
        if not dry_run and doomed:
            confirm(doomed, yes)
            deadline = Deadline(timeout_s)
            with shown_meanwhile(bootstrap_servers, lambda seen: still_there(seen, doomed)):
                delete_all(cluster, doomed, if_exists)
                held = wait_until_removed(bootstrap_servers, doomed, deadline)
            left_on = {name: sorted({*left_on[name], *held.get(name, ())}) for name in left_on}
    document = deleted_document(names, left_on, dry_run=dry_run)
    show(output, document, deleted_text)


def existing(cluster: Cluster, names: tuple[str, ...], if_exists: bool) -> list[TopicView]:
    found = []
    for name in dict.fromkeys(names):
        try:
            found.append(cluster.topic(name))
        except ApiError as error:
            unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not (unknown and if_exists):
                hint = "see `barnabas topics list`; to accept a missing topic, add --if-exists"
                raise unknown_topic(cluster, name, error, else_hint=hint) from None
    return found


def on_dead_brokers(doomed: Sequence[TopicView], alive: Mapping[Any, object]) -> Holders:
    return {
        topic.name: sorted(
            {broker for each in topic.partitions for broker in each.replicas if broker not in alive}
        )
        for topic in doomed
    }


def confirm(doomed: list[TopicView], yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("--yes", "needed to delete where nobody can be asked")
    listed = ", ".join(
        f"{topic.name} ({plural(len(topic.partitions), 'partition')})" for topic in doomed
    )
    if not terminal.confirm(f"Delete {listed} with all records?"):
        note("nothing was deleted")
        raise click.exceptions.Exit(1)


def delete_all(cluster: Cluster, doomed: Sequence[TopicView], if_exists: bool) -> None:
    for outcome in Admin(cluster).delete_topics([topic.name for topic in doomed]):
        error = outcome.error
        gone = error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error is not None and not (gone and if_exists):
            raise error


# ---- what is still there --------------------------------------------------------------------------------------


def wait_until_removed(servers: str, doomed: Sequence[TopicView], deadline: Deadline) -> Holders:
    """Until no broker that is alive holds a replica. Who does then, if the time was not enough."""
    with Cluster(servers, timeout_s=LOOK_TIMEOUT_S) as cluster:
        left = list(doomed)
        backoff = Backoff(*PAUSE_S, random=cluster.random)
        while held := holders(cluster, left):
            if deadline.passed:
                return held
            with suppress(ApiError):
                now = cluster.refresh(None).topics
                left = [topic for topic in left if not is_another(now.get(topic.name), topic)]
            pause(backoff.next_s())
    return {}


def is_another(now: TopicView | None, before: TopicView) -> bool:
    """Somebody created it again at once, and its replicas are those of another topic. A broker that has yet to hear of
    the deletion shows the same one."""
    return now is not None and now.id != before.id


def holders(cluster: Cluster, topics: Sequence[TopicView]) -> dict[str, list[int]]:
    """Of the brokers that are registered. One that does not answer holds what it was given; one that does not want to
    tell is passed over."""
    found: dict[str, list[int]] = {}
    for broker in sorted(cluster.refresh([]).brokers) if topics else ():
        given = [
            TopicPartition(topic.name, each.partition)
            for topic in topics
            for each in topic.partitions
            if broker in each.replicas
        ]
        for name in held_of(cluster, broker, given) if given else ():
            found.setdefault(name, []).append(broker)
    return found


def held_of(cluster: Cluster, broker: BrokerId, given: Sequence[TopicPartition]) -> list[str]:
    try:
        directories = Admin(cluster).log_dirs([broker], given)[broker]
    except ApiError as error:
        return sorted({topic for topic, _ in given}) if error.code.retriable else []
    return sorted({topic.name for directory in directories for topic in directory.topics})


def still_there(cluster: Cluster, doomed: Sequence[TopicView]) -> str:
    """`deleting orders: still on brokers 1 and 2`"""
    names = {topic.name for topic in doomed}
    known = sorted(names & cluster.refresh(None).topics.keys())
    held = holders(cluster, doomed)
    if held:
        brokers = sorted({broker for on in held.values() for broker in on})
        what = next(iter(held)) if len(held) == 1 else plural(len(held), "topic")
        return f"deleting {what}: still on {named(brokers)}"
    return f"deleting {', '.join(known)}: brokers still know of it" if known else ""


# ---- in words -------------------------------------------------------------------------------------------------


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


def deleted_text(document: dict[str, Any]) -> str:
    return "\n".join(
        wrapped(line_of(topic, dry_run=document["dry_run"]), indent=2)
        for topic in document["topics"]
    )


def line_of(topic: dict[str, Any], *, dry_run: bool) -> str:
    name, left_on = topic["topic"], topic["left_on"]
    if not topic["existed"]:
        return f"there is no topic {name}"
    told = f"{'would delete' if dry_run else 'deleted'} topic {name}"
    if not left_on:
        return told
    if dry_run:
        return f"{told}; {named(left_on)} {is_or_are(left_on)} not alive: it would wait for that"
    has = "has" if len(left_on) == 1 else "have"
    return (
        f"{told}; {named(left_on)} still {has} replicas of it, to be deleted when "
        f"{'it is' if len(left_on) == 1 else 'they are'} back; until then the name is taken"
    )
