"""Events of group and transaction coordinators in `__state_changes`: their model, which validates the records.

A coordinator records what its clients cannot see or do not expect: rebalances, removed members, aborted transactions.
It does not record each commit. Such an event has neither a controller epoch nor a cause. `broker`, `run` and `sequence`
together identify it. As in event.py, other fields are ignored, and docs/history.md describes all fields.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from barnabas.history.event import Count, Int32, SequenceNumber, Time, check_year

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class CoordinatorEvent(Struct, kw_only=True, tag_field="what"):
    """Fields of the events of both coordinators."""

    at: Time
    broker: Int32
    run: SequenceNumber
    sequence: SequenceNumber
    coordinator_epoch: Int32 = -1
    role: str
    after: str
    result: Literal["done"]
    why: str | None = None
    left_out: Count = 0

    def __post_init__(self) -> None:
        check_year(self.at)

    @property
    def key(self) -> tuple[int, int, int]:
        return self.broker, self.run, self.sequence

    @property
    def order(self) -> tuple[int, int, int]:
        """Sorts the events of one name. Each new coordinator has a higher epoch."""
        return self.coordinator_epoch, self.run, self.sequence


class GroupEvent(CoordinatorEvent, kw_only=True, tag="group"):
    group: str
    protocol: str
    generation: Int32
    members: Count
    member: str | UnsetType = UNSET
    client: str | None = None
    member_host: str | UnsetType = UNSET


class TransactionEvent(CoordinatorEvent, kw_only=True, tag="transaction"):
    """An event of a transactional id. Without one it comes from the leader of a partition, which knows the producer."""

    transactional_id: str | UnsetType = UNSET
    partition: str | UnsetType = UNSET
    producer_id: Int64
    producer_epoch: Int32
    partitions: Count | UnsetType = UNSET
    open_ms: Int64 | UnsetType = UNSET
    by: str | None = None
    host: str | UnsetType = UNSET


AnyCoordinatorEvent = GroupEvent | TransactionEvent

coordinator_decoder = msgspec.json.Decoder(AnyCoordinatorEvent)


def read_coordinator_event(value: bytes | None) -> AnyCoordinatorEvent | None:
    """Return the event in a record's value, or None if it is malformed or an event of a controller."""
    try:
        event: AnyCoordinatorEvent = coordinator_decoder.decode(value or b"")
    except (ValueError, RecursionError):
        return None
    return event


def is_malformed(value: bytes | None) -> bool:
    """Return whether a record without an event of a controller is malformed: it may have one of a coordinator."""
    return read_coordinator_event(value) is None
