"""What a script is made of: steps, each a name and one thing that is done to a broker. Nothing here compares.

A request that needs something only this broker knows (the id it gave to a topic, the session it opened) is written as a
function of `Given`. Everything else is plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from barnabas.wire.codec import Message


class Given(Protocol):
    """What a request may take from the broker that it is sent to."""

    def topic_id(self, topic: str) -> UUID: ...

    def answer(self, step: str) -> Any:
        """The answer to an earlier step, as it came."""
        ...


Request = Message | Callable[[Given], Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request and its answer. Without a version, the newest."""

    request: Request
    version: int | None = None
    patience_s: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A request whose answer is not waited for, on a connection of its own: of who waits for others in a group."""

    request: Request
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The answer to the request of that step."""

    step: str
    patience_s: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A request that is not answered, as acks=0: whether the broker hangs up is the answer."""

    request: Request
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBytes:
    """Any bytes at all: how many bytes come back, and whether the broker hangs up."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A clean stop and a start on the same data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartition:
    """The directory of one partition: its files, and what is in them."""

    topic: str
    partition: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListLogDir:
    """What stands beside the partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListZnodes:
    """What stands in ZooKeeper, or in the registry, about these topics and about the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Await:
    """Asked again until the answer has this value at this path: for what a broker does in its own time."""

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
    does: Action


Answer = Mapping[str, object]
"""An answer laid flat: a path for every value in it."""


@dataclass(slots=True)
class Transcript:
    """What one broker answered, step by step."""

    answers: dict[str, Answer] = field(default_factory=dict)
    messages: dict[str, Answer] = field(default_factory=dict)
    """Texts for people: kept to be read, not compared."""
