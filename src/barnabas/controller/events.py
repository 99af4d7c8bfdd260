"""Events of the controller, handled one at a time (queue.py).

Most events report only that something changed, and their handlers read the current state. So one event may report
many changes, and a duplicate does no harm. Events with an `answer` callback are requests whose sender waits: `answer`
is always called, even if the event is dropped. Class names appear in the history as causes and must not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from barnabas.controller.elections import Strategy
from barnabas.errors import ApiError
from barnabas.history.recorder import Request, Response
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import BrokerId, TopicPartition
from barnabas.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)


class Startup(Struct, frozen=True):
    """The broker is registered and takes part in the controller election."""


class ControllerChanged(Struct, frozen=True):
    """/controller was created or changed."""


class ControllerGone(Struct, frozen=True):
    """/controller was deleted, or an invalid /controller_epoch changed: all brokers try to become the controller."""


class SessionOpened(Struct, frozen=True):
    """A new registry session replaces an expired one: register again and take part in the controller election."""


class SessionExpired(Struct, frozen=True):
    """The registry session expired. The broker's registration and its watches are gone."""


class BrokersChanged(Struct, frozen=True):
    """A broker registered, or its registration is gone."""


class BrokerModified(Struct, frozen=True):
    """The registration of a broker was changed."""

    broker: BrokerId


class TopicsChanged(Struct, frozen=True):
    """A topic was created or deleted."""


class PartitionsModified(Struct, frozen=True):
    """The assignment of a topic was changed."""

    topic: str


class TopicsMarked(Struct, frozen=True):
    """A topic was marked for deletion."""


class LogDirFailed(Struct, frozen=True):
    """A broker reported a failed log directory."""


class IsrsChanged(Struct, frozen=True):
    """A broker wrote ISRs to the registry itself and created a notification znode."""


class PreferredElectionRequested(Struct, frozen=True):
    """The znode that requests an election of preferred leaders was created, written or deleted."""


class ReassignmentRequested(Struct, frozen=True):
    """The znode that requests a reassignment was created, written or deleted."""


class RequestAnswered(Struct, frozen=True):
    """A broker responded to a request of the controller, and the response needs handling."""

    broker: BrokerId
    request: Request
    response: Response


class AlterPartitionReceived(Struct, frozen=True):
    """A broker requests changes of ISRs of partitions that it leads."""

    request: AlterPartitionRequest
    version: int
    answer: Callable[[AlterPartitionResponse | ApiError], None]


class ControlledShutdownReceived(Struct, frozen=True):
    """A broker requests a controlled shutdown."""

    request: ControlledShutdownRequest
    answer: Callable[[ControlledShutdownResponse | ApiError], None]


class ElectLeadersReceived(Struct, frozen=True):
    """A client requests leader elections. The answer holds the new leader of each partition, or an error."""

    partitions: tuple[TopicPartition, ...]
    strategy: Strategy
    answer: Callable[[Mapping[TopicPartition, BrokerId | ApiError] | ApiError], None]


class ReassignmentsReceived(Struct, frozen=True):
    """A client requests reassignments to these replicas; None cancels one. The answer holds an error or None each."""

    targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    answer: Callable[[Mapping[TopicPartition, ApiError | None] | ApiError], None]


class ListReassignmentsReceived(Struct, frozen=True):
    """A client lists the reassignments in progress: of these partitions, or all (None)."""

    partitions: frozenset[TopicPartition] | None
    answer: Callable[[Mapping[TopicPartition, ReplicaAssignment] | ApiError], None]


class ReassignmentsProgressed(Struct, frozen=True):
    """ISRs changed while partitions are reassigned: the target replicas of some may be in sync."""


class UncleanLeaderElectionEnable(Struct, frozen=True):
    """unclean.leader.election.enable became true for all topics without their own setting."""


class TopicUncleanLeaderElectionEnable(Struct, frozen=True):
    """unclean.leader.election.enable was set to true for a topic."""

    topic: str


class LeadersUnbalanced(Struct, frozen=True):
    """The timer for the check of the leader balance fired. The leaders may still be balanced."""


ClientRequest = (
    AlterPartitionReceived
    | ControlledShutdownReceived
    | ElectLeadersReceived
    | ReassignmentsReceived
    | ListReassignmentsReceived
)
"""Requests of brokers and clients. Their senders wait for the answer."""
ZnodeRequest = LogDirFailed | IsrsChanged | PreferredElectionRequested | ReassignmentRequested
ControllerEvent = (
    BrokersChanged
    | BrokerModified
    | TopicsChanged
    | PartitionsModified
    | TopicsMarked
    | ZnodeRequest
    | RequestAnswered
    | ClientRequest
    | ReassignmentsProgressed
    | UncleanLeaderElectionEnable
    | TopicUncleanLeaderElectionEnable
    | LeadersUnbalanced
)
"""Only the controller handles these events. The others concern every broker."""
Event = (
    Startup | ControllerChanged | ControllerGone | SessionOpened | SessionExpired | ControllerEvent
)
