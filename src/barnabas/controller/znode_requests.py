"""Requests and notifications that tools and brokers create for the controller as znodes.

    /admin/preferred_replica_election            election of preferred leaders; the znode is deleted afterwards
    /admin/reassign_partitions                   reassignments; a partition stays in it until it has moved
    /isr_change_notification/isr_change_*        ISRs that brokers without AlterPartition wrote to ZooKeeper themselves
    /log_dir_event_notification/log_dir_event_*  brokers with a failed log directory

Each handler also sets the watch for the next request, even if it finds no znode. Invalid znodes are logged and handled
like empty ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar, assert_never

from barnabas.controller import events
from barnabas.controller.assignment import is_being_reassigned, target_replicas
from barnabas.controller.assignment_store import remove_reassignment_requests
from barnabas.controller.context import Partitions
from barnabas.controller.decision import SendUpdateMetadata
from barnabas.controller.elections import Strategy
from barnabas.controller.execution import Execution
from barnabas.controller.reassignment import plan_reassignments, requested_assignment
from barnabas.controller.requests import refresh_leadership, run_elections
from barnabas.controller.states import ReplicaState
from barnabas.errors import ApiError, ErrorCode, NoNode, RegistryError, RegistrySessionExpired
from barnabas.metadata import znodes
from barnabas.model import TopicPartition
from barnabas.world.ports import ZnodeStat

logger = logging.getLogger("barnabas.controller")

NAMES_LOGGED_MAX = 20

T = TypeVar("T")


async def handle_znode_request(
    execution: Execution, event: events.ZnodeRequest, cause: str
) -> None:
    match event:
        case events.LogDirFailed():
            await check_log_dirs(execution, cause)
        case events.IsrsChanged():
            await refresh_isrs(execution, cause)
        case events.PreferredElectionRequested():
            await elect_preferred_leaders(execution, cause)
        case events.ReassignmentRequested():
            await start_reassignments(execution, cause)
        case _:
            assert_never(event)


# ---- requests from tools ----------------------------------------------------------------------------------


async def elect_preferred_leaders(execution: Execution, cause: str) -> None:
    """Elect the preferred leaders of the requested partitions, then delete the znode."""
    path = znodes.PREFERRED_REPLICA_ELECTION
    found = await read_request(execution, path)
    if found is None:
        return
    try:
        requested = znodes.decode_partitions(path, found[0])
    except RegistryError as error:
        logger.warning("removing an invalid preferred election request error=%s", error)
        requested = ()
    outcomes = await run_elections(execution, requested, Strategy.PREFERRED, cause)
    errors = {
        partition: outcome.code
        for partition, outcome in outcomes.items()
        if isinstance(outcome, ApiError) and outcome.code is not ErrorCode.ELECTION_NOT_NEEDED
    }
    elected = sum(not isinstance(outcome, ApiError) for outcome in outcomes.values())
    logger.info(
        "preferred leaders elected path=%s partitions=%d elected=%d failed=%d",
        *(path, len(outcomes), elected, len(errors)),
    )
    if errors:
        failed = join_names(f"{partition}:{code.name}" for partition, code in errors.items())
        logger.warning("preferred leaders not elected path=%s partitions=%s", path, failed)
    await execution.store.delete_if_exists(path)


async def start_reassignments(execution: Execution, cause: str) -> Partitions:
    """Start the requested reassignments, except those in progress. Remove the invalid ones. Returns the started ones.

    The controller removes each partition from the znode when it has moved. An invalid znode is kept, because tools
    treat its deletion as success.
    """
    path, context = znodes.REASSIGN_PARTITIONS, execution.context
    found = await read_request(execution, path)
    if found is None:
        return ()
    try:
        targets = znodes.decode_reassignment(found[0])
    except RegistryError as error:
        logger.error("ignoring an invalid reassignment request error=%s", error)
        return ()
    requested: dict[TopicPartition, znodes.ReplicaAssignment] = {}
    rejected: dict[TopicPartition, ErrorCode] = {}
    for partition, target in targets.items():
        current = context.assignment(partition)
        if is_being_reassigned(current) and target_replicas(current) == target:
            continue
        try:
            requested[partition] = requested_assignment(
                context, partition, target, requires_live_brokers=False
            )
        except ApiError as error:
            rejected[partition] = error.code
    if rejected:
        names = join_names(f"{partition}:{code.name}" for partition, code in rejected.items())
        logger.warning("reassignments rejected path=%s partitions=%s", path, names)
        await remove_reassignment_requests(execution.store, rejected)
    errors: dict[TopicPartition, ApiError] = {}
    await execution.run_plan(plan_reassignments(context, requested, errors), cause)
    return tuple(partition for partition in requested if partition not in errors)


async def read_request(execution: Execution, path: str) -> tuple[bytes, ZnodeStat] | None:
    """Read a znode and watch it. Returns None if it does not exist or cannot be read."""
    registry = execution.store.registry
    if await registry.exists(path, execution.watch) is None:
        return None
    try:
        return await registry.get(path)
    except NoNode:
        return None
    except RegistrySessionExpired:
        raise
    except RegistryError as error:
        execution.store.log_once("cannot read a request znode", error)
        return None


# ---- notifications from brokers ---------------------------------------------------------------------------


async def refresh_isrs(execution: Execution, cause: str) -> None:
    """Read the states of the partitions in the notifications, and send UpdateMetadata to all brokers."""
    parent = znodes.ISR_CHANGES
    names, lists = await read_notifications(execution, parent, znodes.decode_partitions)
    context = execution.context
    partitions = [
        partition
        for partition in dict.fromkeys(each for partitions in lists for each in partitions)
        if context.has_partition(partition)
        and not context.is_topic_queued_for_deletion(partition.topic)
    ]
    if partitions:
        changed = await refresh_leadership(execution, partitions)
        execution.recorder.record_isr_changes(changed, cause=cause)
        await execution.run_step(SendUpdateMetadata(partitions=tuple(partitions)), cause)
    await execution.store.delete_children(parent, names)


async def check_log_dirs(execution: Execution, cause: str) -> None:
    """Send LeaderAndIsr to brokers with a failed log directory. Their responses name the replicas that are offline."""
    parent = znodes.LOG_DIR_EVENTS
    names, brokers = await read_notifications(execution, parent, znodes.decode_log_dir_event)
    context = execution.context
    replicas = context.replicas_on_brokers(sorted(set(brokers)))
    new = tuple(each for each in replicas if context.replica_state(each) is ReplicaState.NEW)
    # A new replica, which a reassignment adds, becomes Online without a request. So it is moved twice.
    for moved in (new, replicas):
        if moved:
            await execution.move_replicas(moved, ReplicaState.ONLINE, cause)
    await execution.store.delete_children(parent, names)


async def read_notifications(
    execution: Execution, parent: str, decode: Callable[[str, bytes], T]
) -> tuple[list[str], list[T]]:
    """Return the names of all notifications, and the decoded contents of the valid ones."""
    registry = execution.store.registry
    names = await registry.children(parent, execution.watch)
    contents: list[T] = []
    for name in names:
        path = f"{parent}/{name}"
        try:
            data, _ = await registry.get(path)
        except NoNode:
            continue
        try:
            contents.append(decode(path, data))
        except RegistryError as error:
            logger.error("ignoring an invalid notification error=%s", error)
    return names, contents


# ---- logging ----------------------------------------------------------------------------------------------


def join_names(names: Iterable[str]) -> str:
    """Join up to NAMES_LOGGED_MAX names for a log line, and add the number of the others."""
    found = list(names)
    shown = ",".join(found[:NAMES_LOGGED_MAX])
    more = len(found) - NAMES_LOGGED_MAX
    return f"{shown} and {more} more" if more > 0 else shown
