"""A hand-made history of three controllers, small enough to work out the expected report on paper.

Times are milliseconds after 08:00. The history ends before 10,000.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from barnabas.history.event import AnyEvent, read_event

Event = dict[str, Any]

START = datetime(2026, 5, 1, 8, tzinfo=UTC)
NOW = START + timedelta(milliseconds=10_000)


def instant(ms: int) -> str:
    at = START + timedelta(milliseconds=ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class HistoryBuilder:
    """Builds the controllers' events in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.epoch = self.controller = self.sequence = 0

    def elected(self, ms: int, controller: int, cause: str) -> None:
        self.epoch += 1
        self.controller = controller
        self.sequence = 0
        self.add(ms, cause, "controller", "controller", before=None, after=controller)

    def resigned(self, ms: int) -> None:
        self.add(ms, "stop", "controller", "controller", before=self.controller, after=None)

    def partition(
        self, ms: int, cause: str, name: str, before: str, after: str, **more: Any
    ) -> None:
        topic, _, number = name.rpartition("-")
        states = {"before": f"{before}Partition", "after": f"{after}Partition"}
        self.add(ms, cause, "partition", name, topic=topic, partition=int(number), **states, **more)

    def created(self, ms: int, cause: str, name: str, replicas: list[int]) -> None:
        self.partition(ms, cause, name, "NonExistent", "New", replicas=replicas)

    def online(self, ms: int, cause: str, name: str, before: str, leader: int) -> None:
        self.partition(
            ms, cause, name, before, "Online", leader=leader, leader_epoch=0, isr=[leader]
        )

    def leaderless(self, ms: int, cause: str, name: str, before: str = "Offline") -> None:
        self.partition(ms, cause, name, before, "Online", result="failed", why="nobody is alive")

    def marked_for_deletion(self, ms: int, cause: str, name: str, before: str = "Online") -> None:
        self.partition(ms, cause, name, before, "Offline")
        self.partition(ms, cause, name, "Offline", "NonExistent")

    def replica(self, ms: int, cause: str, name: str, broker: int, after: str) -> None:
        topic, _, number = name.rpartition("-")
        where = {"topic": topic, "partition": int(number), "replica": broker}
        self.add(ms, cause, "replica", f"{name} on {broker}", **where, before="?", after=after)

    def topic(self, ms: int, request: str, topic: str, after: str, **more: Any) -> None:
        fields = {"topic": topic, "after": after, "by": "app", "host": "10.0.0.7", **more}
        self.add(ms, request, "topic", topic, **fields)

    def sent(self, ms: int, cause: str, kind: str, to: int, **more: Any) -> int:
        self.add(ms, cause, "request", f"{kind} to {to}", to=to, result="sent", **more)
        return self.sequence

    def answered(self, ms: int, cause: str, kind: str, to: int, sequence: int) -> None:
        self.add(ms, cause, "request", f"{kind} to {to}", to=to, answers=sequence)

    def add(self, ms: int, cause: str, what: str, name: str, **more: Any) -> None:
        self.sequence += 1
        head = {"at": instant(ms), "broker": self.controller, "role": "controller"}
        number = {"epoch": self.epoch, "sequence": self.sequence}
        about = {"cause": cause, "what": what, "id": name, "result": "done"}
        self.events.append({**head, **number, **about, **more})

    def lines(self) -> list[str]:
        return [json.dumps(event) for event in self.events]


def read_all(lines: list[str]) -> dict[tuple[int, int], AnyEvent]:
    """Return the events of valid lines, by their keys."""
    events = [read_event(line.encode()) for line in lines]
    return {event.key: event for event in events if event is not None}


def sample_history() -> HistoryBuilder:
    history = HistoryBuilder()
    first_controller(history)
    second_controller(history)
    third_controller(history)
    return history


def first_controller(history: HistoryBuilder) -> None:
    history.elected(0, 1, "Startup#1")
    sequence = history.sent(5, "Startup#1", "UpdateMetadata", 1, topics={})
    history.answered(12, "Startup#1", "UpdateMetadata", 1, sequence)
    orders_are_created(history)
    # Requested by a client that did not wait: the request is recorded before the controller acts.
    history.topic(290, "Metadata", "clicks", "created", automatic=True)
    history.created(300, "TopicsChanged#3", "clicks-0", [2])
    history.online(301, "TopicsChanged#3", "clicks-0", "New", 2)
    # The history has no request for these.
    for topic, ms in (("doomed", 400), ("quiet", 450)):
        history.created(ms, f"TopicsChanged#{ms}", f"{topic}-0", [2, 1])
        history.online(ms + 2, f"TopicsChanged#{ms}", f"{topic}-0", "New", 2)
    reborn_lives_twice(history)
    # Broker 2 fails. This is the last event of `quiet`: its recovery is lost with the first controller.
    cause = "BrokersChanged#9"
    for name in ("orders-1", "clicks-0", "quiet-0"):
        history.partition(1000, cause, name, "Online", "Offline")
    history.leaderless(1001, cause, "clicks-0")
    history.online(1040, cause, "orders-1", "Offline", 1)
    history.replica(1041, cause, "orders-1", 2, "OfflineReplica")
    history.replica(1041, cause, "quiet-0", 2, "OfflineReplica")
    doomed_is_marked(history)


def orders_are_created(history: HistoryBuilder) -> None:
    cause = "TopicsChanged#2"
    history.created(100, cause, "orders-0", [1, 2])
    history.created(100, cause, "orders-1", [2, 1])
    history.online(130, cause, "orders-0", "New", 1)
    history.online(150, cause, "orders-1", "New", 2)
    about = {"topics": {"orders": "0-1", "__state_changes": "0"}}
    one, other = (history.sent(151, cause, "LeaderAndIsr", broker, **about) for broker in (1, 2))
    history.answered(160, cause, "LeaderAndIsr", 1, one)
    history.answered(200, cause, "LeaderAndIsr", 2, other)
    history.topic(205, "CreateTopics", "orders", "created", asked_at=instant(90))


def reborn_lives_twice(history: HistoryBuilder) -> None:
    history.created(500, "TopicsChanged#5", "reborn-0", [1])
    history.online(501, "TopicsChanged#5", "reborn-0", "New", 1)
    history.marked_for_deletion(605, "TopicsMarked#6", "reborn-0")
    history.topic(606, "DeleteTopics", "reborn", "marked for deletion", asked_at=instant(600))
    for ms, after in (
        (606, "OfflineReplica"),
        (606, "ReplicaDeletionStarted"),
        (610, "ReplicaDeletionSuccessful"),
        (611, "NonExistentReplica"),
    ):
        history.replica(ms, "TopicsMarked#6", "reborn-0", 1, after)
    history.created(700, "TopicsChanged#7", "reborn-0", [3])
    history.online(703, "TopicsChanged#7", "reborn-0", "New", 3)


def doomed_is_marked(history: HistoryBuilder) -> None:
    """Broker 1 deletes its replica; broker 2 is down and gets no request."""
    cause = "TopicsMarked#10"
    # It once had another replica, which was removed.
    history.replica(1050, "Reassignment#9", "doomed-0", 4, "NonExistentReplica")
    history.marked_for_deletion(1510, cause, "doomed-0")
    history.replica(1510, cause, "doomed-0", 2, "ReplicaDeletionIneligible")
    history.replica(1511, cause, "doomed-0", 1, "OfflineReplica")
    history.replica(1512, cause, "doomed-0", 1, "ReplicaDeletionStarted")
    sequence = history.sent(1512, cause, "StopReplica", 1, topics={"doomed": "0"})
    history.topic(1515, "DeleteTopics", "doomed", "marked for deletion", asked_at=instant(1500))
    history.answered(1529, cause, "StopReplica", 1, sequence)
    history.replica(1530, "RequestAnswered#11", "doomed-0", 1, "ReplicaDeletionSuccessful")
    history.replica(1531, "RequestAnswered#11", "doomed-0", 2, "OfflineReplica")


def second_controller(history: HistoryBuilder) -> None:
    """The former controller, broker 1, crashed."""
    cause = "ControllerGone#1"
    history.elected(5000, 3, cause)
    history.replica(5002, cause, "orders-0", 2, "OnlineReplica")
    history.replica(5003, cause, "orders-0", 1, "OfflineReplica")
    history.online(5010, cause, "orders-0", "Offline", 2)
    history.leaderless(5010, cause, "orders-1")
    history.leaderless(5010, cause, "clicks-0")
    sequence = history.sent(5011, cause, "LeaderAndIsr", 2, topics={"orders": "0"})
    history.answered(5025, cause, "LeaderAndIsr", 2, sequence)
    history.online(6000, "BrokersChanged#2", "orders-1", "Offline", 2)
    history.online(6000, "BrokersChanged#2", "clicks-0", "Offline", 2)
    history.resigned(7000)


def third_controller(history: HistoryBuilder) -> None:
    history.elected(7100, 2, "ControllerGone#4")
    history.created(8000, "TopicsChanged#5", "late-0", [9])
    history.leaderless(8001, "TopicsChanged#5", "late-0", "New")
    # One request in two events; its response refers to the first.
    about = {"partitions": 2, "parts": 2}
    sequence = history.sent(
        8002, "TopicsChanged#5", "UpdateMetadata", 2, topics={"orders": "0"}, part=1, **about
    )
    history.sent(
        8002, "TopicsChanged#5", "UpdateMetadata", 2, topics={"late": "0"}, part=2, **about
    )
    history.answered(8072, "TopicsChanged#5", "UpdateMetadata", 2, sequence)
    history.sent(8100, "TopicsChanged#5", "LeaderAndIsr", 9, topics={"late": "0"})
