"""What can happen to a controller: facts as values, handled one at a time (queue.py).

An event says only that something changed; its handler reads what it is now. Many changes may therefore be told by one
event, and an event that comes twice does no harm. Events with an `answer` have somebody waiting: they are answered
whatever happens, also when they are dropped unhandled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from barnabas.controller.elections import Strategy
from barnabas.controller.request_batch import Request
from barnabas.errors import ApiError
from barnabas.history.recorder import Response
from barnabas.model import BrokerId, TopicPartition
from barnabas.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)


class Startup(Struct, frozen=True):
    """The broker is registered: somebody must be in charge."""


class ControllerChanged(Struct, frozen=True):
    """/controller was created or written."""


class ControllerGone(Struct, frozen=True):
    """/controller was deleted: everybody races for it."""


class SessionOpened(Struct, frozen=True):
    """After an expiry: register again, then see who is in charge."""


class SessionExpired(Struct, frozen=True):
    """Our entry and our watches are gone."""


class BrokersChanged(Struct, frozen=True):
    """Somebody registered, or is gone."""


class BrokerModified(Struct, frozen=True):
    """The entry of a broker was written anew."""

    broker: BrokerId


class TopicsChanged(Struct, frozen=True):
    """A topic was created, or is gone."""


class PartitionsModified(Struct, frozen=True):
    """The assignment of a topic was written."""

    topic: str


class TopicsMarked(Struct, frozen=True):
    """A topic was marked for deletion."""


class LogDirFailed(Struct, frozen=True):
    """A broker told of a broken log directory."""


class IsrsChanged(Struct, frozen=True):
    """A broker wrote ISRs to the registry and left a notification."""


class PreferredElectionRequested(Struct, frozen=True):
    """The znode that requests an election of preferred leaders was created, written or deleted."""


class ReassignmentRequested(Struct, frozen=True):
    """The znode that requests a reassignment was created, written or deleted."""


class RequestAnswered(Struct, frozen=True):
    """A broker answered a request of ours, and something follows from it."""

    broker: BrokerId
    request: Request
    response: Response


class AlterPartitionReceived(Struct, frozen=True):
    """A leader wants its ISR changed."""

    request: AlterPartitionRequest
    version: int
    answer: Callable[[AlterPartitionResponse | ApiError], None]


class ControlledShutdownReceived(Struct, frozen=True):
    """A broker wants to leave in peace."""

    request: ControlledShutdownRequest
    answer: Callable[[ControlledShutdownResponse | ApiError], None]


class ElectLeadersReceived(Struct, frozen=True):
    """An administrator wants other leaders. The answer has the leader of each partition that got one, or why not."""

    partitions: tuple[TopicPartition, ...]
    strategy: Strategy
    answer: Callable[[Mapping[TopicPartition, BrokerId | ApiError] | ApiError], None]


class LeadersUnbalanced(Struct, frozen=True):
    """It is time to look whether preferred replicas should lead again."""


ZnodeRequest = LogDirFailed | IsrsChanged | PreferredElectionRequested | ReassignmentRequested
Event = (
    Startup
    | ControllerChanged
    | ControllerGone
    | SessionOpened
    | SessionExpired
    | BrokersChanged
    | BrokerModified
    | TopicsChanged
    | PartitionsModified
    | TopicsMarked
    | ZnodeRequest
    | RequestAnswered
    | AlterPartitionReceived
    | ControlledShutdownReceived
    | ElectLeadersReceived
    | LeadersUnbalanced
)
