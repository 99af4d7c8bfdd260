"""Requests and notifications that tools and brokers leave for the controller as znodes.

    /admin/preferred_replica_election            election of the preferred leaders; removed when it is done
    /admin/reassign_partitions                   not supported: reported once, and kept
    /isr_change_notification/isr_change_*        ISRs that brokers without AlterPartition wrote to ZooKeeper themselves
    /log_dir_event_notification/log_dir_event_*  brokers with a failed log directory

Each function also arms the watch that reports the next request, whether or not it finds one. Znodes that cannot be
decoded are logged and handled like empty ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar, assert_never

from barnabas.controller import events
from barnabas.controller.assignment import is_being_reassigned
from barnabas.controller.decision import FailureReason, PartitionFailure, SendUpdateMetadata
from barnabas.controller.elections import Strategy
from barnabas.controller.execution import Execution
from barnabas.controller.requests import elect, refresh
from barnabas.controller.states import ReplicaState
from barnabas.controller.steps import MoveReplicas
from barnabas.errors import ApiError, ErrorCode, NoNode, RegistryError, RegistrySessionExpired
from barnabas.metadata import znodes
from barnabas.model import BrokerId, TopicPartition
from barnabas.world.ports import ZnodeStat

logger = logging.getLogger("barnabas.controller")

NAMES_LOGGED_MAX = 20

T = TypeVar("T")


async def handle(execution: Execution, event: events.ZnodeRequest, cause: str) -> None:
    match event:
        case events.LogDirFailed():
            await check_log_dirs(execution, cause)
        case events.IsrsChanged():
            await refresh_isrs(execution, cause)
        case events.PreferredElectionRequested():
            await elect_preferred_leaders(execution, cause)
        case events.ReassignmentRequested():
            await report_reassignment(execution, cause)
        case _:
            assert_never(event)


# ---- requests of tools ------------------------------------------------------------------------------------


async def elect_preferred_leaders(execution: Execution, cause: str) -> None:
    """Elect the preferred leaders of the requested partitions, then remove the request."""
    path = znodes.PREFERRED_REPLICA_ELECTION
    found = await read_request(execution, path)
    if found is None:
        return
    try:
        requested = znodes.decode_partitions(path, found[0])
    except RegistryError as error:
        logger.warning("removing an invalid request for preferred leaders error=%s", error)
        requested = ()
    outcomes = await elect(execution, requested, Strategy.PREFERRED, cause)
    errors = {
        partition: outcome.code
        for partition, outcome in outcomes.items()
        if isinstance(outcome, ApiError) and outcome.code is not ErrorCode.ELECTION_NOT_NEEDED
    }
    logger.info(
        "preferred leaders elected path=%s partitions=%d elected=%d failed=%d",
        *(path, len(outcomes), sum(map(is_elected, outcomes.values())), len(errors)),
    )
    if errors:
        named = shortened(f"{partition}:{code.name}" for partition, code in errors.items())
        logger.warning("preferred leaders not elected path=%s partitions=%s", path, named)
    await execution.store.delete_if_there(path)


def is_elected(outcome: BrokerId | ApiError) -> bool:
    return not isinstance(outcome, ApiError)


async def report_reassignment(execution: Execution, cause: str) -> None:
    """Log the requested reassignment, which this version cannot carry out.

    The request is kept. Tools take its disappearance for success.
    """
    path = znodes.REASSIGN_PARTITIONS
    found = await read_request(execution, path)
    if found is None:
        return
    data, stat = found
    if execution.reported_reassignment == stat.mzxid:
        return
    execution.reported_reassignment = stat.mzxid
    try:
        targets = znodes.decode_reassignment(data)
    except RegistryError as error:
        logger.error("ignoring an invalid request for a reassignment error=%s", error)
        return
    logger.error(
        "ignoring a request for a reassignment, which this version does not support path=%s partitions=%s;"
        " delete the znode: a tool that waits for it will time out",
        path,
        shortened(map(str, targets)),
    )
    execution.recorder.record_transitions((), refusals(execution, targets, cause))


def warn_of_reassignments(topics: Mapping[str, znodes.TopicAssignment]) -> None:
    """Log each topic whose znode carries a reassignment that nobody continues."""
    for name, topic in topics.items():
        moving = [n for n, held in topic.partitions.items() if is_being_reassigned(held)]
        if moving:
            logger.warning(
                "unfinished reassignment, which this version does not continue topic=%s partitions=%s;"
                " all replicas stay assigned",
                name,
                shortened(map(str, moving)),
            )


def refusals(
    execution: Execution, targets: dict[TopicPartition, tuple[BrokerId, ...]], cause: str
) -> list[PartitionFailure]:
    """For the history. Partitions that do not exist have none."""
    context = execution.context
    return [
        PartitionFailure(
            item=partition,
            before=context.partition_state(partition),
            after=context.partition_state(partition),
            reason=FailureReason.REASSIGNMENT_UNSUPPORTED,
            why=f"requested brokers {','.join(map(str, replicas))}",
            cause=cause,
        )
        for partition, replicas in targets.items()
        if context.has_partition(partition)
    ]


async def read_request(execution: Execution, path: str) -> tuple[bytes, ZnodeStat] | None:
    """The znode, or None if there is none. The watch fires when it is created, written or deleted."""
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
        execution.store.report("cannot read a request", error)
        return None


# ---- notifications of brokers -----------------------------------------------------------------------------


async def refresh_isrs(execution: Execution, cause: str) -> None:
    """Read the named partitions from the registry and send their state to all brokers."""
    parent = znodes.ISR_CHANGES
    names, lists = await read_notifications(execution, parent, znodes.decode_partitions)
    context = execution.context
    partitions = [
        partition
        for partition in dict.fromkeys(each for listed in lists for each in listed)
        if context.has_partition(partition)
        and not context.is_topic_queued_for_deletion(partition.topic)
    ]
    if partitions:
        changed = await refresh(execution, partitions)
        execution.recorder.record_isr_changes(changed, cause=cause)
        await execution.do(SendUpdateMetadata(partitions=tuple(partitions)), cause)
    await delete_notifications(execution, parent, names)


async def check_log_dirs(execution: Execution, cause: str) -> None:
    """Send each broker all its replicas: its answers name those on the failed log directory."""
    parent = znodes.LOG_DIR_EVENTS
    names, brokers = await read_notifications(execution, parent, znodes.decode_log_dir_event)
    held = execution.context.replicas_on_brokers(sorted(set(brokers)))
    if held:
        await execution.do(MoveReplicas(replicas=held, target=ReplicaState.ONLINE), cause)
    await delete_notifications(execution, parent, names)


async def read_notifications(
    execution: Execution, parent: str, decode: Callable[[str, bytes], T]
) -> tuple[list[str], list[T]]:
    """The names of all notifications, and the contents of those that can be decoded."""
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


async def delete_notifications(execution: Execution, parent: str, names: Iterable[str]) -> None:
    for name in names:
        await execution.store.delete_if_there(f"{parent}/{name}")


# ---- logging ----------------------------------------------------------------------------------------------


def shortened(names: Iterable[str]) -> str:
    """The first names, and the number of the others."""
    listed = list(names)
    shown = ",".join(listed[:NAMES_LOGGED_MAX])
    more = len(listed) - NAMES_LOGGED_MAX
    return f"{shown} and {more} more" if more > 0 else shown
