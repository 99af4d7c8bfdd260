"""Reader: events sorted by (epoch, sequence), as entries of topics and facts about controllers and brokers.

    records of __state_changes ─► events of an epoch ─► entries of a topic ─► lives of the topic

Events are published at least once, and those of a broker that was down are published late. The caller sorts them; the
reader drops duplicates. A request becomes an entry of each of its topics, together with its response.

A name may be used again after its topic was deleted. Each topic of that name is a life, counted from 1. A life begins
with the first partition that is created after a deletion. The client's request may be recorded just before that: if it
does not wait for leaders, its response precedes the work of the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal

from msgspec import UNSET, Struct

from barnabas.history.event import (
    AnyEvent,
    AssignmentEvent,
    ControllerEvent,
    PartitionEvent,
    ReplicaEvent,
    RequestEvent,
    TopicEvent,
)

HISTORY_TOPIC = "__state_changes"


class TopicRequest(Struct, kw_only=True, tag_field="what", tag="topic request"):
    """A request of the controller to broker `to` about a topic. `answered_at` is None without a response."""

    epoch: int
    sequence: int
    at: datetime
    cause: str
    name: str
    to: int
    answered_at: datetime | None = None


TopicEntry = PartitionEvent | ReplicaEvent | TopicEvent | TopicRequest


class EpochSummary(Struct, kw_only=True, tag_field="what", tag="epoch"):
    """Facts about a controller epoch. `settled_at` is the last event that the election caused."""

    epoch: int
    controller: int
    first_at: datetime
    last_at: datetime
    events: int = 0
    elected_at: datetime | None = None
    cause: str | None = None
    settled_at: datetime | None = None
    resigned_at: datetime | None = None


Sign = Literal["request", "online", "shutdown", "offline"]


class BrokerSighting(Struct, frozen=True, tag_field="what", tag="sighting"):
    """A sign that a broker was up (`request`, `online`), shut down (`shutdown`) or was gone (`offline`)."""

    epoch: int
    sequence: int
    broker: int
    sign: Sign
    at: datetime
    cause: str


EpochItem = tuple[str, TopicEntry] | tuple[None, EpochSummary | BrokerSighting]


def split_epoch(events: Iterable[AnyEvent]) -> Iterator[EpochItem]:
    """Yield the entries of topics, each with its topic, and facts without a topic, from the events of one epoch.

    epoch 7, sequence 19: LeaderAndIsr to 2, topics orders and clicks, answered by sequence 31
    → orders: LeaderAndIsr to 2, answered_at = the time of 31; and the same for clicks
    """
    summary: EpochSummary | None = None
    pending: dict[int, list[tuple[str, TopicRequest]]] = {}
    last_causes: dict[int, str] = {}
    last_sequence = 0
    for event in events:
        if event.sequence == last_sequence:
            continue
        last_sequence = event.sequence
        if summary is None:
            summary = EpochSummary(
                epoch=event.epoch, controller=event.broker, first_at=event.at, last_at=event.at
            )
        add_to_summary(summary, event)
        match event:
            case RequestEvent(answers=answers) if answers is not UNSET:
                for topic, request in pending.pop(answers, ()):
                    request.answered_at = event.at
                    yield topic, request
            case RequestEvent():
                if last_causes.get(event.to) != event.cause:
                    last_causes[event.to] = event.cause
                    yield None, sighting(event, event.to, "request")
                # A request about very many topics is several events, and the response refers to the first.
                first = event.sequence - (1 if event.part is UNSET else event.part) + 1
                pending.setdefault(first, []).extend(requests_by_topic(event))
            case ControllerEvent(after=int(controller)):
                yield None, sighting(event, controller, "request")
            case ControllerEvent() | AssignmentEvent():
                pass
            case _ if event.topic != HISTORY_TOPIC:
                yield event.topic, event
    for unanswered in pending.values():
        yield from unanswered
    if summary is not None:
        yield None, summary


def add_to_summary(summary: EpochSummary, event: AnyEvent) -> None:
    summary.events += 1
    summary.controller = max(summary.controller, event.broker)
    summary.first_at = min(summary.first_at, event.at)
    summary.last_at = max(summary.last_at, event.at)
    if isinstance(event, ControllerEvent):
        if event.after is None:
            summary.resigned_at = event.at
        else:
            summary.elected_at, summary.cause = event.at, event.cause
            summary.settled_at = event.at
    if event.cause == summary.cause and summary.settled_at is not None:
        summary.settled_at = max(summary.settled_at, event.at)


def requests_by_topic(event: RequestEvent) -> Iterator[tuple[str, TopicRequest]]:
    for topic in () if event.topics is UNSET else event.topics:
        if topic != HISTORY_TOPIC:
            yield (
                topic,
                TopicRequest(
                    epoch=event.epoch,
                    sequence=event.sequence,
                    at=event.at,
                    cause=event.cause,
                    name=event.id.partition(" ")[0],
                    to=event.to,
                ),
            )


def sighting(
    event: AnyEvent,
    broker: int,
    sign: Sign,
) -> BrokerSighting:
    return BrokerSighting(event.epoch, event.sequence, broker, sign, event.at, event.cause)


# ---- lives ----------------------------------------------------------------------------------------------------


def split_lives(entries: Iterable[TopicEntry]) -> Iterator[list[TopicEntry]]:
    """Yield the entries of each life of a topic. If the history starts in the middle of a life, that is the first.

    created New Online NonExistent │ created New Online     (entries of one name, in order)
       1     1    1        1       │    2     2    2
    """
    ordered = list(entries)
    marks = [(index, mark) for index, entry in enumerate(ordered) if (mark := life_mark(entry))]
    following = [*(mark for _, mark in marks[1:]), None]
    start, before = 0, None
    for (index, mark), after in zip(marks, following, strict=False):
        # A request that was recorded after the creation starts no life, even after a deletion.
        is_early_request = mark == "requested" and after == "created"
        if before == "deleted" and (mark == "created" or is_early_request):
            yield ordered[start:index]
            start = index
        before = mark
    yield ordered[start:]


def life_mark(entry: TopicEntry) -> Literal["created", "requested", "deleted"] | None:
    """Return the mark of an entry that may begin or end a life."""
    if isinstance(entry, TopicEvent):
        return "requested" if entry.after == "created" else None
    if isinstance(entry, PartitionEvent) and entry.result == "done":
        if entry.after == "NewPartition":
            return "created"
        if entry.after == "NonExistentPartition":
            return "deleted"
    return None
