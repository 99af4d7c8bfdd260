"""`barnabas topics list`."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.options import bootstrap_option, output_option, timeout_option, watch_option
from barnabas.cli.terminal.output import OutputFormat, format_table, show_or_watch
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.view import TopicView


@click.command("list")
@click.option("--internal/--no-internal", default=False, help="Whether to list internal topics.")
@watch_option
@bootstrap_option
@timeout_option
@output_option
def list_topics(
    internal: bool, watch: bool, bootstrap_servers: str, timeout_s: float, output: OutputFormat
) -> None:
    """List all topics and their state."""
    with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
        admin = Admin(cluster)
        show_or_watch(
            watch,
            output,
            lambda: {
                "topics": [
                    topic_summary(topic)
                    for topic in admin.list_topics()
                    if internal or not topic.is_internal
                ]
            },
            topic_table,
        )


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
    heads = ["topic", "partitions", "replicas", "state"]
    rows = [
        [topic["topic"], topic["partitions"], topic["replication_factor"], state_text(topic)]
        for topic in document["topics"]
    ]
    return format_table(heads, rows)


def state_text(topic: dict[str, Any]) -> str:
    counts = [f"{topic[key]} {word}" for key, word in DEGRADED_STATES.items() if topic[key]]
    return ", ".join(counts) or "ok"


DEGRADED_STATES = {"offline": "offline", "under_replicated": "under-replicated"}
"""Key of the document → word of the text."""
