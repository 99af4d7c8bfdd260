"""What is asked of the controller: by leaders another ISR, by brokers leave to go, by administrators other leaders."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from barnabas.controller import isr_changes
from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import (
    SendUpdateMetadata,
    UpdateState,
    WriteRefused,
)
from barnabas.controller.elections import Strategy
from barnabas.controller.events import (
    AlterPartitionReceived,
    ControlledShutdownReceived,
    ElectLeadersReceived,
)
from barnabas.controller.execution import Execution
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.controller.steps import MovePartitions, MoveReplicas
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId, LeaderAndIsr, Replica, TopicPartition
from barnabas.wire.messages.alter_partition import (
    AlterPartitionPartitionResponse,
    AlterPartitionResponse,
)
from barnabas.wire.messages.controlled_shutdown import (
    ControlledShutdownResponse,
    RemainingPartition,
)


async def alter_partition(execution: Execution, event: AlterPartitionReceived, cause: str) -> None:
    """Check, write, tell everybody, answer."""
    context, request, version = execution.context, event.request, event.version
    refused = isr_changes.check_request(context, request)
    if refused:
        event.answer(AlterPartitionResponse(error_code=refused))
        return
    results: dict[TopicPartition, LeaderAndIsr | ErrorCode] = {}
    asked: list[tuple[str, UUID, int, TopicPartition | None]] = []
    writes: dict[TopicPartition, UpdateState] = {}
    for topic in request.topics:
        name = isr_changes.topic_of(context, topic.topic_name, topic.topic_id, version)
        for each in topic.partitions:
            partition = None if name is None else TopicPartition(name, each.partition_index)
            asked.append((topic.topic_name, topic.topic_id, each.partition_index, partition))
            if partition is None:
                continue
            result = isr_changes.propose(context, partition, each, version)
            results[partition] = result
            if isinstance(result, LeaderAndIsr) and result is not context.leadership[partition]:
                writes[partition] = UpdateState(
                    partition=partition, state=result, expected_version=result.partition_epoch
                )
    committed = await execution.store.commit(tuple(writes.values()))
    await refresh(
        execution,
        [each for each, outcome in committed.items() if isinstance(outcome, WriteRefused)],
    )
    changed: list[tuple[TopicPartition, LeaderAndIsr]] = []
    for partition, outcome in committed.items():
        if isinstance(outcome, WriteRefused):
            refusals = {WriteRefused.BAD_VERSION: ErrorCode.INVALID_UPDATE_VERSION}
            results[partition] = refusals.get(outcome, ErrorCode.UNKNOWN_SERVER_ERROR)
            continue
        state = isr_changes.written(writes[partition].state, outcome)
        results[partition] = state
        context.set_leadership(partition, state)
        changed.append((partition, state))
    execution.recorder.record_isr_changes(changed, cause=cause)
    if changed:
        told = SendUpdateMetadata(partitions=tuple(partition for partition, _ in changed))
        await execution.do(told, cause)
    answers: dict[tuple[str, UUID], list[AlterPartitionPartitionResponse]] = {}
    for name, topic_id, index, partition in asked:
        found = ErrorCode.UNKNOWN_TOPIC_ID if partition is None else results[partition]
        answers.setdefault((name, topic_id), []).append(isr_changes.answered(index, found))
    event.answer(isr_changes.answer(answers, version))


async def refresh(
    execution: Execution, partitions: list[TopicPartition]
) -> list[tuple[TopicPartition, LeaderAndIsr]]:
    """Read these partitions from the registry into the context. Returns those that differed."""
    known = execution.context.leadership
    changed = [
        (partition, state)
        for partition, state in (await execution.store.read_states(partitions)).items()
        if isinstance(state, LeaderAndIsr) and state != known.get(partition)
    ]
    for partition, state in changed:
        execution.context.set_leadership(partition, state)
    return changed


async def controlled_shutdown(
    execution: Execution, event: ControlledShutdownReceived, cause: str
) -> None:
    """Others take over what it leads, and it leaves every ISR, while it still serves."""
    context, request = execution.context, event.request
    broker = BrokerId(request.broker_id)
    registered = context.broker_epochs.get(broker)
    if registered is None:
        event.answer(ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE))
        return
    if request.broker_epoch != registered:
        # Kafka lets a request of the oldest versions pass, which has none, and any larger epoch: anybody could send a
        # broker away. One that has just come back asks again, when its new epoch is known here.
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
        step = MovePartitions(
            partitions=led, target=PartitionState.ONLINE, strategy=Strategy.CONTROLLED_SHUTDOWN
        )
        await execution.do(step, cause)
    if followed:
        await execution.do(MoveReplicas(replicas=followed, target=ReplicaState.OFFLINE), cause)
    event.answer(
        ControlledShutdownResponse(
            remaining_partitions=tuple(
                RemainingPartition(topic_name=each.topic, partition_index=each.partition)
                for each in context.partition_leaders_on_broker(broker)
            )
        )
    )


async def elect_leaders(execution: Execution, event: ElectLeadersReceived, cause: str) -> None:
    event.answer(await elect(execution, event.partitions, event.strategy, cause))


async def elect(
    execution: Execution, partitions: Iterable[TopicPartition], strategy: Strategy, cause: str
) -> dict[TopicPartition, BrokerId | ApiError]:
    """Elect leaders where it is allowed and necessary.

    Returns the new leader of each partition, or why it has none. Every election raises the leader epoch.
    """
    context = execution.context
    outcomes: dict[TopicPartition, BrokerId | ApiError] = {}
    electable: dict[TopicPartition, int] = {}
    for partition in partitions:
        refused = why_no_election(context, partition, strategy)
        if refused is not None:
            outcomes[partition] = refused
        else:
            electable[partition] = epoch_of(context, partition)
    if electable:
        step = MovePartitions(
            partitions=tuple(electable), target=PartitionState.ONLINE, strategy=strategy
        )
        await execution.do(step, cause)
    for partition, before in electable.items():
        if epoch_of(context, partition) > before:
            outcomes[partition] = context.leadership[partition].leader
        else:
            outcomes[partition] = nobody_elected(context, partition, strategy)
    return outcomes


def nobody_elected(
    context: ControllerContext, partition: TopicPartition, strategy: Strategy
) -> ApiError:
    replicas = context.replicas(partition)
    if strategy is Strategy.PREFERRED:
        why = f"broker {replicas[0]} is down or not in sync"
        return ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, why)
    why = f"none of its replicas is up: {', '.join(map(str, replicas))}"
    return ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, why)


def why_no_election(
    context: ControllerContext, partition: TopicPartition, strategy: Strategy
) -> ApiError | None:
    """Before anybody tries; None if it is worth trying."""
    if not context.has_partition(partition):
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if context.is_topic_queued_for_deletion(partition.topic):
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is being deleted")
    known = context.leadership.get(partition)
    if known is None:
        return None  # it never had a leader: nobody of its replicas was ever up
    if strategy is Strategy.PREFERRED:
        is_right = known.leader == context.replicas(partition)[0]
    else:
        is_right = context.is_live(known.leader)
    return ApiError(ErrorCode.ELECTION_NOT_NEEDED) if is_right else None


def epoch_of(context: ControllerContext, partition: TopicPartition) -> int:
    known = context.leadership.get(partition)
    return -1 if known is None else known.leader_epoch
