"""`barnabas transactions list`."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.colour import Style, paint
from barnabas.cli.terminal.output import OutputFormat, format_table, show_or_watch
from barnabas.cli.transactions.lookup import longer_than_option
from barnabas.client.cluster import Cluster
from barnabas.client.transaction_admin import TransactionAdmin, TransactionListing

NO_TRANSACTIONS = "no transactional ids; a producer with a transactional id creates one"
NO_MATCH = "no transactional id matches"
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
)
STATE_STYLES = {
    "Ongoing": Style.GOOD,
    "PrepareCommit": Style.WARNING,
    "PrepareAbort": Style.WARNING,
    "PrepareEpochFence": Style.WARNING,
    "Empty": Style.FAINT,
}


@click.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only transactional ids in this state; repeatable.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only that of this producer id; repeatable.",
)
@longer_than_option(
    None,
    "Only transactional ids whose last transaction began longer ago, as in 90s or 15m. It may have ended: add --state "
    "ongoing for open ones.",
)
@watch_option
@cluster_command
def list_transactions(
    cluster: Cluster,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than_ms: int | None,
    watch: bool,
    output: OutputFormat,
) -> None:
    """List the transactional ids and their states."""
    admin = TransactionAdmin(cluster)
    nothing = NO_MATCH if states or producer_ids or longer_than_ms is not None else NO_TRANSACTIONS

    def load() -> dict[str, Any]:
        found = admin.list_transactions(
            states=states, producer_ids=producer_ids, longer_than_ms=longer_than_ms
        )
        return {"transactions": [listing_document(each) for each in found]}

    show_or_watch(watch, output, load, lambda document: listing_table(document) or nothing)


def listing_document(listed: TransactionListing) -> dict[str, Any]:
    return {
        "transactional_id": listed.transactional_id,
        "state": listed.state,
        "producer_id": listed.producer_id,
        "coordinator": listed.coordinator,
    }


def listing_table(document: dict[str, Any]) -> str:
    """Return the table, or an empty text if there are no rows."""
    rows = [
        [
            each["transactional_id"],
            state_text(each["state"]),
            each["producer_id"],
            each["coordinator"],
        ]
        for each in document["transactions"]
    ]
    heads = ["transactional id", "state", "producer id", "coordinator"]
    return format_table(heads, rows) if rows else ""


def state_text(state: str) -> str:
    return paint(state, STATE_STYLES.get(state))
