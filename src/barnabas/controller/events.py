"""What can happen to a controller: facts as values, handled one at a time (queue.py).

An event says only that something changed; its handler reads what it is now. Many changes may therefore be told by one
event, and an event that comes twice does no harm. Events with an `answer` have somebody waiting: they are answered
whatever happens, also when they are dropped unhandled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.controller.history import Response
from barnabas.controller.request_batch import Request
from barnabas.errors import ApiError
from barnabas.model import BrokerId
from barnabas.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)


@dataclass(frozen=True, slots=True)
class Startup:
    """The broker is registered: somebody must be in charge."""


@dataclass(frozen=True, slots=True)
class ControllerChanged:
    """/controller was created or written."""


@dataclass(frozen=True, slots=True)
class ControllerGone:
    """/controller was deleted: everybody races for it."""


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """After an expiry: register again, then see who is in charge."""


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """Our entry and our watches are gone."""


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Somebody registered, or is gone."""


@dataclass(frozen=True, slots=True)
class BrokerModified:
    """The entry of a broker was written anew."""

    broker: BrokerId


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """A topic was created, or is gone."""


@dataclass(frozen=True, slots=True)
class PartitionsModified:
    """The assignment of a topic was written."""

    topic: str


@dataclass(frozen=True, slots=True)
class TopicsMarked:
    """A topic was marked for deletion."""


@dataclass(frozen=True, slots=True)
class LogDirFailed:
    """A broker told of a broken log directory."""


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """A broker answered a request of ours, and something follows from it."""

    broker: BrokerId
    request: Request
    response: Response


@dataclass(frozen=True, slots=True)
class AlterPartitionReceived:
    """A leader wants its ISR changed."""

    request: AlterPartitionRequest
    version: int
    answer: Callable[[AlterPartitionResponse | ApiError], None]


@dataclass(frozen=True, slots=True)
class ControlledShutdownReceived:
    """A broker wants to leave in peace."""

    request: ControlledShutdownRequest
    answer: Callable[[ControlledShutdownResponse | ApiError], None]


@dataclass(frozen=True, slots=True)
class LeadersUnbalanced:
    """It is time to look whether preferred replicas should lead again."""


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
    | LogDirFailed
    | RequestAnswered
    | AlterPartitionReceived
    | ControlledShutdownReceived
    | LeadersUnbalanced
)
