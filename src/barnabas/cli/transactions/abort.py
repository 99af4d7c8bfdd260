"""`barnabas transactions abort`: abort the transaction of a transactional id, or a hanging one.

barnabas transactions abort orders-1                                the coordinator aborts it, its producer is fenced
barnabas transactions abort --partition orders-0 --start-offset 42  a hanging one: writes the marker to one partition
"""

from __future__ import annotations

from shlex import quote
from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command, servers_hint
from barnabas.cli.explain.commands import parse_partition_name
from barnabas.cli.options import dry_run_option, yes_option
from barnabas.cli.terminal.failure import CommandError, ErrorWithHint
from barnabas.cli.terminal.output import OutputFormat, confirm, plural, show
from barnabas.cli.topics.lookup import find_partitions
from barnabas.cli.transactions.describe import transaction_document
from barnabas.cli.transactions.find_hanging import hanging_document
from barnabas.cli.transactions.lookup import (
    complete_transactional_ids,
    find_transaction,
    missing_coordinator,
)
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.transaction_admin import (
    ONGOING_STATE,
    OpenTransaction,
    TransactionAdmin,
    is_hanging,
)
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import TopicPartition


@click.command("abort")
@click.argument(
    "transactional_id", metavar="[ID]", required=False, shell_complete=complete_transactional_ids
)
@click.option(
    "--partition",
    "partition_name",
    metavar="TOPIC-PARTITION",
    help="Abort a hanging transaction in this partition, such as orders-0.",
)
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    help="First offset of the hanging transaction; see `transactions find-hanging`.",
)
@click.option(
    "--force",
    is_flag=True,
    help="With --partition: do not check that the transaction hangs. If its coordinator still has "
    "it, a part of it may be committed later.",
)
@yes_option
@dry_run_option
@cluster_command
def abort_transaction_command(
    cluster: Cluster,
    transactional_id: str | None,
    partition_name: str | None,
    start_offset: int | None,
    force: bool,
    yes: bool,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Abort the open transaction of ID and fence its producer, or abort a hanging transaction in one partition."""
    admin = TransactionAdmin(cluster)
    if transactional_id is not None:
        if partition_name is not None or start_offset is not None or force:
            raise ConfigError("ID", "cannot be combined with --partition, --start-offset, --force")
        document = abort_by_id(admin, transactional_id, yes=yes, dry_run=dry_run)
    elif partition_name is not None and start_offset is not None:
        (partition,) = [parse_partition_name(partition_name)]
        find_partitions(cluster, partition.topic, (partition.partition,))
        document = abort_hanging(
            admin, partition, start_offset, force=force, yes=yes, dry_run=dry_run
        )
    else:
        why = "write ID, or both --partition and --start-offset for a hanging transaction"
        raise ConfigError("ID", why)
    show(output, document, aborted_text)


def abort_by_id(
    admin: TransactionAdmin, transactional_id: str, *, yes: bool, dry_run: bool
) -> dict[str, Any]:
    view = find_transaction(admin, transactional_id)
    if view.state != ONGOING_STATE:
        name = quote(transactional_id)
        raise ErrorWithHint(
            ApiError(ErrorCode.INVALID_TXN_STATE),
            f"transactional id {transactional_id!r} has no open transaction: it is {view.state}",
            f"`barnabas transactions describe {name}{servers_hint()}` shows its state",
        )
    if not dry_run:
        question = f"Abort the transaction of {transactional_id} and fence its producer?"
        confirm(question, yes=yes, purpose="to abort", if_refused="nothing was aborted")
        admin.abort_transaction(view)
    document = transaction_document(view, now_ms())
    del document["state"]  # it was the state before
    return {**document, "aborted": not dry_run, "dry_run": dry_run}


def abort_hanging(
    admin: TransactionAdmin,
    partition: TopicPartition,
    start_offset: int,
    *,
    force: bool,
    yes: bool,
    dry_run: bool,
) -> dict[str, Any]:
    """Write an abort marker.

    The leader is asked again after the coordinators: if the same transaction is still open, none of them has ended it
    in between.
    """
    transaction = find_open_transaction(admin, partition, start_offset)
    if not force:
        require_hanging(admin, transaction)
        transaction = find_open_transaction(admin, partition, start_offset)
    if not dry_run:
        question = f"Abort the transaction in {partition} at offset {start_offset}?"
        confirm(question, yes=yes, purpose="to abort", if_refused="nothing was aborted")
        admin.write_abort_marker(transaction)
    document = hanging_document(transaction, now_ms())
    return {**document, "aborted": not dry_run, "dry_run": dry_run}


def find_open_transaction(
    admin: TransactionAdmin, partition: TopicPartition, start_offset: int
) -> OpenTransaction:
    found = admin.open_transactions([partition])
    for each in found:
        if each.start_offset == start_offset:
            return each
    offsets = ", ".join(str(each.start_offset) for each in found)
    raise CommandError(
        f"no transaction is open in {partition} from offset {start_offset} on",
        f"open transactions begin at {offsets}" if found else "the partition has none",
    )


def require_hanging(admin: TransactionAdmin, transaction: OpenTransaction) -> None:
    """Raise an error if a coordinator may still have the transaction: it would end it in all partitions."""
    try:
        known = admin.known_transactions({transaction.producer_id})
    except ApiError as error:
        raise missing_coordinator(error, "; --force skips this check") from None
    if is_hanging(transaction, known):
        return
    view = known[transaction.producer_id]
    name = quote(view.transactional_id)
    raise ErrorWithHint(
        ApiError(ErrorCode.INVALID_TXN_STATE),
        f"the transaction does not hang: it belongs to {view.transactional_id!r}, "
        f"which is {view.state}",
        f"`barnabas transactions abort {name}{servers_hint()}` aborts all of it",
    )


def aborted_text(document: dict[str, Any]) -> str:
    verb = "would abort" if document["dry_run"] else "aborted"
    if "transactional_id" in document:
        partitions = plural(len(document["partitions"]), "partition")
        return f"{verb} the transaction of {document['transactional_id']} in {partitions}"
    partition = f"{document['topic']}-{document['partition']}"
    return f"{verb} the transaction in {partition} at offset {document['start_offset']}"
