"""`barnabas topics explain`, `partitions explain`, `brokers explain`, `cluster explain` and `cluster health`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command, servers_hint
from barnabas.cli.explain.gather import GatheredFacts, gather_facts
from barnabas.cli.explain.output import (
    changes_of,
    explanation_document,
    explanation_text,
    partition_subject,
)
from barnabas.cli.explain.registry_facts import RegistryPlace, registry_place_options
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.exit_codes import FAILED
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.terminal.output import OutputFormat, join_numbers, plural, show_or_watch
from barnabas.cli.topics.lookup import complete_topics, unknown_topic_error
from barnabas.client.cluster import Cluster
from barnabas.errors import ApiError, ErrorCode
from barnabas.explain.cluster import explain_broker, explain_cluster, known_brokers
from barnabas.explain.facts import ClusterFacts
from barnabas.explain.topics import explain_one_partition, explain_topic, is_being_deleted
from barnabas.model import TopicPartition

HEALTH_EVENTS_MAX = 5000
"""`cluster health` reads fewer events than the explain commands: it must be fast."""


def explain_command(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of all explain commands. The command gets a `Cluster` and a `RegistryPlace` first."""

    @registry_place_options
    @watch_option
    @cluster_command
    @wraps(command)
    def run(cluster: Cluster, data: str | None, zookeeper: str | None, **options: Any) -> None:
        is_given = data is not None or zookeeper is not None
        command(
            cluster, RegistryPlace(data=data, zookeeper=zookeeper, is_given=is_given), **options
        )

    return run


@click.command("explain")
@click.argument("name", shell_complete=complete_topics)
@explain_command
def explain_topic_command(
    cluster: Cluster, place: RegistryPlace, name: str, watch: bool, output: OutputFormat
) -> None:
    """Explain what is wrong with topic NAME: why, since when, and what to do next."""
    servers = servers_hint()

    def load() -> dict[str, Any]:
        gathered = gather_facts(cluster, place, [name])
        facts = gathered.facts
        require_topic(cluster, gathered, name)
        return explanation_document(
            f"topic {name}",
            explain_topic(facts, name),
            facts=facts,
            servers=servers,
            healthy=healthy_topic(facts, name),
            changes=changes_of(gathered.events, name),
            topic=name,
        )

    show_or_watch(watch, output, load, explanation_text)


@click.group("partitions")
def partitions() -> None:
    """Explain the state of single partitions."""


@partitions.command("explain")
@click.argument("name", metavar="TOPIC-PARTITION")
@explain_command
def explain_partition_command(
    cluster: Cluster, place: RegistryPlace, name: str, watch: bool, output: OutputFormat
) -> None:
    """Explain what is wrong with a partition, such as orders-0: why, since when, and what to do next."""
    partition = parse_partition_name(name)
    servers = servers_hint()

    def load() -> dict[str, Any]:
        gathered = gather_facts(cluster, place, [partition.topic])
        facts = gathered.facts
        require_topic(cluster, gathered, partition.topic)
        require_partition(facts, partition)
        return explanation_document(
            partition_subject(partition),
            explain_one_partition(facts, partition),
            facts=facts,
            servers=servers,
            healthy=healthy_partition(facts, partition),
            changes=changes_of(gathered.events, *partition),
            topic=partition.topic,
        )

    show_or_watch(watch, output, load, explanation_text)


@click.command("explain")
@click.argument("broker", type=click.IntRange(min=0), metavar="ID")
@explain_command
def explain_broker_command(
    cluster: Cluster, place: RegistryPlace, broker: int, watch: bool, output: OutputFormat
) -> None:
    """Explain what is wrong with broker ID, and which partitions wait for it."""
    servers = servers_hint()

    def load() -> dict[str, Any]:
        facts = gather_facts(cluster, place).facts
        require_known_broker(facts, broker, servers)
        return explanation_document(
            f"broker {broker}",
            explain_broker(facts, broker),
            facts=facts,
            servers=servers,
            healthy=healthy_broker(facts, broker),
        )

    show_or_watch(watch, output, load, explanation_text)


@click.command("explain")
@explain_command
def explain_cluster_command(
    cluster: Cluster, place: RegistryPlace, watch: bool, output: OutputFormat
) -> None:
    """Explain everything that is wrong: registry, controller, brokers, topics and deletions."""
    show_or_watch(*(watch, output), lambda: cluster_document(cluster, place), explanation_text)


@click.command("health")
@explain_command
def cluster_health(
    cluster: Cluster, place: RegistryPlace, watch: bool, output: OutputFormat
) -> None:
    """Check whether the cluster is healthy. Exits with 1 if something is unavailable."""
    shown: dict[str, Any] = {}

    def load() -> dict[str, Any]:
        shown.update(cluster_document(cluster, place, events_max=HEALTH_EVENTS_MAX))
        return shown

    show_or_watch(watch, output, load, explanation_text)
    if any(finding["severity"] == "error" for finding in shown["findings"]):
        raise click.exceptions.Exit(FAILED)


def cluster_document(
    cluster: Cluster, place: RegistryPlace, *, events_max: int | None = None
) -> dict[str, Any]:
    facts = gather_facts(cluster, place, events_max=events_max).facts
    counts = partition_counts(facts)
    document = explanation_document(
        "cluster",
        explain_cluster(facts),
        facts=facts,
        servers=servers_hint(),
        healthy=f"healthy: {plural(len(facts.view.brokers), 'broker')}, controller {facts.controller}, "
        f"{plural(len(facts.view.topics), 'topic')}, {plural(counts['partitions'], 'partition')}",
    )
    return {
        **document,
        "cluster_id": facts.view.cluster_id,
        "controller": facts.controller,
        "brokers": len(facts.view.brokers),
        "topics": len(facts.view.topics),
        **counts,
    }


def partition_counts(facts: ClusterFacts) -> dict[str, int]:
    seen = [each for topic in facts.view.topics.values() for each in topic.partitions]
    return {
        "partitions": len(seen),
        "offline": sum(each.is_offline for each in seen),
        "under_replicated": sum(each.is_under_replicated for each in seen),
    }


# ---- names ----------------------------------------------------------------------------------------------------


def parse_partition_name(name: str) -> TopicPartition:
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit():
        raise click.BadParameter(
            f"{name!r} is not a partition; write TOPIC-PARTITION, as in orders-0",
            param_hint="TOPIC-PARTITION",
        )
    return TopicPartition(topic, int(number))


def require_topic(cluster: Cluster, gathered: GatheredFacts, name: str) -> None:
    """Raise ApiError if neither the metadata nor the registry nor the history knows the topic."""
    facts = gathered.facts
    registry = facts.registry
    in_registry = registry is not None and (name in registry.topics or name in registry.invalid)
    if name in facts.view.topics or in_registry or is_being_deleted(facts, name):
        return
    if gathered.unreachable is not None:
        raise gathered.unreachable
    unknown = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
    raise unknown_topic_error(cluster, name, unknown)


def require_partition(facts: ClusterFacts, partition: TopicPartition) -> None:
    registry = facts.registry
    assigned = (
        ()
        if registry is None or partition.topic not in registry.topics
        else registry.topics[partition.topic].partitions
    )
    if partition.partition in assigned or is_being_deleted(facts, partition.topic):
        return
    if partition.topic in facts.view.topics:
        facts.view.partition(partition)  # raises if there is no such partition
    elif assigned:
        why = f"{partition.topic} has no partition {partition.partition}"
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)


def require_known_broker(facts: ClusterFacts, broker: int, servers: str) -> None:
    deleting = () if facts.registry is None else facts.registry.topics.values()
    assigned = {
        each for topic in deleting for part in topic.partitions.values() for each in part.replicas
    }
    if (
        broker in known_brokers(facts)
        or broker in assigned
        or broker in facts.history.known_brokers
    ):
        return
    unknown = ApiError(ErrorCode.BROKER_NOT_AVAILABLE)
    hint = f"see `barnabas brokers list{servers}`"
    raise ErrorWithHint(
        unknown, f"there is no broker {broker}, and no partition is assigned to it", hint
    )


# ---- healthy subjects -----------------------------------------------------------------------------------------


def healthy_topic(facts: ClusterFacts, name: str) -> str:
    topic = facts.view.topics.get(name)
    count = 0 if topic is None else len(topic.partitions)
    return f"healthy: {plural(count, 'partition')}, all replicas in sync, all led by their preferred leader"


def healthy_partition(facts: ClusterFacts, partition: TopicPartition) -> str:
    if partition.topic not in facts.view.topics:
        return "healthy"
    seen = facts.view.partition(partition)
    return f"healthy: led by broker {seen.leader}, replicas {join_numbers(seen.replicas)} in sync"


def healthy_broker(facts: ClusterFacts, broker: int) -> str:
    seen = [each for topic in facts.view.topics.values() for each in topic.partitions]
    leads = sum(each.leader == broker for each in seen)
    replicas = sum(broker in each.replicas for each in seen)
    role = ", the controller" if facts.controller == broker else ""
    return f"healthy{role}: leads {plural(leads, 'partition')}, has {plural(replicas, 'replica')}"
