"""`barnabas topics list`."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.colour import Style, paint
from barnabas.cli.terminal.output import OutputFormat, format_table, show_or_watch
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.view import TopicView


@click.command("list")
@click.option(
    "--internal/--no-internal", default=False, help="Also list internal topics; default: no."
)
@watch_option
@cluster_command
def list_topics(cluster: Cluster, internal: bool, watch: bool, output: OutputFormat) -> None:
    """List the topics and their state."""

    def load() -> dict[str, Any]:
        found = Admin(cluster).list_topics()
        shown = [topic for topic in found if internal or not topic.is_internal]
        return {"topics": [topic_summary(topic) for topic in shown]}

    show_or_watch(watch, output, load, topic_table)


def topic_summary(topic: TopicView) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "under_replicated": sum(partition.is_under_replicated for partition in topic.partitions),
        "offline": sum(partition.is_offline for partition in topic.partitions),
        "internal": topic.is_internal,
    }


def topic_table(document: dict[str, Any]) -> str:
    if not document["topics"]:
        return "no topics yet; create one with `barnabas topics create NAME`"
    rows = [
        [topic["topic"], topic["partitions"], topic["replication_factor"], painted_state(topic)]
        for topic in document["topics"]
    ]
    return format_table(["topic", "partitions", "replicas", "state"], rows)


def painted_state(topic: dict[str, Any]) -> str:
    """Return the state, in colour on a terminal."""
    style = Style.BAD if topic["offline"] else Style.WARNING
    if not topic["offline"] and not topic["under_replicated"]:
        style = Style.GOOD
    return paint(state_text(topic), style)


def state_text(topic: dict[str, Any]) -> str:
    keys = ("offline", "under_replicated")
    return ", ".join(f"{topic[key]} {key.replace('_', '-')}" for key in keys if topic[key]) or "ok"
