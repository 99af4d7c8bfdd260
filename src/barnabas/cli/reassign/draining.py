"""`barnabas brokers drain` and `brokers decommission`: move all replicas away from a broker."""

from __future__ import annotations

import time
from typing import Any

import click

from barnabas.cli.brokers.local_process import local_broker_pid, request_shutdown
from barnabas.cli.cluster_command import cluster_command, servers_hint
from barnabas.cli.reassign.cluster_layout import read_layout, read_log_sizes
from barnabas.cli.reassign.execution import PlanExecution, check_no_reassignment, result_text
from barnabas.cli.reassign.goal_options import Goal
from barnabas.cli.reassign.plan import plan_for
from barnabas.cli.reassign.run import (
    confirm_and_print,
    execution_options,
    no_wait_option,
    run_plan,
)
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.terminal.output import OutputFormat, plural, show
from barnabas.cli.terminal.units import parse_rate
from barnabas.client.admin import Admin
from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.reassignment_admin import ReassignmentAdmin
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId, TopicPartition

ROUNDS_MAX = 3
"""A topic that is created during a drain may get replicas on the broker: they move in another round."""
POLL_S = 0.2


@click.command("drain")
@click.argument("broker", type=click.IntRange(min=0), metavar="ID")
@execution_options
@no_wait_option
@cluster_command
def drain_broker(
    cluster: Cluster,
    broker: int,
    throttle: str | None,
    batch_size: int | None,
    additional: bool,
    no_wait: bool,
    dry_run: bool,
    yes: bool,
    output: OutputFormat,
) -> None:
    """Move all replicas away from broker ID. The broker may be down; it stays in the cluster.

    Example: barnabas brokers drain 3 --throttle 50MB/s
    """
    rate = parse_rate("--throttle", throttle) if throttle else None
    if not additional and not dry_run:
        check_no_reassignment(ReassignmentAdmin(cluster).list_partition_reassignments())
    run_plan(
        cluster,
        plan_for(cluster, Goal(drained=(broker,))),
        throttle=rate,
        batch_size=batch_size,
        is_waiting=not no_wait,
        dry_run=dry_run,
        yes=yes,
        output=output,
    )


@click.command("decommission")
@click.argument("broker", type=click.IntRange(min=0), metavar="ID")
@click.option(
    "--stop", is_flag=True, help="Stop the broker afterwards, if it is a process on this machine."
)
@execution_options
@cluster_command
def decommission_broker(
    cluster: Cluster,
    broker: int,
    stop: bool,
    throttle: str | None,
    batch_size: int | None,
    additional: bool,
    dry_run: bool,
    yes: bool,
    output: OutputFormat,
) -> None:
    """Drain broker ID, until it can be stopped.

    Moves all replicas away, and waits until the broker has deleted its logs.

    Example: barnabas brokers decommission 3 --throttle 50MB/s
    """
    rate = parse_rate("--throttle", throttle) if throttle else None
    if not additional and not dry_run:
        check_no_reassignment(ReassignmentAdmin(cluster).list_partition_reassignments())
    plan = plan_for(cluster, Goal(drained=(broker,)))
    if dry_run:
        run_plan(
            cluster, plan, throttle=rate, batch_size=batch_size, is_waiting=True, dry_run=True, yes=yes, output=output
        )  # fmt: skip
        return
    results = []
    for number in range(ROUNDS_MAX):
        if not plan.targets:
            break
        confirm_and_print(plan, rate, yes=yes or number > 0, output=output)
        execution = PlanExecution(cluster, plan, throttle=rate, batch_size=batch_size)
        results.append(execution.execute())
        if not assigned_partitions(cluster, broker):
            break
        plan = plan_for(cluster, Goal(drained=(broker,)))
    check_unassigned(cluster, broker)
    document = {"broker": broker, "rounds": results, **await_empty(cluster, broker)}
    if stop:
        document["stopped"] = stop_local_broker(cluster, broker)
    show(output, document, decommission_text)


def assigned_partitions(cluster: Cluster, broker: int) -> list[TopicPartition]:
    """Return the partitions that have a replica on the broker, or will have one."""
    layout = read_layout(cluster, ReassignmentAdmin(cluster).list_partition_reassignments())
    return [each for each, placed in layout.partitions.items() if broker in placed.replicas]


def check_unassigned(cluster: Cluster, broker: int) -> None:
    """Raise ApiError if partitions are still assigned to the broker."""
    left = assigned_partitions(cluster, broker)
    if left:
        raise ErrorWithHint(
            ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS),
            f"broker {broker} still has {plural(len(left), 'replica')}, such as {left[0]}",
            f"see `barnabas reassign status{servers_hint()}`, then run this again",
        )


def await_empty(cluster: Cluster, broker: int) -> dict[str, Any]:
    """Wait until the broker has deleted its logs. Returns facts about the broker."""
    view = cluster.refresh([])
    if broker not in view.brokers:
        return {"alive": False, "controller": False, "logs": None, "pid": None}
    deadline = Deadline(cluster.timeout_s)
    while (logs := read_log_sizes(cluster, [broker], None)) and not deadline.passed:
        time.sleep(POLL_S)
    directories = Admin(cluster).log_dirs([BrokerId(broker)])[BrokerId(broker)]
    return {
        "alive": True,
        "controller": view.controller == broker,
        "logs": len(logs),
        "pid": local_broker_pid(cluster, BrokerId(broker), [each.log_dir for each in directories]),
    }


def stop_local_broker(cluster: Cluster, broker: int) -> bool:
    """Stop the broker and wait until it has left the cluster. Raises ApiError if it runs elsewhere."""
    facts = await_empty(cluster, broker)
    if not facts["alive"]:
        return True
    if facts["pid"] is None:
        raise ErrorWithHint(
            ApiError(ErrorCode.BROKER_NOT_AVAILABLE),
            f"broker {broker} is not a process of its own on this machine",
            "it is drained: stop it where it runs",
        )
    request_shutdown(facts["pid"])
    deadline = Deadline(cluster.timeout_s)
    while broker in cluster.retry(lambda: cluster.refresh([]), refresh=False).brokers:
        if deadline.passed:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"broker {broker} (pid {facts['pid']}) is still alive"
            )
        time.sleep(POLL_S)
    return True


def decommission_text(document: dict[str, Any]) -> str:
    broker = document["broker"]
    lines = [result_text(each) for each in document["rounds"]]
    if document.get("stopped"):
        lines.append(f"broker {broker} is empty and stopped")
    elif not document["alive"]:
        lines.append(f"broker {broker} is down and has no replicas: it need not come back")
    elif document["logs"]:
        lines.append(
            f"broker {broker} has no replicas; {plural(document['logs'], 'log')} not deleted yet: "
            "wait before you remove its disk"
        )
    else:
        lines.append(f"broker {broker} is empty and can be stopped{how_to_stop(document)}")
    if document["controller"] and not document.get("stopped"):
        lines.append("it is the controller: another broker takes over when it stops")
    return "\n".join(lines)


def how_to_stop(document: dict[str, Any]) -> str:
    if document["pid"] is None:
        return " (SIGTERM or Ctrl-C where it runs)"
    return f": kill {document['pid']}, or use --stop"
