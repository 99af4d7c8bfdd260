"""What a script for three brokers is made of. As with one broker: steps are values, and nothing here compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from interop.scenarios.step import Request


class Role(Enum):
    """A broker by what it is at this moment, where which of them it is would be chance."""

    CONTROLLER = "the controller"
    OTHER = "another than the controller"


Which = int | Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request to one of them. With `until`, again and again until the answer has this value at this path."""

    broker: Which
    request: Request
    version: int | None = None
    until: tuple[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A request that is not answered, as acks=0: whether the broker hangs up is the answer."""

    broker: Which
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """SIGTERM, and a wait for its end."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """SIGKILL: its session has to time out."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """SIGSTOP. It must go on before its session has timed out."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """SIGCONT."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """On the data that it has, perhaps with settings that it had not before."""

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
    does: Action
    looks: bool = True
    """Whether the whole cluster is looked at afterwards; not after a question, which changes nothing."""
