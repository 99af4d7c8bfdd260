"""What plans are made of.

A plan is a generator of steps. Whoever follows it does one step entirely, moves committed, applied and sent, before it
asks for the next, which is decided on the context as it is by then:

    elected = None
    while (step := next_step(plan, elected)) is not None:
        elected = do(step)                                  the number of elections won, for MovePartitions to Online
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from msgspec import Struct

from barnabas.controller.decision import SendUpdateMetadata
from barnabas.controller.elections import Strategy
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.model import BrokerId, Replica, TopicPartition

T = TypeVar("T")

THINGS_AT_ONCE = 2000


class LeaveTurn(Struct, frozen=True):
    """Nothing: others have their turn, where a plan has much to do by itself."""


class MovePartitions(Struct, frozen=True, kw_only=True):
    partitions: tuple[TopicPartition, ...]
    target: PartitionState
    strategy: Strategy | None = None


class MoveReplicas(Struct, frozen=True, kw_only=True):
    replicas: tuple[Replica, ...]
    target: ReplicaState


class HoldBack(Struct, frozen=True, kw_only=True):
    """Say nothing of these partitions yet: they are about to change. Each is told with its next leader epoch."""

    partitions: tuple[TopicPartition, ...]


class TellHeldBack(Struct, frozen=True):
    """Those that have not changed after all, as they are."""


class ResumeReassignments(Struct, frozen=True, kw_only=True):
    partitions: tuple[TopicPartition, ...]


class StartSenders(Struct, frozen=True, kw_only=True):
    brokers: tuple[BrokerId, ...]


class StopSenders(Struct, frozen=True, kw_only=True):
    brokers: tuple[BrokerId, ...]


class WatchBrokers(Struct, frozen=True, kw_only=True):
    """Notice when their registrations change."""

    brokers: tuple[BrokerId, ...]


class UnwatchBrokers(Struct, frozen=True, kw_only=True):
    brokers: tuple[BrokerId, ...]


class UnwatchTopics(Struct, frozen=True, kw_only=True):
    """Their znodes will go; their end is no change of their partitions."""

    topics: tuple[str, ...]


class DeleteTopicZnodes(Struct, frozen=True, kw_only=True):
    """Of each: its partitions, children first, then its own znode, then its config, and the delete marker last.

    What is gone already is no error. Each delete is under the check of the controller's epoch.
    """

    topics: tuple[str, ...]


Step = (
    MovePartitions
    | MoveReplicas
    | SendUpdateMetadata
    | HoldBack
    | TellHeldBack
    | ResumeReassignments
    | StartSenders
    | StopSenders
    | WatchBrokers
    | UnwatchBrokers
    | UnwatchTopics
    | DeleteTopicZnodes
    | LeaveTurn
)
Plan = Generator[Step, int | None, None]


def next_step(plan: Plan, elected: int | None) -> Step | None:
    """None at the end. `elected` is what the step before came to, and None at the beginning."""
    try:
        return plan.send(elected)
    except StopIteration:
        return None


def replicas_to(replicas: tuple[Replica, ...], target: ReplicaState) -> Plan:
    if replicas:
        yield MoveReplicas(replicas=replicas, target=target)


def in_turns(
    work: Callable[[tuple[T, ...]], object], things: tuple[T, ...], at_once: int = THINGS_AT_ONCE
) -> Plan:
    """Do it with all of them, some at a time."""
    for start in range(0, len(things), at_once):
        if start:
            yield LeaveTurn()
        work(things[start : start + at_once])
