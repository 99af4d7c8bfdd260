"""`barnabas transactions find-hanging`: open transactions that no coordinator will end."""

from __future__ import annotations

from contextlib import suppress
from shlex import quote
from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command, servers_hint
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.output import OutputFormat, format_table, plural, show_or_watch
from barnabas.cli.topics.lookup import complete_topics, find_partitions
from barnabas.cli.transactions.lookup import longer_than_option, missing_coordinator
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.transaction_admin import OpenTransaction, TransactionAdmin
from barnabas.errors import ApiError
from barnabas.history.words import format_duration
from barnabas.model import TopicPartition


@click.command("find-hanging")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    help="Search only this topic; repeatable. Default: all topics, also internal ones.",
)
@longer_than_option(
    "15m",
    "Only transactions without a record for this time. It should be at least the brokers' transaction.max.timeout.ms.",
)
@watch_option
@cluster_command
def find_hanging_transactions(
    cluster: Cluster,
    topics: tuple[str, ...],
    longer_than_ms: int,
    watch: bool,
    output: OutputFormat,
) -> None:
    """Find transactions that are open in a partition, but that no coordinator will end.

    They stop all read_committed consumers of the partition. `transactions abort` ends them.
    """
    admin = TransactionAdmin(cluster)
    servers = servers_hint()

    def load() -> dict[str, Any]:
        partitions = led_partitions(cluster, topics)
        now = now_ms()
        try:
            found = admin.find_hanging(partitions, before_ms=now - longer_than_ms)
        except ApiError as error:
            raise missing_coordinator(error) from None
        return {
            "partitions_searched": len(partitions),
            "hanging": [hanging_document(each, now) for each in found],
        }

    show_or_watch(watch, output, load, lambda document: hanging_text(document, servers))


def led_partitions(cluster: Cluster, topics: tuple[str, ...]) -> list[TopicPartition]:
    """Return the partitions of these topics, or of all, that have a leader. Raises ApiError for an unknown topic."""
    view = cluster.refresh(None)
    names = dict.fromkeys(topics or sorted(view.topics))
    found = []
    for partition in [each for name in names for each in find_partitions(cluster, name, ())]:
        with suppress(ApiError):
            view.leader(partition)
            found.append(partition)
    return found


def hanging_document(transaction: OpenTransaction, now: int) -> dict[str, Any]:
    return {
        "topic": transaction.partition.topic,
        "partition": transaction.partition.partition,
        "start_offset": transaction.start_offset,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "coordinator_epoch": transaction.coordinator_epoch,
        "last_timestamp": transaction.last_timestamp,
        "idle_ms": max(0, now - transaction.last_timestamp),
    }


def hanging_text(document: dict[str, Any], servers: str) -> str:
    found = document["hanging"]
    if not found:
        return f"no hanging transactions in {plural(document['partitions_searched'], 'partition')}"
    keys = ["topic", "partition", "start_offset", "producer_id", "producer_epoch"]
    rows = [[*(each[key] for key in keys), format_duration(each["idle_ms"])] for each in found]
    heads = ["topic", "partition", "start offset", "producer id", "epoch", "last record before"]
    first = found[0]
    partition = quote(f"{first['topic']}-{first['partition']}")
    command = (
        f"barnabas transactions abort --partition {partition} "
        f"--start-offset {first['start_offset']}{servers}"
    )
    return f"{format_table(heads, rows)}\nnext: `{command}` ends the first one"
