"""Execution of a plan: set the throttle, start batches, wait for them, and remove the throttle."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from shlex import quote
from typing import Any

from barnabas.byte_units import bytes_text
from barnabas.cli.cluster_command import servers_hint
from barnabas.cli.reassign.copying import CopyMeter, explain_stall, read_progress
from barnabas.cli.reassign.throttling import (
    BrokerRates,
    Ongoing,
    all_moves,
    find_finished_throttles,
    read_throttles,
    remove_finished_throttles,
    removed_text,
    set_throttle,
)
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.terminal.output import confirm, plural, print_note, print_warning
from barnabas.cli.terminal.signals import Terminated, raise_on_signals
from barnabas.cli.terminal.units import duration_text
from barnabas.client.cluster import Cluster
from barnabas.client.leader_elections import elect_leaders
from barnabas.client.reassignment_admin import ReassignmentAdmin
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.explain.wording import join_with_and
from barnabas.model import TopicPartition
from barnabas.progress_line import ProgressBlock
from barnabas.reassignment.layout import ReplicaIds
from barnabas.reassignment.plan import ReassignmentPlan
from barnabas.reassignment.throttles import PartitionMove
from barnabas.wire.messages.elect_leaders import ElectionType

POLL_INTERVAL_S = 0.5


def partitions_are(count: int) -> str:
    return f"{plural(count, 'partition')} {'is' if count == 1 else 'are'}"


def check_no_reassignment(cluster: Cluster) -> None:
    """Raise ApiError if partitions are being reassigned."""
    if ongoing := ReassignmentAdmin(cluster).list_partition_reassignments():
        names = ", ".join(str(each) for each in list(ongoing)[:3])
        raise ErrorWithHint(
            ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS),
            f"{partitions_are(len(ongoing))} being reassigned already: {names}",
            f"wait (`barnabas reassign status --watch{servers_hint()}`), cancel them, or add --additional",
        )


def remove_leftovers(cluster: Cluster, *, dry_run: bool) -> None:
    """Remove throttles that an earlier command left, because it was killed. A dry run only reports them.

    Raises Unreachable if no broker answers.
    """
    cluster.refresh([])
    if not dry_run:
        if removed := removed_text(remove_finished_throttles(cluster)):
            print_note(f"{removed}, which an earlier reassignment left")
        return
    with suppress(ApiError):
        _, left = find_finished_throttles(cluster)
        if left:
            print_warning(
                f"an earlier reassignment left a throttle on {join_with_and(left)}; "
                f"`barnabas reassign status{servers_hint()}` removes it"
            )


def confirm_reassignment(question: str, *, yes: bool) -> None:
    confirm(question, yes=yes, purpose="to move replicas", if_refused="nothing was changed")


class PlanExecution:
    """One run of a plan. `execute` returns its result as a document."""

    def __init__(
        self,
        cluster: Cluster,
        plan: ReassignmentPlan,
        *,
        throttle: int | None = None,
        batch_size: int | None = None,
        is_waiting: bool = True,
    ) -> None:
        self.cluster = cluster
        self.admin = ReassignmentAdmin(cluster)
        self.plan = plan
        self.throttle = throttle
        self.batch_size = batch_size
        self.is_waiting = is_waiting
        self.rejected: dict[TopicPartition, ApiError] = {}
        self.rates_before: BrokerRates | None = None
        self.requested: set[TopicPartition] = set()
        self.started: set[TopicPartition] = set()
        self.stalls: set[str] = set()
        self.began = time.monotonic()
        self.meter = CopyMeter(plan.copied_bytes, self.began)
        self.block = ProgressBlock(sys.stderr) if sys.stderr.isatty() else None

    def execute(self) -> dict[str, Any]:
        """Run the plan. On a signal or a failure the reassignment continues; a note says how to follow it.

        The throttle is always removed at the end, except for partitions that still move.
        """
        raise_on_signals()
        try:
            if self.throttle is not None:
                self.rates_before = read_throttles(self.cluster).brokers
            self.run_batches()
            removed = self.remove_throttle()
        except (KeyboardInterrupt, Terminated, BarnabasError):
            self.print_continues()
            # A response may have been read in part: the requests below need new connections.
            self.cluster.close()
            self.remove_throttle()
            raise
        if self.is_waiting:
            self.elect_preferred_leaders()
        return self.result(removed)

    def elect_preferred_leaders(self) -> None:
        """Elect the preferred leaders of the plan now, not at the next automatic rebalance. Errors are ignored."""
        with suppress(ApiError):
            elect_leaders(self.cluster, ElectionType.PREFERRED, sorted(self.started))

    # ---- throttle -------------------------------------------------------------------------------------------------

    def throttle_moves(
        self, batch: Mapping[TopicPartition, ReplicaIds]
    ) -> dict[TopicPartition, PartitionMove]:
        """Return the moves that copy bytes: those of the batch, and of reassignments in progress."""
        ongoing = self.admin.list_partition_reassignments()
        moves = all_moves(ongoing, batch, self.plan.layout.assignment)
        return {each: move for each, move in moves.items() if move.destinations}

    def remove_throttle(self) -> list[str]:
        """Remove the throttle of all partitions that do not move any more."""
        if self.throttle is None:
            return []
        return remove_finished_throttles(self.cluster, rates_before=self.rates_before)

    # ---- batches --------------------------------------------------------------------------------------------------

    def run_batches(self) -> None:
        waiting = self.plan.copied_bytes
        for batch in self.plan.batches(self.batch_size):
            waiting -= ReassignmentPlan(layout=self.plan.layout, targets=batch).copied_bytes
            if self.throttle is None:
                self.start(batch)
            else:
                moves = self.throttle_moves(batch)
                set_throttle(self.cluster, moves, self.throttle)
                self.start(batch)
                # Another command may have removed the throttle before the start, because nothing moved yet.
                set_throttle(self.cluster, moves, self.throttle)
            if self.is_waiting:
                self.wait_for(batch, waiting)

    def start(self, batch: Mapping[TopicPartition, ReplicaIds]) -> None:
        # Before the response: after an interrupted request, the controller may have started them.
        self.requested.update(batch)
        for partition, error in self.admin.alter_partition_reassignments(batch).items():
            if error is None:
                self.started.add(partition)
            else:
                self.rejected[partition] = error

    def wait_for(self, batch: Mapping[TopicPartition, ReplicaIds], waiting: int) -> None:
        """Wait until no partition of the batch moves any more. `waiting` are the bytes of later batches."""
        try:
            while ongoing := self.admin.list_partition_reassignments(batch):
                self.show_progress(ongoing, waiting)
                time.sleep(POLL_INTERVAL_S)
        finally:
            if self.block is not None:
                self.block.erase()

    def show_progress(self, ongoing: Ongoing, waiting: int) -> None:
        """Draw the progress, or without a terminal report only problems. A failed request must not end the run."""
        with suppress(ApiError):
            if self.block is None:
                self.warn_of_stalls(ongoing)
            else:
                progress = read_progress(self.cluster, ongoing)
                self.block.show(self.meter.lines(progress, waiting, time.monotonic()))

    def warn_of_stalls(self, ongoing: Ongoing) -> None:
        """Report each broker that must come back, once. Without a terminal, the command would wait silently."""
        view = self.cluster.refresh(sorted({each.topic for each in ongoing}))
        for partition, moving in ongoing.items():
            stall = explain_stall(view, partition, moving)
            if stall and stall not in self.stalls:
                self.stalls.add(stall)
                print_warning(
                    f"{partition} waits for {stall}; start it again, or stop waiting: "
                    f"`barnabas reassign cancel {quote(partition.topic)}{servers_hint()}`"
                )

    # ---- result ---------------------------------------------------------------------------------------------------

    def print_continues(self) -> None:
        if not self.requested - self.rejected.keys():
            print_note("no reassignment was started")
            return
        follow = f"`barnabas reassign status --watch{servers_hint()}` follows it"
        tail = " and removes the throttle when it is done" if self.throttle is not None else ""
        print_note(f"the reassignment continues; {follow}{tail}")
        rest = len(self.plan.targets) - len(self.requested)
        if rest:
            verb = "was" if rest == 1 else "were"
            batches = f"{plural(rest, 'partition')} of later batches {verb} not started"
            print_note(f"{batches}; then run the same command again")

    def result(self, removed: list[str]) -> dict[str, Any]:
        unfinished = self.unfinished() if self.is_waiting else {}
        return {
            "started": len(self.started),
            "completed": len(self.started) - len(unfinished) if self.is_waiting else None,
            "failed": [
                {"topic": each.topic, "partition": each.partition, "error": str(error)}
                for each, error in sorted({**self.rejected, **unfinished}.items())
            ],
            "copied_bytes": self.plan.copied_bytes,
            "seconds": round(time.monotonic() - self.began, 3),
            "throttles_removed": removed,
        }

    def unfinished(self) -> dict[TopicPartition, ApiError]:
        """Return the partitions that ended without the planned replicas: cancelled, replaced or deleted."""
        view = self.cluster.refresh(sorted({each.topic for each in self.started}))
        found = {}
        for partition in self.started:
            try:
                replicas = view.partition(partition).replicas
            except ApiError as error:
                found[partition] = error
                continue
            if set(replicas) != set(self.plan.targets[partition]):
                why = f"the reassignment was cancelled or replaced; replicas {list(replicas)}"
                found[partition] = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why)
        return found


def result_text(document: dict[str, Any]) -> str:
    lines = []
    if document["completed"] is None:
        lines.append(f"started {plural(document['started'], 'reassignment')}")
    else:
        size = bytes_text(document["copied_bytes"])
        took = duration_text(document["seconds"])
        lines.append(
            f"reassigned {plural(document['completed'], 'partition')}: copied {size} in {took}"
        )
    lines += [
        f"{failure['topic']}-{failure['partition']} failed: {failure['error']}"
        for failure in document["failed"]
    ]
    if removed := removed_text(document["throttles_removed"]):
        lines.append(removed)
    return "\n".join(lines)
