"""The elements of a script: steps, each with a name and one action on a broker. Nothing here compares.

A request that needs a value of the broker (a topic id, a session id) is written as a function of `RequestContext`.
Everything else is plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from barnabas.wire.codec import Message


class RequestContext(Protocol):
    """Values of the target broker that a request may use."""

    def topic_id(self, topic: str) -> UUID: ...

    def answer(self, step: str) -> Any:
        """The response to an earlier step."""
        ...


Request = Message | Callable[[RequestContext], Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request and its response. Uses the newest version unless one is given."""

    request: Request
    version: int | None = None
    patience_s: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A request on its own connection, without waiting for its response: for group members that wait for others."""

    request: Request
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The response to the request of that step."""

    step: str
    patience_s: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A request without a response, such as acks=0. The result is whether the broker closes the connection."""

    request: Request
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBytes:
    """Arbitrary bytes. The result is the number of response bytes, and whether the broker closes the connection."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A clean shutdown and a start on the same data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartition:
    """The directory of one partition: its files and their contents."""

    topic: str
    partition: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListLogDir:
    """The files next to the partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListZnodes:
    """The znodes, in ZooKeeper or the embedded registry, about these topics and the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Await:
    """Repeat a request until the response has this value at this path: for asynchronous work of a broker."""

    request: Request
    path: str
    value: object
    version: int | None = None


Action = (
    Ask | Begin | End | Send | SendBytes | Restart | ListPartition | ListLogDir | ListZnodes | Await
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    action: Action


Answer = Mapping[str, object]
"""A flattened response: a path for every value."""


@dataclass(slots=True)
class Transcript:
    """The responses of one broker, step by step."""

    answers: dict[str, Answer] = field(default_factory=dict)
    messages: dict[str, Answer] = field(default_factory=dict)
    """Texts for people: kept for reading, not compared."""
