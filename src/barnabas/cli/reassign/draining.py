"""`barnabas brokers drain` and `brokers decommission`: move all replicas away from a broker."""

from __future__ import annotations

import time
from typing import Any

import click

from barnabas.cli.brokers.local_process import local_broker_pid, request_shutdown
from barnabas.cli.cluster_command import cluster_command, servers_hint
from barnabas.cli.reassign.cluster_layout import layout_from_view, read_log_sizes
from barnabas.cli.reassign.execution import PlanExecution, result_text
from barnabas.cli.reassign.goal_options import Goal
from barnabas.cli.reassign.picture import plan_document, plan_text
from barnabas.cli.reassign.plan import plan_for
from barnabas.cli.reassign.run import (
    confirm_and_print,
    execution_options,
    no_wait_option,
    prepare_plan,
    run_goal,
)
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.terminal.output import OutputFormat, plural, show
from barnabas.cli.terminal.units import parse_rate
from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.log_dir_admin import LogDirAdmin
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
def drain_broker(cluster: Cluster, broker: int, **options: Any) -> None:
    """Move all replicas away from broker ID. The broker may be down; it stays in the cluster.

    Example: barnabas brokers drain 3 --throttle 50MB/s
    """
    run_goal(cluster, Goal(drained=(broker,)), **options)


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
    goal = Goal(drained=(broker,))
    rate = parse_rate("--throttle", throttle) if throttle else None
    plan = prepare_plan(cluster, goal, additional=additional, dry_run=dry_run)
    if stop:
        find_stoppable_pid(cluster, broker)
    if dry_run:
        document = {"dry_run": True, "plan": plan_document(plan, rate)}
        show(output, document, lambda shown: plan_text(shown["plan"]))
        return
    left = assigned_partitions(cluster, broker)
    results: list[dict[str, Any]] = []
    while left and len(results) < ROUNDS_MAX:
        if results:
            plan = plan_for(cluster, goal)
        confirm_and_print(plan, rate, yes=yes or bool(results), output=output)
        execution = PlanExecution(cluster, plan, throttle=rate, batch_size=batch_size)
        results.append(execution.execute())
        left = assigned_partitions(cluster, broker)
    if left:
        raise ErrorWithHint(
            ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS),
            f"broker {broker} still has {plural(len(left), 'replica')}, such as {left[0]}",
            f"see `barnabas reassign status{servers_hint()}`, then run this again",
        )
    document = {"broker": broker, "rounds": results, **await_empty(cluster, broker)}
    if stop:
        stop_local_broker(cluster, broker)
        document["stopped"] = True
    show(output, document, decommission_text)


def assigned_partitions(cluster: Cluster, broker: int) -> list[TopicPartition]:
    """Return the partitions that have a replica on the broker, or will have one."""
    ongoing = ReassignmentAdmin(cluster).list_partition_reassignments()
    layout = layout_from_view(cluster.refresh(None), {}, ongoing)
    return [each for each, placed in layout.partitions.items() if broker in placed.replicas]


def await_empty(cluster: Cluster, broker: int) -> dict[str, Any]:
    """Wait until the broker has deleted its logs. Returns facts about the broker."""
    view = cluster.refresh([])
    if broker not in view.brokers:
        return {"alive": False, "controller": False, "logs": None, "pid": None}
    deadline = Deadline(cluster.timeout_s)
    while (logs := read_log_sizes(cluster, broker, None)) and not deadline.passed:
        time.sleep(POLL_S)
    return {
        "alive": True,
        "controller": view.controller == broker,
        "logs": len(logs),
        "pid": find_local_pid(cluster, broker),
    }


def find_local_pid(cluster: Cluster, broker: int) -> int | None:
    """Return the pid of the broker if it is a process of its own on this machine, else None."""
    directories = LogDirAdmin(cluster).describe_log_dirs([broker])[BrokerId(broker)]
    return local_broker_pid(cluster, BrokerId(broker), [each.path for each in directories])


def find_stoppable_pid(cluster: Cluster, broker: int) -> int | None:
    """Return the pid of the broker; None if it is not alive. Raises ApiError if this command cannot stop it."""
    if broker not in cluster.refresh([]).brokers:
        return None
    pid = find_local_pid(cluster, broker)
    if pid is None:
        raise ErrorWithHint(
            ApiError(ErrorCode.BROKER_NOT_AVAILABLE),
            f"--stop: broker {broker} is not a process of its own on this machine",
            "drain it without --stop, then stop it where it runs",
        )
    return pid


def stop_local_broker(cluster: Cluster, broker: int) -> None:
    """Stop the broker and wait until it has left the cluster. Raises ApiError if it does not."""
    pid = find_stoppable_pid(cluster, broker)
    if pid is None:
        return
    request_shutdown(pid)
    await_departure(cluster, broker, pid, cluster.timeout_s)


def await_departure(cluster: Cluster, broker: int, pid: int, timeout_s: float) -> None:
    """Wait until the broker has left the cluster. Raises ApiError after the timeout."""
    deadline = Deadline(timeout_s)
    while broker in cluster.retry(lambda: cluster.refresh([]), refresh=False).brokers:
        if deadline.passed:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"broker {broker} (pid {pid}) is still in the cluster"
            )
        time.sleep(POLL_S)


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
        return " where it runs. Brokers of one `barnabas up` share a process: none can be stopped alone"
    return f": kill {document['pid']}, or use --stop"
