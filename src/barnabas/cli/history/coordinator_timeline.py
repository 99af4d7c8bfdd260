"""The events of one group or transactional id, deduplicated and in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from heapq import merge

from msgspec import UNSET

from barnabas.cli.history.timeline import Event
from barnabas.client.consumer import ConsumedRecord
from barnabas.history.coordinator_event import (
    AnyCoordinatorEvent,
    GroupEvent,
    TransactionEvent,
    read_coordinator_event,
)
from barnabas.history.event import fields_of, read_event


class CoordinatorEvents(ABC):
    """Deduplicated events of one name."""

    def __init__(self) -> None:
        self.events: dict[tuple[int, int, int], tuple[AnyCoordinatorEvent, Event]] = {}
        self.malformed = 0
        """Number of records that are not events and were skipped."""
        self.left_out = 0
        """Number of events that coordinators did not record, of any name: there were too many at once."""
        self.counted: set[tuple[int, int, int]] = set()

    @abstractmethod
    def is_own(self, event: AnyCoordinatorEvent) -> bool:
        """Return whether the event belongs to the name."""

    def is_candidate(self, event: AnyCoordinatorEvent) -> bool:
        """Return whether the event may turn out to belong to the name."""
        return self.is_own(event)

    def add(self, records: Iterable[ConsumedRecord]) -> list[Event]:
        """Add the events of this name. Return those that are new, in the order of the records."""
        added = []
        for record in records:
            event = read_coordinator_event(record.value)
            if event is None:
                self.malformed += read_event(record.value) is None
                continue
            self.count_left_out(event)
            if event.key in self.events or not self.is_candidate(event):
                continue
            fields = fields_of(record.value)
            if fields is None:
                self.malformed += 1
                continue
            self.events[event.key] = event, fields
            if self.is_own(event):
                added.append(fields)
        return added

    def count_left_out(self, event: AnyCoordinatorEvent) -> None:
        if event.left_out and event.key not in self.counted:
            self.counted.add(event.key)
            self.left_out += event.left_out

    def in_order(self) -> list[Event]:
        """Return all events by coordinator epoch, run and sequence."""
        found = [(event, fields) for event, fields in self.events.values() if self.is_own(event)]
        return [fields for _, fields in sorted(found, key=lambda each: each[0].order)]


class GroupEvents(CoordinatorEvents):
    def __init__(self, group: str) -> None:
        super().__init__()
        self.group = group

    def is_own(self, event: AnyCoordinatorEvent) -> bool:
        return isinstance(event, GroupEvent) and event.group == self.group


class TransactionEvents(CoordinatorEvents):
    """Events of a transactional id, and markers that operators wrote for one of its producers."""

    def __init__(self, transactional_id: str, producer_ids: Iterable[int] = ()) -> None:
        super().__init__()
        self.transactional_id = transactional_id
        self.producer_ids = set(producer_ids)

    def is_own(self, event: AnyCoordinatorEvent) -> bool:
        if not isinstance(event, TransactionEvent):
            return False
        if event.transactional_id is UNSET:
            return event.producer_id in self.producer_ids
        return event.transactional_id == self.transactional_id

    def is_candidate(self, event: AnyCoordinatorEvent) -> bool:
        if not isinstance(event, TransactionEvent):
            return False
        is_own = event.transactional_id == self.transactional_id
        if is_own:
            self.producer_ids.add(event.producer_id)
        return is_own or event.transactional_id is UNSET

    def in_order(self) -> list[Event]:
        """Merge the markers by their time: they come from leaders of partitions, without a coordinator epoch."""
        by_source: dict[bool, list[Event]] = {True: [], False: []}
        for fields in super().in_order():
            by_source["transactional_id" in fields].append(fields)
        markers = sorted(by_source[False], key=time_of)
        return list(merge(by_source[True], markers, key=time_of))


def time_of(fields: Event) -> str:
    return str(fields["at"])
