"""`barnabas reassign plan`: show what a reassignment would move. Changes nothing."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command, servers_hint
from barnabas.cli.reassign.cluster_layout import read_layout
from barnabas.cli.reassign.execution import partitions_are, remove_leftovers
from barnabas.cli.reassign.goal_options import Goal, goal_options, make_plan, parse_goal
from barnabas.cli.reassign.picture import plan_document, plan_text
from barnabas.cli.terminal.output import (
    OutputFormat,
    plural,
    print_note,
    print_warning,
    show,
    to_json,
)
from barnabas.cli.terminal.units import parse_rate
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigResource
from barnabas.client.reassignment_admin import ReassignmentAdmin
from barnabas.errors import ApiError, ConfigError
from barnabas.reassignment.plan import ReassignmentPlan
from barnabas.wire.messages.describe_configs import ResourceType

MIN_ISR = "min.insync.replicas"

throttle_option = click.option(
    "--throttle",
    metavar="RATE",
    help="Limit for the copies per broker: 50MB/s, 512KiB/s, or bytes per second.",
)


@click.command("plan")
@click.argument("file", required=False)
@goal_options
@throttle_option
@click.option("--save", metavar="FILE", help="Write the plan to a file, for `reassign run FILE`.")
@cluster_command
def plan_reassignment(
    cluster: Cluster,
    file: str | None,
    throttle: str | None,
    save: str | None,
    output: OutputFormat,
    **goal: Any,
) -> None:
    """Show what a reassignment would move.

    The plan shows the load per broker before and after, the bytes to copy and the duration. It changes nothing. FILE is
    a plan in Kafka's JSON format; instead of it, give one goal.

    Example: barnabas reassign plan --add-broker 4 --throttle 50MB/s --save plan.json
    """
    rate = parse_rate("--throttle", throttle) if throttle else None
    chosen = parse_goal(file, **goal)
    remove_leftovers(cluster, dry_run=True)
    plan = plan_for(cluster, chosen)
    document = plan_document(plan, rate)
    if save:
        write_plan(save, document)
    show(output, document, plan_text)
    if output is OutputFormat.TEXT and plan.targets:
        print_next_step(save, throttle)


def plan_for(cluster: Cluster, goal: Goal) -> ReassignmentPlan:
    """Return a plan for the cluster as it is now, or as its reassignments in progress will leave it."""
    ongoing = ReassignmentAdmin(cluster).list_partition_reassignments()
    plan = make_plan(read_layout(cluster, ongoing), goal)
    if ongoing:
        print_warning(
            f"{partitions_are(len(ongoing))} being reassigned now: the plan starts from their new replicas"
        )
    warn_of_min_isr(cluster, plan)
    return plan


def warn_of_min_isr(cluster: Cluster, plan: ReassignmentPlan) -> None:
    """Warn of topics that would get fewer replicas than writes need."""
    counts: dict[str, int] = {}
    for partition, target in plan.targets.items():
        if len(target) < len(plan.layout.partitions[partition].replicas):
            counts[partition.topic] = min(len(target), counts.get(partition.topic, len(target)))
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in counts]
    found = ConfigAdmin(cluster).describe_configs(resources, names=[MIN_ISR]) if resources else {}
    for resource, entries in found.items():
        known = [] if isinstance(entries, ApiError) else entries
        minimum = max((int(each.value) for each in known if each.value), default=1)
        if minimum > counts[resource.name]:
            replicas = plural(counts[resource.name], "replica")
            print_warning(
                f"topic {resource.name} would have {replicas}, but {MIN_ISR}={minimum}: "
                "writes with acks=all would be rejected"
            )


def write_plan(path: str, document: dict[str, Any]) -> None:
    try:
        Path(path).write_text(f"{to_json(document, indent=2)}\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError("--save", f"{path} cannot be written: {error.strerror}") from None


def print_next_step(saved: str | None, throttle: str | None) -> None:
    if saved:
        option = f" --throttle {quote(throttle)}" if throttle else ""
        command = f"barnabas reassign run {quote(saved)}{option}{servers_hint()}"
        print_note(f"saved; to execute it: {command}")
    else:
        print_note("nothing was changed; `reassign run` with the same options executes the plan")
