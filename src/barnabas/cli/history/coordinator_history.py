"""`barnabas groups history` and `barnabas transactions history`: what happened to a group or a transactional id.

    2026-05-01 coordinator 2, epoch 3
      08:00:03.131  rebalanced to generation 1 with 2 members: member app-6b1f… joins
      08:03:10.002  removed member app-6b1f…, 1 member left: its session expired after 45000 ms

The events come from the topic `__state_changes`, as for `barnabas topics history`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.groups.lookup import complete_groups, find_group
from barnabas.cli.history.availability import print_no_events, require_history
from barnabas.cli.history.coordinator_narrator import CoordinatorNarrator
from barnabas.cli.history.coordinator_timeline import (
    CoordinatorEvents,
    GroupEvents,
    TransactionEvents,
)
from barnabas.cli.history.event_output import (
    follow_option,
    parse_start,
    show_history,
    since_option,
)
from barnabas.cli.terminal.output import OutputFormat, plural, print_note
from barnabas.cli.transactions.lookup import complete_transactional_ids, find_transaction
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.errors import ApiError


@click.command("history")
@click.argument("name", shell_complete=complete_groups)
@since_option
@follow_option
@cluster_command
def group_history(
    cluster: Cluster, name: str, since: str | None, follow: bool, output: OutputFormat
) -> None:
    """Show the history of group NAME: rebalances with their reasons, removed members, coordinators."""

    show_coordinator_history(
        cluster,
        GroupEvents(name),
        {"group": name},
        find=lambda: find_group(GroupAdmin(cluster), name),
        since=since,
        follow=follow,
        output=output,
    )


@click.command("history")
@click.argument("transactional_id", metavar="ID", shell_complete=complete_transactional_ids)
@since_option
@follow_option
@cluster_command
def transaction_history(
    cluster: Cluster, transactional_id: str, since: str | None, follow: bool, output: OutputFormat
) -> None:
    """Show the history of transactional id ID: aborts by its coordinator, fenced producers, coordinators."""
    admin = TransactionAdmin(cluster)

    producer_ids = []
    with suppress(ApiError):  # it may have expired
        producer_ids.append(admin.describe_transaction(transactional_id).producer_id)
    show_coordinator_history(
        cluster,
        TransactionEvents(transactional_id, producer_ids),
        {"transactional_id": transactional_id},
        find=lambda: find_transaction(admin, transactional_id),
        since=since,
        follow=follow,
        output=output,
    )


def show_coordinator_history(
    cluster: Cluster,
    timeline: CoordinatorEvents,
    head: dict[str, str],
    *,
    find: Callable[[], object],
    since: str | None,
    follow: bool,
    output: OutputFormat,
) -> None:
    """Show the events. If there are none, `find` raises an error for an unknown name."""
    start = parse_start(since)
    (name,) = head.values()

    def report_nothing() -> None:
        find()
        print_no_events(name, start)

    require_history(cluster, if_disabled="until then nothing is recorded")
    show_history(
        cluster,
        start,
        timeline,
        CoordinatorNarrator(),
        head=head,
        follow=follow,
        output=output,
        report_nothing=report_nothing,
    )
    if timeline.left_out:
        events = plural(timeline.left_out, "event")
        print_note(f"{events} of groups and transactions were not recorded: too many at once")
