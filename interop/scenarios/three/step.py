"""The elements of a script for three brokers. As with one broker: steps are values, and nothing here compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from interop.scenarios.step import Request


class Role(Enum):
    """A broker by its current role, where its id would be random."""

    CONTROLLER = "the controller"
    OTHER = "another than the controller"


Which = int | Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request to one broker. With `until`, it is repeated until the response has this value at this path."""

    broker: Which
    request: Request
    version: int | None = None
    until: tuple[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A request without a response, such as acks=0. The result is whether the broker closes the connection."""

    broker: Which
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """SIGTERM, and wait for the exit."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """SIGKILL: its session has to time out."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """SIGSTOP. It must resume before its session times out."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """SIGCONT."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start on the existing data, optionally with new settings."""

    broker: int
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListReplicas:
    """The directories of one partition on all brokers."""

    topic: str
    partition: int = 0


Action = Ask | Send | Stop | Kill | Pause | Resume | Start | ListReplicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    action: Action
    is_recorded: bool = True
    """Whether the whole cluster is recorded afterwards; not after a step that changes nothing."""
