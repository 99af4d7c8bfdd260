"""Requests to the controller: AlterPartition, ControlledShutdown, ElectLeaders and reassignments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never
from uuid import UUID

from msgspec.structs import replace

from barnabas.controller import isr_changes, reassignment
from barnabas.controller.assignment import is_being_reassigned
from barnabas.controller.assignment_store import remove_reassignment_requests
from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import SendUpdateMetadata, UpdateState, WriteRejection
from barnabas.controller.elections import Strategy
from barnabas.controller.events import (
    AlterPartitionReceived,
    ClientRequest,
    ControlledShutdownReceived,
    ElectLeadersReceived,
    ListReassignmentsReceived,
    ReassignmentsReceived,
)
from barnabas.controller.execution import Execution
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import BrokerId, LeaderAndIsr, Replica, TopicPartition
from barnabas.wire.messages.alter_partition import (
    AlterPartitionPartitionResponse,
    AlterPartitionResponse,
)
from barnabas.wire.messages.controlled_shutdown import (
    ControlledShutdownResponse,
    RemainingPartition,
)


async def handle_client_request(execution: Execution, event: ClientRequest, cause: str) -> None:
    match event:
        case AlterPartitionReceived():
            await handle_alter_partition(execution, event, cause)
        case ControlledShutdownReceived():
            await handle_controlled_shutdown(execution, event, cause)
        case ElectLeadersReceived():
            event.answer(await run_elections(execution, event.partitions, event.strategy, cause))
        case ReassignmentsReceived():
            await handle_reassignments(execution, event, cause)
        case ListReassignmentsReceived():
            event.answer(list_reassignments(execution.context, event))
        case _:
            assert_never(event)


async def handle_alter_partition(
    execution: Execution, event: AlterPartitionReceived, cause: str
) -> None:
    """Validate the proposed ISRs, write them, send UpdateMetadata to all brokers and answer."""
    context, request, version = execution.context, event.request, event.version
    error = isr_changes.check_request(context, request)
    if error:
        event.answer(AlterPartitionResponse(error_code=error))
        return
    results: dict[TopicPartition, LeaderAndIsr | ErrorCode] = {}
    requested: list[tuple[str, UUID, int, TopicPartition | None]] = []
    writes: dict[TopicPartition, UpdateState] = {}
    for topic in request.topics:
        name = isr_changes.topic_name_of(context, topic.topic_name, topic.topic_id, version)
        for each in topic.partitions:
            partition = None if name is None else TopicPartition(name, each.partition_index)
            requested.append((topic.topic_name, topic.topic_id, each.partition_index, partition))
            if partition is None:
                continue
            result = isr_changes.evaluate_proposal(context, partition, each, version)
            results[partition] = result
            # For a retry of an applied proposal, the result is the known state itself: nothing to write.
            if isinstance(result, LeaderAndIsr) and result is not context.leadership[partition]:
                writes[partition] = UpdateState(
                    partition=partition, state=result, expected_version=result.partition_epoch
                )
    write_results = await execution.store.commit(tuple(writes.values()))
    await refresh_leadership(
        execution,
        [each for each, written in write_results.items() if isinstance(written, WriteRejection)],
    )
    changed: list[tuple[TopicPartition, LeaderAndIsr]] = []
    for partition, written in write_results.items():
        if isinstance(written, WriteRejection):
            is_conflict = written is WriteRejection.BAD_VERSION
            results[partition] = (
                ErrorCode.INVALID_UPDATE_VERSION if is_conflict else ErrorCode.UNKNOWN_SERVER_ERROR
            )
            continue
        state = replace(writes[partition].state, partition_epoch=written)
        results[partition] = state
        context.set_leadership(partition, state)
        changed.append((partition, state))
    execution.recorder.record_isr_changes(changed, cause=cause)
    if changed:
        step = SendUpdateMetadata(partitions=tuple(partition for partition, _ in changed))
        await execution.run_step(step, cause)
    responses: dict[tuple[str, UUID], list[AlterPartitionPartitionResponse]] = {}
    for name, topic_id, index, partition in requested:
        result = ErrorCode.UNKNOWN_TOPIC_ID if partition is None else results[partition]
        response = isr_changes.build_partition_response(index, result)
        responses.setdefault((name, topic_id), []).append(response)
    event.answer(isr_changes.build_alter_partition_response(responses, version))


async def refresh_leadership(
    execution: Execution, partitions: list[TopicPartition]
) -> list[tuple[TopicPartition, LeaderAndIsr]]:
    """Read the states of these partitions from the registry into the context. Returns the changed ones."""
    known = execution.context.leadership
    changed = [
        (partition, state)
        for partition, state in (await execution.store.read_states(partitions)).items()
        if isinstance(state, LeaderAndIsr) and state != known.get(partition)
    ]
    for partition, state in changed:
        execution.context.set_leadership(partition, state)
    return changed


async def handle_controlled_shutdown(
    execution: Execution, event: ControlledShutdownReceived, cause: str
) -> None:
    """Move leaderships of a broker to other replicas, and remove it from ISRs.

    The answer lists the partitions that the broker still leads.
    """
    context, request = execution.context, event.request
    broker = BrokerId(request.broker_id)
    registered = context.broker_epochs.get(broker)
    if registered is None:
        event.answer(ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE))
        return
    if request.broker_epoch != registered:
        # Kafka also accepts a larger epoch, and before version 2 a request without one. Any client could then take all
        # leaderships from a broker. A broker that has just restarted retries until the controller knows its epoch.
        event.answer(ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
        return
    context.shutting_down_broker_ids.add(broker)
    led = context.partition_leaders_on_broker(broker)
    followed = tuple(
        Replica(partition, broker)
        for partition in context.partitions_on_broker(broker)
        if partition in context.leadership
        and context.leadership[partition].leader != broker
        and len(context.replicas(partition)) > 1
        and not context.is_topic_queued_for_deletion(partition.topic)
    )
    if led:
        await execution.move_partitions(
            led, PartitionState.ONLINE, cause, Strategy.CONTROLLED_SHUTDOWN
        )
    if followed:
        await execution.move_replicas(followed, ReplicaState.OFFLINE, cause)
    event.answer(
        ControlledShutdownResponse(
            remaining_partitions=tuple(
                RemainingPartition(topic_name=each.topic, partition_index=each.partition)
                for each in context.partition_leaders_on_broker(broker)
            )
        )
    )


async def handle_reassignments(
    execution: Execution, event: ReassignmentsReceived, cause: str
) -> None:
    """Start, replace or cancel reassignments. Answer when they are in the registry, before the replicas have moved."""
    context = execution.context
    errors: dict[TopicPartition, ApiError] = {}
    requested: dict[TopicPartition, ReplicaAssignment] = {}
    for partition, target in event.targets.items():
        try:
            requested[partition] = reassignment.requested_assignment(context, partition, target)
        except ApiError as error:
            errors[partition] = ApiError(error.code, error.message)
    # The latest request applies: it replaces an earlier one in the registry.
    await remove_reassignment_requests(execution.store, requested)
    plan = reassignment.plan_reassignments(context, requested, errors)
    await execution.run_plan(plan, cause)
    event.answer({partition: errors.get(partition) for partition in event.targets})


def list_reassignments(
    context: ControllerContext, event: ListReassignmentsReceived
) -> dict[TopicPartition, ReplicaAssignment]:
    """Return the reassignments in progress. A request may name many partitions, and few of them are reassigned."""
    return {
        partition: assignment
        for partition in context.partitions_being_reassigned
        if (event.partitions is None or partition in event.partitions)
        and is_being_reassigned(assignment := context.assignment(partition))
    }


async def run_elections(
    execution: Execution, partitions: Iterable[TopicPartition], strategy: Strategy, cause: str
) -> dict[TopicPartition, BrokerId | ApiError]:
    """Elect a leader for each partition that needs one. Returns the new leader of each partition, or an error."""
    context = execution.context
    outcomes: dict[TopicPartition, BrokerId | ApiError] = {}
    electable: dict[TopicPartition, int] = {}
    for partition in partitions:
        error = check_election(context, partition, strategy)
        if error is not None:
            outcomes[partition] = error
        else:
            electable[partition] = context.leader_epoch(partition)
    if electable:
        await execution.move_partitions(tuple(electable), PartitionState.ONLINE, cause, strategy)
    for partition, before in electable.items():
        if context.leader_epoch(partition) > before:  # every election raises the leader epoch
            outcomes[partition] = context.leadership[partition].leader
        else:
            outcomes[partition] = election_error(context, partition, strategy)
    return outcomes


def election_error(
    context: ControllerContext, partition: TopicPartition, strategy: Strategy
) -> ApiError:
    """Return the error of a partition for which no leader was elected."""
    replicas = context.replicas(partition)
    if strategy is Strategy.PREFERRED:
        why = f"broker {replicas[0]} is offline or not in sync"
        return ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, why)
    why = f"no replica is online: {', '.join(map(str, replicas))}"
    return ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, why)


def check_election(
    context: ControllerContext, partition: TopicPartition, strategy: Strategy
) -> ApiError | None:
    """Return an error if an election is impossible or not needed, else None."""
    if not context.has_partition(partition):
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if context.is_topic_queued_for_deletion(partition.topic):
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is being deleted")
    leadership = context.leadership.get(partition)
    if leadership is None:
        return None  # never had a leader, because no replica was ever online
    if strategy is Strategy.PREFERRED:
        is_satisfied = leadership.leader == context.replicas(partition)[0]
    else:
        is_satisfied = context.is_live(leadership.leader)
    return ApiError(ErrorCode.ELECTION_NOT_NEEDED) if is_satisfied else None
