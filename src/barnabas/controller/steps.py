"""Steps of a plan.

A plan is a generator of steps. Each step is completed (committed, applied and sent) before the plan yields the next.
So the plan sees the context as the previous step left it:

    elected = None
    while (step := next_plan_step(plan, elected)) is not None:
        elected = run_step(step)            number of successful elections; 0 except for MovePartitions to Online
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TypeVar

from msgspec import Struct, field

from barnabas.controller.decision import SendUpdateMetadata
from barnabas.controller.elections import Strategy
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.errors import ApiError
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import BrokerId, Replica, TopicPartition

T = TypeVar("T")

CHUNK_SIZE = 2000


class YieldToEventLoop(Struct, frozen=True):
    """Let other tasks run during a long computation of the plan."""


class MovePartitions(Struct, frozen=True, kw_only=True):
    """Move partitions to another state. `strategy` is for elections."""

    partitions: tuple[TopicPartition, ...]
    target: PartitionState
    strategy: Strategy | None = None


class MoveReplicas(Struct, frozen=True, kw_only=True):
    """Move replicas to another state."""

    replicas: tuple[Replica, ...]
    target: ReplicaState


class DelayRequests(Struct, frozen=True, kw_only=True):
    """Delay LeaderAndIsr, and its UpdateMetadata, for each partition until it has a leader with a new leader epoch."""

    partitions: tuple[TopicPartition, ...]


class SendDelayedRequests(Struct, frozen=True):
    """Send the requests of all partitions that are still delayed."""


class RaiseLeaderEpochs(Struct, frozen=True, kw_only=True):
    """Raise the leader epochs of partitions with a changed assignment. Leaders and ISRs stay.

    Brokers ignore a LeaderAndIsr without a new leader epoch.
    """

    partitions: tuple[TopicPartition, ...]


class WriteAssignments(Struct, frozen=True, kw_only=True):
    """Write the assignments of partitions to the znodes of their topics. The other partitions stay as they are.

    The execution adds the partitions that could not be written to `errors`.
    """

    assignments: Mapping[TopicPartition, ReplicaAssignment]
    errors: dict[TopicPartition, ApiError] = field(default_factory=dict)


class RemoveReassignmentRequests(Struct, frozen=True, kw_only=True):
    """Remove partitions from /admin/reassign_partitions. The znode is deleted with its last partition."""

    partitions: tuple[TopicPartition, ...]


class StartSenders(Struct, frozen=True, kw_only=True):
    """Start sending requests to these brokers."""

    brokers: tuple[BrokerId, ...]


class StopSenders(Struct, frozen=True, kw_only=True):
    """Stop sending requests to these brokers, and drop the pending ones."""

    brokers: tuple[BrokerId, ...]


class WatchBrokers(Struct, frozen=True, kw_only=True):
    """Watch the registrations of these brokers for changes."""

    brokers: tuple[BrokerId, ...]


class DeleteTopicZnodes(Struct, frozen=True, kw_only=True):
    """Delete the znodes of each topic: partitions (children first), topic, config, and the delete marker last.

    Missing znodes are no error. Each delete is fenced by the controller epoch.
    """

    topics: tuple[str, ...]


RegistryStep = WatchBrokers | DeleteTopicZnodes | WriteAssignments | RemoveReassignmentRequests
"""Reads or writes znodes, except partition states, and sends nothing."""
Step = (
    MovePartitions
    | MoveReplicas
    | SendUpdateMetadata
    | DelayRequests
    | SendDelayedRequests
    | RaiseLeaderEpochs
    | StartSenders
    | StopSenders
    | YieldToEventLoop
    | RegistryStep
)
Plan = Generator[Step, int | None, None]


def next_plan_step(plan: Plan, elected: int | None) -> Step | None:
    """Return the next step, or None at the end. `elected` is the result of the previous step; None for the first."""
    try:
        return plan.send(elected)
    except StopIteration:
        return None


def move_replicas_to(replicas: tuple[Replica, ...], target: ReplicaState) -> Plan:
    """Yield a step that moves the replicas, unless there are none."""
    if replicas:
        yield MoveReplicas(replicas=replicas, target=target)


def run_in_chunks(work: Callable[[tuple[T, ...]], object], items: tuple[T, ...]) -> Plan:
    """Call `work` with chunks of the items, and let other tasks run between the chunks."""
    for start in range(0, len(items), CHUNK_SIZE):
        if start:
            yield YieldToEventLoop()
        work(items[start : start + CHUNK_SIZE])
