"""A history of three controllers, made by hand, small enough to work out on paper what a report must say of it.

Times are milliseconds after 08:00, and nothing has happened after 10,000.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

Event = dict[str, Any]

START = datetime(2026, 5, 1, 8, tzinfo=UTC)
NOW = START + timedelta(milliseconds=10_000)


def instant(ms: int) -> str:
    at = START + timedelta(milliseconds=ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Story:
    """What the controllers write, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.epoch = self.controller = self.sequence = 0

    def elected(self, ms: int, controller: int, cause: str) -> None:
        self.epoch += 1
        self.controller = controller
        self.sequence = 0
        self.tell(ms, cause, "controller", "controller", before=None, after=controller)

    def resigned(self, ms: int) -> None:
        self.tell(ms, "stop", "controller", "controller", before=self.controller, after=None)

    def partition(
        self, ms: int, cause: str, name: str, before: str, after: str, **more: Any
    ) -> None:
        topic, _, number = name.rpartition("-")
        states = {"before": f"{before}Partition", "after": f"{after}Partition"}
        self.tell(
            ms, cause, "partition", name, topic=topic, partition=int(number), **states, **more
        )

    def born(self, ms: int, cause: str, name: str, replicas: list[int]) -> None:
        self.partition(ms, cause, name, "NonExistent", "New", replicas=replicas)

    def online(self, ms: int, cause: str, name: str, before: str, leader: int) -> None:
        self.partition(
            ms, cause, name, before, "Online", leader=leader, leader_epoch=0, isr=[leader]
        )

    def leaderless(self, ms: int, cause: str, name: str, before: str = "Offline") -> None:
        self.partition(ms, cause, name, before, "Online", result="failed", why="nobody is alive")

    def going(self, ms: int, cause: str, name: str, before: str = "Online") -> None:
        self.partition(ms, cause, name, before, "Offline")
        self.partition(ms, cause, name, "Offline", "NonExistent")

    def replica(self, ms: int, cause: str, name: str, broker: int, after: str) -> None:
        topic, _, number = name.rpartition("-")
        where = {"topic": topic, "partition": int(number), "replica": broker}
        self.tell(ms, cause, "replica", f"{name} on {broker}", **where, before="?", after=after)

    def topic(self, ms: int, request: str, topic: str, after: str, **more: Any) -> None:
        told = {"topic": topic, "after": after, "by": "app", "host": "10.0.0.7", **more}
        self.tell(ms, request, "topic", topic, **told)

    def sent(self, ms: int, cause: str, kind: str, to: int, **more: Any) -> int:
        self.tell(ms, cause, "request", f"{kind} to {to}", to=to, result="sent", **more)
        return self.sequence

    def answered(self, ms: int, cause: str, kind: str, to: int, sequence: int) -> None:
        self.tell(ms, cause, "request", f"{kind} to {to}", to=to, answers=sequence)

    def tell(self, ms: int, cause: str, what: str, name: str, **more: Any) -> None:
        self.sequence += 1
        head = {"at": instant(ms), "broker": self.controller, "role": "controller"}
        number = {"epoch": self.epoch, "sequence": self.sequence}
        about = {"cause": cause, "what": what, "id": name, "result": "done"}
        self.events.append({**head, **number, **about, **more})

    def lines(self) -> list[str]:
        return [json.dumps(event) for event in self.events]


def story() -> Story:
    tale = Story()
    first_controller(tale)
    second_controller(tale)
    third_controller(tale)
    return tale


def first_controller(tale: Story) -> None:
    tale.elected(0, 1, "Startup#1")
    asked = tale.sent(5, "Startup#1", "UpdateMetadata", 1, topics={})
    tale.answered(12, "Startup#1", "UpdateMetadata", 1, asked)
    orders_are_created(tale)
    # Asked for by a client that did not wait: the wish is told before the controller acts.
    tale.topic(290, "Metadata", "clicks", "created", automatic=True)
    tale.born(300, "TopicsChanged#3", "clicks-0", [2])
    tale.online(301, "TopicsChanged#3", "clicks-0", "New", 2)
    # Nobody is on record as having wanted these.
    for topic, ms in (("doomed", 400), ("quiet", 450)):
        tale.born(ms, f"TopicsChanged#{ms}", f"{topic}-0", [2, 1])
        tale.online(ms + 2, f"TopicsChanged#{ms}", f"{topic}-0", "New", 2)
    reborn_lives_twice(tale)
    # Broker 2 dies. Of `quiet` this is the last word: what became of it is lost with the first controller.
    cause = "BrokersChanged#9"
    for name in ("orders-1", "clicks-0", "quiet-0"):
        tale.partition(1000, cause, name, "Online", "Offline")
    tale.leaderless(1001, cause, "clicks-0")
    tale.online(1040, cause, "orders-1", "Offline", 1)
    doomed_is_marked(tale)


def orders_are_created(tale: Story) -> None:
    cause = "TopicsChanged#2"
    tale.born(100, cause, "orders-0", [1, 2])
    tale.born(100, cause, "orders-1", [2, 1])
    tale.online(130, cause, "orders-0", "New", 1)
    tale.online(150, cause, "orders-1", "New", 2)
    about = {"topics": {"orders": "0-1", "__state_changes": "0"}}
    one, other = (tale.sent(151, cause, "LeaderAndIsr", broker, **about) for broker in (1, 2))
    tale.answered(160, cause, "LeaderAndIsr", 1, one)
    tale.answered(200, cause, "LeaderAndIsr", 2, other)
    tale.topic(205, "CreateTopics", "orders", "created", asked_at=instant(90))


def reborn_lives_twice(tale: Story) -> None:
    tale.born(500, "TopicsChanged#5", "reborn-0", [1])
    tale.online(501, "TopicsChanged#5", "reborn-0", "New", 1)
    tale.going(605, "TopicsMarked#6", "reborn-0")
    tale.topic(606, "DeleteTopics", "reborn", "marked for deletion", asked_at=instant(600))
    for ms, after in (
        (606, "OfflineReplica"),
        (606, "ReplicaDeletionStarted"),
        (610, "ReplicaDeletionSuccessful"),
        (611, "NonExistentReplica"),
    ):
        tale.replica(ms, "TopicsMarked#6", "reborn-0", 1, after)
    tale.born(700, "TopicsChanged#7", "reborn-0", [3])
    tale.online(703, "TopicsChanged#7", "reborn-0", "New", 3)


def doomed_is_marked(tale: Story) -> None:
    """Broker 1 deletes its replica, broker 2 is away and never asked."""
    cause = "TopicsMarked#10"
    # Once it had another replica, which it gave up.
    tale.replica(1050, "Reassignment#9", "doomed-0", 4, "NonExistentReplica")
    tale.going(1510, cause, "doomed-0")
    tale.replica(1510, cause, "doomed-0", 2, "ReplicaDeletionIneligible")
    tale.replica(1511, cause, "doomed-0", 1, "OfflineReplica")
    tale.replica(1512, cause, "doomed-0", 1, "ReplicaDeletionStarted")
    asked = tale.sent(1512, cause, "StopReplica", 1, topics={"doomed": "0"})
    tale.topic(1515, "DeleteTopics", "doomed", "marked for deletion", asked_at=instant(1500))
    tale.answered(1529, cause, "StopReplica", 1, asked)
    tale.replica(1530, "RequestAnswered#11", "doomed-0", 1, "ReplicaDeletionSuccessful")
    tale.replica(1531, "RequestAnswered#11", "doomed-0", 2, "OfflineReplica")


def second_controller(tale: Story) -> None:
    """Broker 1, which was controller, died without a word."""
    cause = "ControllerGone#1"
    tale.elected(5000, 3, cause)
    tale.online(5010, cause, "orders-0", "Offline", 2)
    tale.leaderless(5010, cause, "orders-1")
    tale.leaderless(5010, cause, "clicks-0")
    asked = tale.sent(5011, cause, "LeaderAndIsr", 2, topics={"orders": "0"})
    tale.answered(5025, cause, "LeaderAndIsr", 2, asked)
    tale.online(6000, "BrokersChanged#2", "orders-1", "Offline", 2)
    tale.online(6000, "BrokersChanged#2", "clicks-0", "Offline", 2)
    tale.resigned(7000)


def third_controller(tale: Story) -> None:
    tale.elected(7100, 2, "ControllerGone#4")
    tale.born(8000, "TopicsChanged#5", "late-0", [9])
    tale.leaderless(8001, "TopicsChanged#5", "late-0", "New")
    # One request in two events; its answer names the first.
    about = {"partitions": 2, "parts": 2}
    asked = tale.sent(
        8002, "TopicsChanged#5", "UpdateMetadata", 2, topics={"orders": "0"}, part=1, **about
    )
    tale.sent(8002, "TopicsChanged#5", "UpdateMetadata", 2, topics={"late": "0"}, part=2, **about)
    tale.answered(8072, "TopicsChanged#5", "UpdateMetadata", 2, asked)
    tale.sent(8100, "TopicsChanged#5", "LeaderAndIsr", 9, topics={"late": "0"})
