"""The event model: validates the records of `__state_changes`. A record is an event of a known kind, or malformed.

The model has only the fields that readers rely on. Other fields are ignored. docs/history.md describes all fields.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
SequenceNumber = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Time = Annotated[datetime, Meta(tz=True)]

PartitionStateName = Literal[
    "NonExistentPartition", "NewPartition", "OnlinePartition", "OfflinePartition"
]
DEPTH_MAX = 10
FIRST_YEAR, LAST_YEAR = 2000, 2199
"""Some readers cannot represent times outside of these years, so an event with such a time is malformed."""


class Event(Struct, kw_only=True, tag_field="what"):
    """Fields of all events."""

    at: Time
    broker: Int32
    epoch: Count
    sequence: SequenceNumber
    cause: str
    result: Literal["done", "failed", "sent"]
    id: str
    why: str | None = None

    def __post_init__(self) -> None:
        check_year(self.at)

    @property
    def key(self) -> tuple[int, int]:
        return self.epoch, self.sequence


class LeadershipEvent(Event, kw_only=True):
    """An event that may carry leader, leader epoch and ISR of its partition: all three or none."""

    topic: str
    partition: Count
    leader: Int32 | UnsetType = UNSET
    leader_epoch: Int32 | UnsetType = UNSET
    isr: list[Int32] | UnsetType = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        is_set = [each is not UNSET for each in (self.leader, self.leader_epoch, self.isr)]
        if any(is_set) and not all(is_set):
            raise ValueError("leader, leader_epoch and isr belong together")


class PartitionEvent(LeadershipEvent, kw_only=True, tag="partition"):
    before: PartitionStateName
    after: PartitionStateName
    replicas: list[Int32] | UnsetType = UNSET
    unclean: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.after == "OnlinePartition" and self.result != "failed" and self.leader is UNSET:
            raise ValueError("an online partition has a leader")


class AssignmentEvent(Event, kw_only=True, tag="assignment"):
    """A reassignment started, changed or ended. `replicas` includes those being added and removed."""

    topic: str
    partition: Count
    replicas: list[Int32]
    adding: list[Int32]
    removing: list[Int32]


class ReplicaEvent(LeadershipEvent, kw_only=True, tag="replica"):
    replica: Int32
    before: str
    after: str


class TopicEvent(Event, kw_only=True, tag="topic"):
    topic: str
    after: str
    by: str | None = None
    host: str | None = None
    asked_at: Time | UnsetType = UNSET
    automatic: bool | UnsetType = UNSET
    via: Int32 | UnsetType = UNSET
    partitions: Count | UnsetType = UNSET
    replication_factor: Count | UnsetType = UNSET
    defaults: list[str] | UnsetType = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.asked_at is not UNSET:
            check_year(self.asked_at)


class RequestEvent(Event, kw_only=True, tag="request"):
    """A request to broker `to` about `topics`, or the response. `answers` is the sequence number of the request."""

    to: Int32
    topics: dict[str, str] | UnsetType = UNSET
    partitions: Count | UnsetType = UNSET
    deletes: Count | UnsetType = UNSET
    part: SequenceNumber | UnsetType = UNSET
    parts: SequenceNumber | UnsetType = UNSET
    answers: SequenceNumber | UnsetType = UNSET
    errors: dict[str, str] | UnsetType = UNSET
    known_already: Count | UnsetType = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.topics is UNSET) == (self.answers is UNSET):
            raise ValueError("a request has either topics or answers")
        if self.part is not UNSET and self.part > self.sequence:
            raise ValueError("part must not be greater than sequence")


class ControllerEvent(Event, kw_only=True, tag="controller"):
    """An election or a resignation. `before` and `after` are the ids of the controllers."""

    before: Int32 | None = None
    after: Int32 | None = None


AnyEvent = (
    PartitionEvent | AssignmentEvent | ReplicaEvent | TopicEvent | RequestEvent | ControllerEvent
)

decoder = msgspec.json.Decoder(AnyEvent)


def read_event(value: bytes | None) -> AnyEvent | None:
    """Return the event in a record's value, or None if it is malformed."""
    try:
        event: AnyEvent = decoder.decode(value or b"")
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None
    return event


def fields_of(value: bytes | None) -> dict[str, Any] | None:
    """Return all fields of an event, including unknown ones. None for anything but a printable JSON object."""
    try:
        found = json.loads(value or b"")
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and is_shallow(found) else None


def is_shallow(value: Any) -> bool:
    """Return whether no value is nested deeper than DEPTH_MAX, which leaves a margin for later versions."""
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return not level


def skipped_text(malformed: int) -> str:
    return f"skipped {malformed} malformed event{'' if malformed == 1 else 's'}"


def check_year(at: datetime) -> None:
    if not FIRST_YEAR <= at.year <= LAST_YEAR:
        raise ValueError(f"the year {at.year} is out of range")
