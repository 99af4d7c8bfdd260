"""The events of one topic, deduplicated and in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from barnabas.client.consumer import ConsumedRecord
from barnabas.history.coordinator_event import is_malformed
from barnabas.history.event import AnyEvent, ControllerEvent, RequestEvent, fields_of, read_event

Event = dict[str, Any]
"""Fields of an event, as in the JSON of its record."""


class TopicEvents:
    """Deduplicated events of one topic, and the controller elections."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.events: dict[tuple[int, int], Event] = {}
        self.elections: dict[tuple[int, int], Event] = {}
        self.requests: set[tuple[int, int]] = set()
        """(epoch, sequence of the first part) of each request about the topic. Responses refer to it."""
        self.malformed = 0
        """Number of records that are not events and were skipped."""

    def add(self, records: Iterable[ConsumedRecord]) -> list[Event]:
        """Add the events of this topic and the elections. Return those that are new, in the order of the records."""
        added = []
        for record in records:
            event = read_event(record.value)
            if event is None:
                self.malformed += is_malformed(record.value)
                continue
            is_known = event.key in self.events or event.key in self.elections
            target = None if is_known else self.target_for(event)
            if target is None:
                continue
            fields = fields_of(record.value)
            if fields is None:
                self.malformed += 1
                continue
            target[event.key] = fields
            added.append(fields)
        return added

    def target_for(self, event: AnyEvent) -> dict[tuple[int, int], Event] | None:
        """Return the dict to which an event belongs, or None for an event of other topics."""
        if isinstance(event, ControllerEvent):
            return self.elections
        if not isinstance(event, RequestEvent):
            is_own = event.topic == self.topic
        elif event.answers is not UNSET:
            is_own = (event.epoch, event.answers) in self.requests
        else:
            is_own = event.topics is not UNSET and self.topic in event.topics
            if is_own:
                part = 1 if event.part is UNSET else event.part
                self.requests.add((event.epoch, event.sequence - part + 1))
        return self.events if is_own else None

    def in_order(self) -> list[Event]:
        """Return all events by epoch and sequence. Elections before the first event of the topic are left out."""
        if not self.events:
            return []
        first = (min(self.events)[0], 0)
        elections = {key: event for key, event in self.elections.items() if key > first}
        return [event for _, event in sorted({**self.events, **elections}.items())]
