"""`barnabas groups explain`."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.cluster_command import servers_hint
from barnabas.cli.explain.commands import explain_command
from barnabas.cli.explain.group_gather import gather_group_facts
from barnabas.cli.explain.output import explanation_document, explanation_text
from barnabas.cli.explain.registry_facts import RegistryPlace
from barnabas.cli.groups.lookup import complete_groups, group_names, unknown_group_error
from barnabas.cli.terminal.output import OutputFormat, plural, show_or_watch
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.explain.group_facts import GroupFacts
from barnabas.explain.groups import explain_group, total_lag


@click.command("explain")
@click.argument("name", metavar="ID", shell_complete=complete_groups)
@click.option(
    "--sample",
    "sample_s",
    type=click.FloatRange(min=0.0),
    default=1.5,
    show_default=True,
    metavar="SECONDS",
    help="If the group lags, compare its offsets after this time.",
)
@click.option(
    "--stalled-after",
    "stalled_after_s",
    type=click.FloatRange(min=0.0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Report members that commit nothing for this time, and uncommitted records that are older.",
)
@explain_command
def explain_group_command(
    cluster: Cluster,
    place: RegistryPlace,
    name: str,
    sample_s: float,
    stalled_after_s: float,
    watch: bool,
    output: OutputFormat,
) -> None:
    """Explain what is wrong with group ID: no coordinator, a stuck rebalance, lag, offsets out of range."""
    servers = servers_hint()

    def load() -> dict[str, Any]:
        facts = gather_group_facts(
            cluster, place, name, sample_s=sample_s, stalled_after_s=stalled_after_s
        )
        if facts.view is not None and not facts.view.exists:
            raise unknown_group_error(name, group_names(GroupAdmin(cluster)))
        document = explanation_document(
            f"group {name}",
            explain_group(facts),
            facts=facts.cluster,
            servers=servers,
            healthy=healthy_group(facts),
        )
        state = None if facts.view is None else facts.view.state
        return {**document, "state": state, "lag": total_lag(facts)}

    show_or_watch(watch, output, load, explanation_text)


def healthy_group(facts: GroupFacts) -> str:
    members = 0 if facts.view is None else len(facts.view.members)
    state = "" if facts.view is None else facts.view.state
    return f"healthy: {state}, {plural(members, 'member')}, lag {total_lag(facts):,}"
