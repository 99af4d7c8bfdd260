"""`barnabas topics describe`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import click

from barnabas.cli.cluster_command import cluster_command, servers_hint
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.colour import Style, paint
from barnabas.cli.terminal.output import (
    OutputFormat,
    format_table,
    join_numbers,
    plural,
    show_or_watch,
    wrap_around_commands,
)
from barnabas.cli.topics.list import painted_state, topic_summary, topic_table
from barnabas.cli.topics.lookup import complete_topics, find_topic
from barnabas.client.admin import Admin, ConfigEntry
from barnabas.client.cluster import Cluster
from barnabas.client.view import ClusterView, PartitionView, TopicView
from barnabas.explain.facts import ClusterFacts, parse_topic_settings
from barnabas.explain.finding import Finding, Severity, merge_findings
from barnabas.explain.partitions import explain_partition
from barnabas.explain.text import cause_text, next_text
from barnabas.explain.wording import plain_ranges
from barnabas.metadata.znodes import encode_uuid
from barnabas.model import ZERO_ID


@click.command("describe")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_topics)
@click.option(
    "--all-configs",
    is_flag=True,
    help="Show every setting, not only those that differ from the default.",
)
@watch_option
@cluster_command
def describe_topics(
    cluster: Cluster, names: tuple[str, ...], all_configs: bool, watch: bool, output: OutputFormat
) -> None:
    """Show partitions, leaders, replicas and settings of the named topics, or of all topics."""
    admin = Admin(cluster)
    servers = servers_hint()

    def load() -> dict[str, Any]:
        for name in names:
            find_topic(cluster, name)
        views = admin.describe_topics(names) if names else admin.list_topics()
        configs = admin.describe_topic_configs([view.name for view in views]) if views else {}
        return {
            "topics": [
                topic_document(view, configs.get(view.name, []), all_configs, cluster.view, servers)
                for view in views
            ]
        }

    show_or_watch(watch, output, load, described_topics_text)


def topic_document(
    view: TopicView,
    configs: list[ConfigEntry],
    all_configs: bool,
    cluster: ClusterView,
    servers: str = "",
) -> dict[str, Any]:
    values = {config.name: config.value for config in configs}
    facts = ClusterFacts(
        now_ms=0, view=cluster, topic_settings={view.name: parse_topic_settings(values)}
    )
    found = {each.partition: partition_problems(facts, view.name, each) for each in view.partitions}
    worst = merge_findings(finding for findings in found.values() for finding in findings)
    return {
        **topic_summary(view),
        "topic_id": topic_id_text(view.id),
        "configs": {
            config.name: config.value
            for config in sorted(configs, key=lambda config: config.name)
            if all_configs or not config.is_default
        },
        "partition_list": [
            partition_document(each, found[each.partition]) for each in view.partitions
        ],
        "next_step": next_text(worst[0], servers) if worst else None,
    }


def partition_problems(facts: ClusterFacts, topic: str, seen: PartitionView) -> list[Finding]:
    """Return what the metadata alone explains. `topics explain` also asks the brokers and reads the history."""
    found = explain_partition(facts, topic, seen, {})
    return [each for each in found if each.severity is not Severity.NOTE]


def topic_id_text(topic_id: UUID) -> str | None:
    """Return the id in the form of Kafka's tools; None from brokers before 2.8, which have no topic ids."""
    return None if topic_id == ZERO_ID else encode_uuid(topic_id)


def partition_document(partition: PartitionView, problems: list[Finding]) -> dict[str, Any]:
    return {
        "partition": partition.partition,
        "leader": None if partition.is_offline else partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "offline_replicas": list(partition.offline_replicas),
        "trouble": "; ".join(cause_text(each) for each in problems) or None,
    }


def described_topics_text(document: dict[str, Any]) -> str:
    return "\n\n".join(topic_text(topic) for topic in document["topics"]) or topic_table(document)


def topic_text(topic: dict[str, Any]) -> str:
    lines = [
        f"topic {topic['topic']}: {plural(topic['partitions'], 'partition')}, "
        f"replication factor {topic['replication_factor']}, {painted_state(topic)}"
    ]
    if topic["topic_id"]:
        lines.append(f"  id {topic['topic_id']}")
    lines += [f"  {name} = {value}" for name, value in topic["configs"].items()]
    rows = [
        [
            partition["partition"],
            paint("none", Style.BAD) if partition["leader"] is None else partition["leader"],
            join_numbers(partition["replicas"]),
            join_numbers(partition["isr"]),
            paint(missing_replicas(partition), Style.WARNING),
        ]
        for partition in topic["partition_list"]
    ]
    lines.append(format_table(["partition", "leader", "replicas", "isr", "missing"], rows))
    return "\n".join([*lines, *diagnosis_lines(topic)])


def missing_replicas(partition: dict[str, Any]) -> str:
    return join_numbers(each for each in partition["replicas"] if each not in partition["isr"])


def diagnosis_lines(topic: dict[str, Any]) -> list[str]:
    """Return one line per diagnosis, with all partitions that share it, and the next step."""
    diagnoses: dict[str, list[int]] = {}
    for partition in topic["partition_list"]:
        if partition["trouble"]:
            diagnoses.setdefault(partition["trouble"], []).append(partition["partition"])
    lines = [
        f"  partition{'s' if len(partitions) > 1 else ''} {plain_ranges(partitions)}: {why}"
        for why, partitions in diagnoses.items()
    ]
    lines += [f"  next: {topic['next_step']}"] if lines else []
    return [wrap_around_commands(line, indent=4) for line in lines]
