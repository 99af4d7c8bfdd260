"""`barnabas reassign run`: execute a plan, and wait until it is complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from barnabas.byte_units import bytes_text
from barnabas.cli.cluster_command import cluster_command, servers_hint
from barnabas.cli.options import dry_run_option, yes_option
from barnabas.cli.reassign.execution import (
    PlanExecution,
    check_no_reassignment,
    confirm_reassignment,
    remove_leftovers,
    result_text,
)
from barnabas.cli.reassign.goal_options import Goal, goal_options, parse_goal
from barnabas.cli.reassign.picture import plan_document, plan_text
from barnabas.cli.reassign.plan import plan_for, throttle_option
from barnabas.cli.terminal.output import (
    OutputFormat,
    plural,
    print_lines,
    print_note,
    printable_document,
    show,
)
from barnabas.cli.terminal.units import parse_rate
from barnabas.client.cluster import Cluster
from barnabas.errors import ConfigError
from barnabas.reassignment.plan import ReassignmentPlan

no_wait_option = click.option(
    "--no-wait", is_flag=True, help="Return as soon as the reassignment is started."
)


def execution_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of commands that execute a plan."""
    for option in reversed(
        [
            throttle_option,
            click.option(
                "--batch", "batch_size", type=click.IntRange(min=1), metavar="N",
                help="Move N partitions at a time, the next batch after the previous one.",
            ),
            click.option("--additional", is_flag=True, help="Run in addition to reassignments in progress."),
            dry_run_option,
            yes_option,
        ]
    ):  # fmt: skip
        command = option(command)
    return command


@click.command("run")
@click.argument("file", required=False)
@goal_options
@execution_options
@no_wait_option
@cluster_command
def run_reassignment(
    cluster: Cluster,
    file: str | None,
    throttle: str | None,
    batch_size: int | None,
    additional: bool,
    no_wait: bool,
    dry_run: bool,
    yes: bool,
    output: OutputFormat,
    **goal: Any,
) -> None:
    """Execute a plan, and wait until it is complete.

    FILE comes from `reassign plan --save`, or is any file in Kafka's JSON format; instead of it, give one goal. The
    throttle is removed at the end. On Ctrl-C the reassignment continues.

    Example: barnabas reassign run --add-broker 4 --throttle 50MB/s
    """
    run_goal(
        cluster,
        parse_goal(file, **goal),
        throttle=throttle,
        batch_size=batch_size,
        additional=additional,
        no_wait=no_wait,
        dry_run=dry_run,
        yes=yes,
        output=output,
    )


def run_goal(
    cluster: Cluster,
    goal: Goal,
    *,
    throttle: str | None,
    batch_size: int | None,
    additional: bool,
    no_wait: bool,
    dry_run: bool,
    yes: bool,
    output: OutputFormat,
) -> None:
    """Plan for a goal, ask, execute the plan and show the result. Exits with 1 if a partition failed."""
    rate = parse_rate("--throttle", throttle) if throttle else None
    if no_wait and batch_size:
        raise ConfigError(
            "--batch", "cannot be combined with --no-wait: each batch waits for the previous one"
        )
    plan = prepare_plan(cluster, goal, additional=additional, dry_run=dry_run)
    planned = plan_document(plan, rate)
    if dry_run or not plan.targets:
        show(
            output,
            {"dry_run": dry_run, "plan": planned},
            lambda document: plan_text(document["plan"]),
        )
        return
    confirm_and_print(plan, rate, yes=yes, output=output)
    execution = PlanExecution(
        cluster, plan, throttle=rate, batch_size=batch_size, is_waiting=not no_wait
    )
    result = execution.execute()
    show(
        output,
        {"dry_run": False, "plan": planned, "result": result},
        lambda document: result_text(document["result"]),
    )
    if no_wait:
        print_note(f"follow it: barnabas reassign status --watch{servers_hint()}")
    if result["failed"]:
        raise click.exceptions.Exit(1)


def prepare_plan(
    cluster: Cluster, goal: Goal, *, additional: bool, dry_run: bool
) -> ReassignmentPlan:
    """Return the plan for a goal, after the checks of a command that will execute it."""
    remove_leftovers(cluster, dry_run=dry_run)
    if not dry_run and not additional:
        check_no_reassignment(cluster)
    return plan_for(cluster, goal)


def confirm_and_print(
    plan: ReassignmentPlan, throttle: int | None, *, yes: bool, output: OutputFormat
) -> None:
    """Print the plan, if the output is text, and ask."""
    if output is OutputFormat.TEXT:
        text = plan_text(printable_document(plan_document(plan, throttle)))
        print_lines(*text.split("\n"), "")
    confirm_reassignment(f"{run_question(plan)}?", yes=yes)


def run_question(plan: ReassignmentPlan) -> str:
    """Return `Reassign 4 partitions and copy 1.2 GB`."""
    text = f"Reassign {plural(len(plan.targets), 'partition')}"
    return f"{text} and copy {bytes_text(plan.copied_bytes)}" if plan.copies else text
