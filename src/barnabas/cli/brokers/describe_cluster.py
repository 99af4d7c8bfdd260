"""`barnabas cluster describe`: the cluster, its controller and brokers, and its numbers of topics and partitions."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.brokers.controller import read_controller_epoch
from barnabas.cli.brokers.list import broker_table, brokers_document
from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.output import OutputFormat, show_or_watch
from barnabas.client.cluster import Cluster
from barnabas.client.view import ClusterView


@click.command("describe")
@watch_option
@cluster_command
def describe_cluster(cluster: Cluster, watch: bool, output: OutputFormat) -> None:
    """Show the cluster: its id, controller, brokers, and the numbers of topics, partitions and replicas."""

    def load() -> dict[str, Any]:
        view = cluster.refresh(None)
        is_led = view.controller in view.brokers
        epoch = read_controller_epoch(cluster, view.controller) if is_led else None
        return described_cluster(view, epoch)

    show_or_watch(watch, output, load, described_cluster_text)


def described_cluster(view: ClusterView, controller_epoch: int | None) -> dict[str, Any]:
    partitions = [each for topic in view.topics.values() for each in topic.partitions]
    found = brokers_document(view)
    return {
        "cluster_id": found["cluster_id"],
        "controller": found["controller"],
        "controller_epoch": controller_epoch,
        "topics": sum(not topic.is_internal for topic in view.topics.values()),
        "internal_topics": sum(topic.is_internal for topic in view.topics.values()),
        "partitions": len(partitions),
        "replicas": sum(len(each.replicas) for each in partitions),
        "offline": sum(each.is_offline for each in partitions),
        "under_replicated": sum(each.is_under_replicated for each in partitions),
        "brokers": found["brokers"],
    }


def described_cluster_text(document: dict[str, Any]) -> str:
    alive = sum(broker["alive"] for broker in document["brokers"])
    epoch = document["controller_epoch"]
    controller = "none" if document["controller"] is None else f"broker {document['controller']}"
    rows = {
        "cluster id": document["cluster_id"] or "unknown",
        "controller": controller + ("" if epoch is None else f", epoch {epoch}"),
        "brokers": f"{alive} alive, {len(document['brokers']) - alive} not alive",
        "topics": f"{document['topics']:,}, and {document['internal_topics']} internal",
        "partitions": f"{document['partitions']:,}: {document['offline']:,} offline, "
        f"{document['under_replicated']:,} under-replicated",
        "replicas": f"{document['replicas']:,}",
    }
    lines = [f"{name.ljust(12)}{value}" for name, value in rows.items()]
    return "\n".join([*lines, "", broker_table(document)])
