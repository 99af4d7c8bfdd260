"""Facts from the history: since when a partition has no leader, a replica is not in sync, a broker is gone.

The input are events of `__state_changes` in the order of (epoch, sequence). Events may be missing at the start. Times
are in milliseconds, by the clock of the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import UNSET, Struct, field

from barnabas.history.event import (
    AnyEvent,
    AssignmentEvent,
    ControllerEvent,
    PartitionEvent,
    ReplicaEvent,
    RequestEvent,
    TopicEvent,
)
from barnabas.history.words import LOSSES, SHUTDOWN, millis_of
from barnabas.model import TopicPartition

MARKED = "marked for deletion"
DELETED_STATES = ("ReplicaDeletionSuccessful", "NonExistentReplica")
DELETION_STATES = ("ReplicaDeletionStarted", "ReplicaDeletionIneligible", *DELETED_STATES)
REASSIGNMENTS = "Reassignment"
"""Start of the causes of a reassignment. It deletes replicas too, but the topic stays."""


class BrokerLoss(Struct, frozen=True):
    """The last time that replicas of a broker went offline. `is_shutdown`: the broker had asked for it."""

    at_ms: int
    is_shutdown: bool


class RequestedDeletion(Struct, frozen=True):
    """A deletion that is not finished. `waits_for` are the brokers that have not deleted their replicas."""

    at_ms: int
    by: str | None = None
    waits_for: tuple[int, ...] = ()


class HistoryFacts(Struct, frozen=True, kw_only=True):
    no_leader_since: Mapping[TopicPartition, int] = field(default_factory=dict)
    not_in_sync_since: Mapping[tuple[TopicPartition, int], int] = field(default_factory=dict)
    lost_brokers: Mapping[int, BrokerLoss] = field(default_factory=dict)
    known_brokers: frozenset[int] = frozenset()
    """Brokers that were in an ISR at some time."""
    deletions: Mapping[str, RequestedDeletion] = field(default_factory=dict)


def summarize_history(events: Iterable[AnyEvent]) -> HistoryFacts:
    """Return the facts of events in order."""
    summary = HistorySummary()
    for event in events:
        match event:
            case PartitionEvent():
                summary.add_partition(event)
            case ReplicaEvent():
                summary.add_replica(event)
            case TopicEvent():
                summary.add_topic(event)
            case ControllerEvent():
                summary.controller_since = None if event.after is None else millis_of(event.at)
            case RequestEvent() | AssignmentEvent():
                pass
    return summary.facts()


class HistorySummary:
    """State while the events are read."""

    def __init__(self) -> None:
        self.isrs: dict[TopicPartition, frozenset[int]] = {}
        self.no_leader_since: dict[TopicPartition, int] = {}
        self.not_in_sync_since: dict[tuple[TopicPartition, int], int] = {}
        self.lost_brokers: dict[int, BrokerLoss] = {}
        self.known_brokers: set[int] = set()
        self.requested: dict[str, tuple[int, str | None]] = {}
        self.deleting: dict[str, dict[tuple[int, int], str]] = {}
        self.controller_since: int | None = None

    def add_partition(self, event: PartitionEvent) -> None:
        partition = TopicPartition(event.topic, event.partition)
        at_ms = millis_of(event.at)
        if event.result == "failed":
            # A new controller that finds a partition without a leader records only its failed election.
            if event.before != "OnlinePartition":
                self.no_leader_since.setdefault(partition, self.controller_since or at_ms)
            return
        if event.after == "NonExistentPartition":
            self.no_leader_since.pop(partition, None)
            self.isrs.pop(partition, None)
        elif event.after == "OnlinePartition":
            self.no_leader_since.pop(partition, None)
        else:
            self.no_leader_since.setdefault(partition, at_ms)
        if event.after == "NewPartition":
            self.deleting.pop(event.topic, None)
            self.isrs.pop(partition, None)
        self.set_isr(partition, event.isr, at_ms)

    def add_replica(self, event: ReplicaEvent) -> None:
        if event.result == "failed":
            return
        partition = TopicPartition(event.topic, event.partition)
        at_ms = millis_of(event.at)
        if event.after in DELETION_STATES:
            if event.cause.startswith(REASSIGNMENTS):
                return
            states = self.deleting.setdefault(event.topic, {})
            states[event.partition, event.replica] = event.after
        elif event.after == "OfflineReplica":
            if event.cause.startswith(LOSSES) and event.topic not in self.requested:
                is_shutdown = event.cause.startswith(SHUTDOWN)
                last = self.lost_brokers.get(event.replica)
                # A broker that shuts down repeats its request, and closes its session at the end. That is no crash.
                if last is None or not last.is_shutdown:
                    self.lost_brokers[event.replica] = BrokerLoss(at_ms, is_shutdown)
        elif event.after == "OnlineReplica":
            self.lost_brokers.pop(event.replica, None)
        self.set_isr(partition, event.isr, at_ms)

    def add_topic(self, event: TopicEvent) -> None:
        if event.result != "failed" and event.after == MARKED:
            at = event.at if event.asked_at is UNSET else event.asked_at
            self.requested[event.topic] = (millis_of(at), event.by)
        elif event.after == "created":
            self.requested.pop(event.topic, None)

    def set_isr(self, partition: TopicPartition, isr: object, at_ms: int) -> None:
        if not isinstance(isr, list):
            return
        now = frozenset(isr)
        before = self.isrs.get(partition, frozenset())
        self.isrs[partition] = now
        self.known_brokers |= now
        for broker in before - now:
            self.not_in_sync_since[partition, broker] = at_ms
        for broker in now - before:
            self.not_in_sync_since.pop((partition, broker), None)

    def facts(self) -> HistoryFacts:
        return HistoryFacts(
            no_leader_since=self.no_leader_since,
            not_in_sync_since=self.not_in_sync_since,
            lost_brokers=self.lost_brokers,
            known_brokers=frozenset(self.known_brokers),
            deletions={
                topic: self.deletion(topic) for topic in self.requested if self.is_pending(topic)
            },
        )

    def is_pending(self, topic: str) -> bool:
        """Whether a replica is left. A deletion without events of replicas has not started."""
        states = self.deleting.get(topic)
        return states is None or any(state != "NonExistentReplica" for state in states.values())

    def deletion(self, topic: str) -> RequestedDeletion:
        at_ms, by = self.requested[topic]
        states = self.deleting.get(topic, {})
        left = {broker for (_, broker), state in states.items() if state not in DELETED_STATES}
        return RequestedDeletion(at_ms, by, tuple(sorted(left)))
