"""`barnabas transactions describe`: state, producer, timeout and partitions of transactional ids."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.output import OutputFormat, number_ranges, show_or_watch
from barnabas.cli.transactions.list import NO_TRANSACTIONS, state_text
from barnabas.cli.transactions.lookup import (
    complete_transactional_ids,
    find_transaction,
    transactional_ids,
)
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.transaction_admin import TransactionAdmin, TransactionView
from barnabas.history.words import format_duration


@click.command("describe")
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=complete_transactional_ids)
@watch_option
@cluster_command
def describe_transactions(
    cluster: Cluster, ids: tuple[str, ...], watch: bool, output: OutputFormat
) -> None:
    """Show state, producer, timeout and partitions of the transactional ids, or of all."""
    admin = TransactionAdmin(cluster)

    def load() -> dict[str, Any]:
        wanted = dict.fromkeys(ids or transactional_ids(admin))
        views = [find_transaction(admin, each) for each in wanted]
        return {"transactions": [transaction_document(each, now_ms()) for each in views]}

    show_or_watch(watch, output, load, transactions_text)


def transaction_document(view: TransactionView, now: int) -> dict[str, Any]:
    return {
        "transactional_id": view.transactional_id,
        "state": view.state,
        "coordinator": view.coordinator,
        "producer_id": view.producer_id,
        "producer_epoch": view.producer_epoch,
        "timeout_ms": view.timeout_ms,
        "start_ms": view.start_ms,
        "open_ms": None if view.start_ms is None else max(0, now - view.start_ms),
        "partitions": [
            {"topic": each.topic, "partition": each.partition} for each in view.partitions
        ],
    }


def transactions_text(document: dict[str, Any]) -> str:
    return "\n\n".join(map(transaction_text, document["transactions"])) or NO_TRANSACTIONS


def transaction_text(transaction: dict[str, Any]) -> str:
    """
    transactional id orders-1: Ongoing for 12.0 s, timeout 1 min
      coordinator 127.0.0.1:9093, producer id 1000, epoch 3
      partitions orders 0-2; payments 0
    """
    open_ms = transaction["open_ms"]
    age = "" if open_ms is None else f" for {format_duration(open_ms)}"
    lines = [
        f"transactional id {transaction['transactional_id']}: {state_text(transaction['state'])}"
        f"{age}, timeout {format_duration(transaction['timeout_ms'])}",
        f"  coordinator {transaction['coordinator']}, producer id {transaction['producer_id']}, "
        f"epoch {transaction['producer_epoch']}",
    ]
    if transaction["partitions"]:
        lines.append(f"  partitions {topics_text(transaction['partitions'])}")
    return "\n".join(lines)


def topics_text(partitions: list[dict[str, Any]]) -> str:
    by_topic: dict[str, list[int]] = {}
    for each in partitions:
        by_topic.setdefault(each["topic"], []).append(each["partition"])
    return "; ".join(f"{topic} {number_ranges(found)}" for topic, found in by_topic.items())
